"""The nbdkit plugin: serves each member of a lab as an NBD export named by its serial.

Parameters: ``config``, the file written by `messages.save_disks`; ``control``, the path of the control socket to
make; ``log`` (optional), a write log to begin at once.
"""

import errno
import gc
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import nbdkit

from raidproof.core.errors import RigError
from raidproof.disk.connection import Connection, PowerLost
from raidproof.disk.control import ControlServer
from raidproof.disk.disk_fault import DriveError
from raidproof.disk.engine import Engine
from raidproof.disk.messages import load_disks

API_VERSION = 2
SECTOR = 512
PREFERRED = 4096
LARGEST = 32 << 20  # bytes: what NBD allows in one request

_parameters: dict[str, Path] = {}
_engine: Engine
_FUA: int = nbdkit.FLAG_FUA


def config(key: str, value: str) -> None:
    """Take a parameter from the command line."""
    if key not in {"config", "control", "log"}:
        raise RigError(f"unknown parameter {key!r}")
    _parameters[key] = Path(value)


def config_complete() -> None:
    """Check that no parameter is missing."""
    missing = {"config", "control"} - set(_parameters)
    if missing:
        raise RigError(f"missing parameter: {', '.join(sorted(missing))}")


def get_ready() -> None:
    """Create the engine with its disks."""
    global _engine  # noqa: PLW0603  nbdkit calls functions of the module
    disks = load_disks(_parameters["config"])
    _engine = Engine(disks.members, disks.controllers, disks.slow_motion)


def after_fork() -> None:
    """Begin to log and to listen, after nbdkit's fork, which ends all other threads."""
    if log := _parameters.get("log"):
        _engine.start_log(log)
    ControlServer(_engine, _parameters["control"]).start()
    # The engine makes no reference cycles, and scanning a long list of pending writes would stall every disk.
    gc.disable()


def thread_model() -> int:
    """Return that nbdkit may use several threads: a request that waits for a cut must not block other members."""
    return int(nbdkit.THREAD_MODEL_PARALLEL)


def list_exports(readonly: bool, is_tls: bool) -> Iterator[tuple[str, str]]:  # noqa: ARG001  nbdkit's signature
    """Return name and description of the exports: serial and cache mode of each member."""
    return ((drive.spec.serial, drive.spec.mode.value) for drive in _engine.drives)


def default_export(readonly: bool, is_tls: bool) -> str:  # noqa: ARG001  nbdkit's signature
    """Return the first member, for tools that cannot name an export."""
    return _engine.drives[0].spec.serial


def open(readonly: bool) -> Connection:  # noqa: A001, ARG001  nbdkit's name
    """Connect to the member that the client requests."""
    return _engine.connect(nbdkit.export_name() or _engine.drives[0].spec.serial)


def close(port: Connection) -> None:
    """Disconnect."""
    _engine.disconnect(port)


def get_size(port: Connection) -> int:
    """Return the size in bytes."""
    return port.size


def block_size(port: Connection) -> tuple[int, int, int]:  # noqa: ARG001  nbdkit's signature
    """Return the minimum, preferred and maximum size of a request, in bytes."""
    return SECTOR, PREFERRED, LARGEST


def is_rotational(port: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return that the device is not rotational."""
    return False


def can_write(port: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return that the device is writable."""
    return True


def can_flush(port: Connection) -> bool:
    """Return whether the disk has a cache to flush."""
    return not port.cacheless


def can_fua(port: Connection) -> int:
    """Return the support for FUA; qemu sends FUA only where flushing is supported, too."""
    return int(nbdkit.FUA_NONE if port.cacheless else nbdkit.FUA_NATIVE)


def can_trim(port: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return that discards are supported."""
    return True


def can_zero(port: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return that write-zeroes is supported."""
    return True


def can_fast_zero(port: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return that write-zeroes is faster than writing zeroes."""
    return True


def can_multi_conn(port: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return that a flush on one connection covers all connections: the cache belongs to the member."""
    return True


def _reporting(request: Callable[..., None]) -> Callable[..., None]:
    """Return a callback that tells nbdkit the error number of a request that fails."""

    @wraps(request)
    def callback(*arguments: Any) -> None:
        try:
            request(*arguments)
        except (PowerLost, DriveError) as error:
            nbdkit.set_error(error.errno or errno.EIO)
            raise

    return callback


@_reporting
def pread(port: Connection, buffer: memoryview, offset: int, flags: int) -> None:  # noqa: ARG001  nbdkit's signature
    """Read."""
    port.read(buffer, offset)


@_reporting
def pwrite(port: Connection, buffer: memoryview, offset: int, flags: int) -> None:
    """Write."""
    port.write(buffer, offset, bool(flags & _FUA))


@_reporting
def flush(port: Connection, flags: int) -> None:  # noqa: ARG001  nbdkit's signature
    """Flush."""
    port.flush()


@_reporting
def trim(port: Connection, count: int, offset: int, flags: int) -> None:
    """Discard."""
    port.discard(offset, count, bool(flags & _FUA))


@_reporting
def zero(port: Connection, count: int, offset: int, flags: int) -> None:
    """Write zeroes."""
    port.write_zeroes(offset, count, bool(flags & _FUA))
