"""The reference measurement of a repetition: a fixed small work that shares what drifts on the host.

It uses the server's processor, the simulation of a disk, and the lab's network, and neither the stack nor the hardware
that the plan requests: disk timing is off, and traffic of the harness bypasses the limits of links. So its speed
is that of the host. The work must stay the same for ever. A change of the work needs a
new ``VERSION``.
"""

from collections.abc import Callable
from statistics import mean

from raidproof.core.command import CommandFailed
from raidproof.core.log import logger
from raidproof.core.waiting import now_ns
from raidproof.record.reference import ReferenceRecord
from raidproof.run.stack_deployer import StackDeployer
from raidproof.storage.member import disk_path

VERSION = 1
"""Version of the work that the constants below define. Measurements of different versions are not comparable."""
PIECES = 2
"""Each part is measured so often, in turn with the other parts; its value is the mean."""
COMPUTATION = "n = 0\nfor i in range(100000): n = (n * 31 + i) % 1000003"
READ_SIZE, READS = 4096, 128
SENT = 256 * 1024
"""Bytes of a transfer."""


def measure_reference(deployer: StackDeployer) -> ReferenceRecord | None:
    """Return a reference measurement in the lab; None if the server lacks a program of it.

    It reads, and writes nothing, so that a deployed stack stays as it is.

    Raises:
        RigError: the server does not answer.
    """
    deployer.disable_timing()
    server, disk = deployer.lab.server, disk_path(deployer.lab.topology.disks[0].serial)
    read = ["dd", f"if={disk}", "of=/dev/null", f"bs={READ_SIZE}", f"count={READS}", "iflag=direct"]
    data = bytes(SENT)
    parts: dict[str, Callable[[], object]] = {
        "processor_s": lambda: server.succeed(["python3", "-S", "-c", COMPUTATION]),
        "disks_s": lambda: server.succeed(read),
        "network_s": lambda: server.put(data, "/dev/null"),
    }
    found: dict[str, list[float]] = {name: [] for name in parts}
    try:
        for _ in range(PIECES):
            for name, part in parts.items():
                begun = now_ns()
                part()
                found[name].append((now_ns() - begun) / 1e9)
    except CommandFailed as error:
        logger.warning("no reference measurement: %s", error)
        return None
    return ReferenceRecord(version=VERSION, **{name: mean(each) for name, each in found.items()})
