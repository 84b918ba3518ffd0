"""Writes that are forced to the medium one by one (FUA), where virtio-blk and ubd have flushes only.

Neither virtio-blk (virtio 1.3, 5.2) nor vhost-user-blk has a bit for it, so that ``queue/fua`` of their disks is 0 and
the kernel makes two flushes of it. NBD has one. The members are attached to the kernel's own NBD driver before the
stack is built; after the cut the machine boots with its virtio disks again, behind which is the same engine.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from raidproof.core.errors import ProductError, RequirementMissing
from raidproof.core.log import step
from raidproof.core.units import KIB
from raidproof.core.waiting import Deadline, wait_until
from raidproof.disk.cache import CutPolicy
from raidproof.provider.enclosed_lab import EnclosedLab
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestRunner, stack_of
from raidproof.run.campaign import Campaign
from raidproof.storage.array import disk_path
from scenarios.durability import nbd_guest

PROGRAM = "/run/nbd_guest.py"
ATTACH_DEADLINE_S = 20.0
CHUNK = 128 * KIB
"""NBD disks have an optimal size of that much, and md's is a multiple of its members'."""
LEAST_SHARE = 0.2
"""Of all writes. It was 89 % with RAID5 and XFS; of virtio disks it is none."""


def pump(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes, until one side ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            target.sendall(data)
    close(source)
    close(target)


def close(connection: socket.socket) -> None:
    """Close it under whoever waits for it, too."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def relay(listener: socket.socket, path: Path) -> Iterator[None]:
    """Connect each who calls with the NBD server, whose socket is a file of this host."""
    with ExitStack() as undo:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    far.connect(str(path))
                    for pair in ((near, far), (far, near)):
                        threading.Thread(target=pump, args=pair, daemon=True).start()
                    undo.callback(close, near)
                    undo.callback(close, far)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        undo.callback(thread.join)
        undo.callback(listener.shutdown, socket.SHUT_RDWR)
        yield


@pytest.fixture
def forced(campaign: Campaign) -> Iterator[None]:
    """The shared lab's server with its members behind the NBD driver, until it boots again."""
    lab = campaign.lab
    if not isinstance(lab, EnclosedLab):
        raise RequirementMissing("the disks of this run are not the disk engine's")
    server = lab.server
    if not server.run(["modprobe", "nbd"]).ok:
        raise RequirementMissing(f"{server.name}: this kernel has no NBD driver")
    server.put(Path(nbd_guest.__file__).read_bytes(), PROGRAM)
    with closing(lab.listen()) as listener, relay(listener, lab.engine_socket):
        host, port = lab.callback_address(listener, server)
        for number, serial in enumerate(MEMBERS):
            device = f"nbd{number}"
            server.start_command(["python3", PROGRAM, host, str(port), serial, f"/dev/{device}"])
            attached = ["test", "-e", f"/sys/block/{device}/pid"]
            wait_until(lambda: server.run(attached).ok, Deadline.after(ATTACH_DEADLINE_S), f"{device} to be attached")  # noqa: B023
            server.succeed(["ln", "-sfn", f"/dev/{device}", disk_path(serial)])
            if server.get(f"/sys/block/{device}/queue/fua").strip() != "1":
                raise RequirementMissing(f"{server.name}: {device} forces no writes")
        yield
    # Of a server that has lost its disks nothing can be expected.
    campaign.discard_lab()


@pytest.mark.parametrize("policy", [CutPolicy.DROP, pytest.param(CutPolicy.TORN, marks=pytest.mark.exhaustive)])
@pytest.mark.usefixtures("forced")
def test_what_was_forced_is_there(cycle: CrashTestRunner, policy: CutPolicy) -> None:
    ended = cycle(stack_of(chunk_size=CHUNK), policy=policy).must_keep_every_promise()
    disks = ended.record.disks.values()
    fua, writes = (sum(disk[what] for disk in disks) for what in ("fua", "writes"))
    step(f"{fua:,} of {writes:,} writes were forced ({fua / max(1, writes):.1%})")
    if fua < LEAST_SHARE * writes:
        raise ProductError(f"only {fua:,} of {writes:,} writes were forced")
