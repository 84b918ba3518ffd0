"""Writes with forced unit access (FUA) are durable.

The protocols of virtio-blk (virtio 1.3, 5.2), vhost-user-blk and ubd have no FUA flag: ``queue/fua`` of their disks is
0, and the kernel sends flushes instead. NBD has the flag, so these tests attach the members by the kernel's NBD driver
before they build the stack. After the cut the server boots with its usual virtio disks, which the same disk engine
serves.
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
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.pytest_plugin.fixtures import MEMBERS, CrashTestRunner, stack_of
from raidproof.run.run import Run
from raidproof.storage.array import disk_path
from raidproof.storage.filesystem import XfsSpec
from scenarios.durability import nbd_guest

PROGRAM = "/run/nbd_guest.py"
ATTACH_DEADLINE_S = 20.0
CHUNK = 128 * KIB
"""Chunk size in bytes: the optimal I/O size of NBD disks, of which the array's optimal I/O size must be a multiple."""
LEAST_SHARE = 0.2
"""Least share of FUA writes among all writes. Measured with RAID5 and XFS: 38 % on NBD disks, none on virtio disks."""


def pump(source: socket.socket, target: socket.socket) -> None:
    """Forward data from one socket to another until one side ends the connection; then close both."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            target.sendall(data)
    close(source)
    close(target)


def close(connection: socket.socket) -> None:
    """Close a socket, also if another thread is blocked in a call on it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def relay(listener: socket.socket, path: Path) -> Iterator[None]:
    """Forward each TCP connection of a listener to the NBD server behind a Unix socket of this host, in the body."""
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
def forced(current_run: Run) -> Iterator[None]:
    """Attach the members of the shared lab's server by the NBD driver, until the server boots again."""
    lab = current_run.lab
    if not isinstance(lab, NamespaceLab):
        raise RequirementMissing(
            "this run uses existing machines; this scenario attaches the disk engine's disks by NBD"
        )
    server = lab.server
    if not server.run(["modprobe", "nbd"]).ok:
        raise RequirementMissing(f"{server.name}: this kernel has no NBD driver")
    server.put(Path(nbd_guest.__file__).read_bytes(), PROGRAM)
    with closing(lab.listen()) as listener, relay(listener, lab.engine_socket):
        host, port = lab.callback_address(listener, server)
        for number, serial in enumerate(MEMBERS):
            device = f"nbd{number}"
            server.start_command(["python3", PROGRAM, host, str(port), serial, f"/dev/{device}"])
            # The kernel sets the size last (nbd_start_device in drivers/block/nbd.c), after the flag for FUA.
            size = f"/sys/block/{device}/size"
            attached = Deadline.after(ATTACH_DEADLINE_S)
            wait_until(lambda: server.get(size).strip() != "0", attached, f"{device} to be attached")  # noqa: B023
            server.succeed(["ln", "-sfn", f"/dev/{device}", disk_path(serial)])
            if server.get(f"/sys/block/{device}/queue/fua").strip() != "1":
                raise RequirementMissing(
                    f"{server.name}: /sys/block/{device}/queue/fua is 0: this NBD device does not support FUA"
                )
        yield
    # A server without its disks is unusable.
    current_run.discard_lab()


@pytest.mark.parametrize("policy", [CutPolicy.DROP, pytest.param(CutPolicy.TORN, marks=pytest.mark.exhaustive)])
@pytest.mark.usefixtures("forced")
def test_forced_writes_are_durable(cycle: CrashTestRunner, policy: CutPolicy) -> None:
    # By default mkfs.xfs makes each write to the log as large as a chunk, and the relay is slow.
    stack = stack_of(chunk_size=CHUNK, filesystem=XfsSpec(log_su=4 * KIB))
    ended = cycle(stack, policy=policy).must_keep_every_promise()
    disks = ended.record.disks.values()
    fua, writes = (sum(disk[what] for disk in disks) for what in ("fua", "writes"))
    step(f"{fua:,} of {writes:,} writes had the FUA flag ({fua / max(1, writes):.1%})")
    if fua < LEAST_SHARE * writes:
        raise ProductError(
            f"only {fua:,} of {writes:,} writes to the members had the FUA flag; expected at least {LEAST_SHARE:.0%}"
        )
