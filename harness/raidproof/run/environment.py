"""Finds out where and with what a lab runs."""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import raidproof
from raidproof.core import command
from raidproof.core.layer import read_files
from raidproof.image.software import software_of
from raidproof.machine.machine import Machine
from raidproof.monitor.capture import why_no_capture
from raidproof.provider.registry import Lab
from raidproof.record.environment import Environment, MachineRecord

PACKAGES = ("mdadm", "xfsprogs", "e2fsprogs", "nfs-", "libnfsidmap", "rpcbind", "libtirpc", "fio", "linux-image")
"""How the names of packages begin that take part; nfs-utils is called so by Fedora, and nfs-common by Debian."""
_CPUS, _NODES = "/sys/devices/system/cpu/online", "/sys/devices/system/node/online"
_BUILD = "/proc/version"


UNSEEN_REPLIES = (
    "a reply that is given milliseconds too early does not show: an acknowledgement is dated when the client's report "
    "of it arrives, not when the server's reply is on the wire"
)


def environment_of(lab: Lab) -> Environment:
    """Read it from the host and from every machine, once."""
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return Environment(
        raidproof=raidproof.__version__,
        provider=lab.topology.provider,
        host_kernel=platform.release(),
        host_cpu=cpu.group(1) if cpu else "unknown",
        host_cpus=os.cpu_count() or 0,
        host_tools={name: version_of(words) for name, words in lab.programs.items()},
        machines=[machine_record(machine) for machine in lab.machines.values()],
        notes=list(lab.notes),
        cannot_prove=[*lab.cannot_prove, *unseen_replies(lab)],
    )


def unseen_replies(lab: Lab) -> list[str]:
    """Say what goes unnoticed where the server's replies are not captured."""
    why = why_no_capture(lab)
    return [] if why is None else [f"{UNSEEN_REPLIES} ({why})"]


def version_of(program: Sequence[str]) -> str:
    """Return what a program of this host says of its version."""
    return command.succeed([*program, "--version"]).splitlines()[0]


def machine_record(machine: Machine) -> MachineRecord:
    """Read what a machine is and runs."""
    software = software_of(machine)
    found = read_files(machine, [_CPUS, _NODES, _BUILD])
    return MachineRecord(
        name=machine.name,
        role=machine.spec.role.value,
        asked=str(machine.spec.software),
        kernel=software.kernel,
        build=found.get(_BUILD, ""),
        packages=of_interest(software.packages),
        cpus=count_of(found[_CPUS]) if _CPUS in found else 1,
        # A kernel without NUMA has one node and does not say so.
        numa_nodes=count_of(found[_NODES]) if _NODES in found else 1,
        boot_s=machine.boot_s,
    )


def of_interest(packages: Mapping[str, str]) -> dict[str, str]:
    """Keep the packages that take part in what is tested."""
    return {name: version for name, version in packages.items() if name.startswith(PACKAGES)}


def count_of(ranges: str) -> int:
    """Count what a list of the kernel's names, as ``0-3,8``."""
    pairs = [(first, last or first) for first, _, last in (part.partition("-") for part in ranges.split(","))]
    return sum(int(last) - int(first) + 1 for first, last in pairs)
