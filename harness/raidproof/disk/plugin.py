"""The nbdkit plugin: serves each member disk of a lab as an NBD export, whose name is the member's serial number.

Parameters: ``config``, the file that `messages.save_disks` wrote; ``control``, the path of the control socket, which
the plugin creates; ``log`` (optional), the path of a write log that begins at once. The functions without underscore
are callbacks of nbdkit: nbdkit-python-plugin(3).
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
LARGEST = 32 << 20  # bytes: the largest request that the NBD protocol allows

_parameters: dict[str, Path] = {}
_engine: Engine
_FUA: int = nbdkit.FLAG_FUA


def config(key: str, value: str) -> None:
    """Store a parameter of nbdkit's command line."""
    if key not in {"config", "control", "log"}:
        raise RigError(f"the disk engine's nbdkit plugin has no parameter {key!r}")
    _parameters[key] = Path(value)


def config_complete() -> None:
    """Check that the command line has all required parameters."""
    missing = {"config", "control"} - set(_parameters)
    if missing:
        raise RigError(f"the disk engine's nbdkit plugin lacks the parameter {', '.join(sorted(missing))}")


def get_ready() -> None:
    """Create the disk engine from the configuration file."""
    global _engine  # noqa: PLW0603  nbdkit calls functions of the module
    disks = load_disks(_parameters["config"])
    _engine = Engine(disks.members, disks.controllers, disks.slow_motion)


def after_fork() -> None:
    """Begin the write log and start the control server: threads from before the fork would not survive."""
    if log := _parameters.get("log"):
        _engine.start_log(log)
    ControlServer(_engine, _parameters["control"]).start()
    # The engine creates no reference cycles, and a garbage collection over many pending writes would stall every disk.
    gc.disable()


def thread_model() -> int:
    """Return PARALLEL: requests run in several threads, so that a request that waits does not block other members."""
    return int(nbdkit.THREAD_MODEL_PARALLEL)


def list_exports(readonly: bool, is_tls: bool) -> Iterator[tuple[str, str]]:  # noqa: ARG001  nbdkit's signature
    """Return name and description of each export: serial number and cache mode of a member."""
    return ((drive.spec.serial, drive.spec.mode.value) for drive in _engine.drives)


def default_export(readonly: bool, is_tls: bool) -> str:  # noqa: ARG001  nbdkit's signature
    """Return the serial number of the first member, for clients that name no export."""
    return _engine.drives[0].spec.serial


def open(readonly: bool) -> Connection:  # noqa: A001, ARG001  nbdkit's name
    """Return a new connection to the member whose export the client names."""
    return _engine.connect(nbdkit.export_name() or _engine.drives[0].spec.serial)


def close(connection: Connection) -> None:
    """Remove a connection that its client has closed."""
    _engine.disconnect(connection)


def get_size(connection: Connection) -> int:
    """Return the size of the export in bytes."""
    return connection.size


def block_size(connection: Connection) -> tuple[int, int, int]:  # noqa: ARG001  nbdkit's signature
    """Return the minimum, preferred and maximum size of a request, in bytes."""
    return SECTOR, PREFERRED, LARGEST


def is_rotational(connection: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return False: the guest shall treat the disk as non-rotational."""
    return False


def can_write(connection: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return True: each export is writable."""
    return True


def can_flush(connection: Connection) -> bool:
    """Return whether the export supports FLUSH: whether the disk has a write cache."""
    return not connection.cacheless


def can_fua(connection: Connection) -> int:
    """Return the export's support for FUA: none without a write cache, because qemu then sends no FUA either."""
    return int(nbdkit.FUA_NONE if connection.cacheless else nbdkit.FUA_NATIVE)


def can_trim(connection: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return True: each export supports discards."""
    return True


def can_zero(connection: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return True: each export supports write-zeroes."""
    return True


def can_fast_zero(connection: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return True: a write-zeroes request is faster than a write of zeroes."""
    return True


def can_multi_conn(connection: Connection) -> bool:  # noqa: ARG001  nbdkit's signature
    """Return True: all connections to a member share its cache, so that a flush covers writes of each connection."""
    return True


def _reporting(request: Callable[..., None]) -> Callable[..., None]:
    """Wrap a callback so that nbdkit gets the error number of a failed request."""

    @wraps(request)
    def callback(*arguments: Any) -> None:
        try:
            request(*arguments)
        except (PowerLost, DriveError) as error:
            nbdkit.set_error(error.errno or errno.EIO)
            raise

    return callback


@_reporting
def pread(connection: Connection, buffer: memoryview, offset: int, flags: int) -> None:  # noqa: ARG001  by nbdkit
    """Execute a read."""
    connection.read(buffer, offset)


@_reporting
def pwrite(connection: Connection, buffer: memoryview, offset: int, flags: int) -> None:
    """Execute a write."""
    connection.write(buffer, offset, bool(flags & _FUA))


@_reporting
def flush(connection: Connection, flags: int) -> None:  # noqa: ARG001  nbdkit's signature
    """Execute a flush."""
    connection.flush()


@_reporting
def trim(connection: Connection, count: int, offset: int, flags: int) -> None:
    """Execute a discard."""
    connection.discard(offset, count, bool(flags & _FUA))


@_reporting
def zero(connection: Connection, count: int, offset: int, flags: int) -> None:
    """Execute a write-zeroes request."""
    connection.write_zeroes(offset, count, bool(flags & _FUA))
