"""Command lines of nbdkit and qemu-storage-daemon, the two programs between a guest and its member disks."""

from collections.abc import Mapping
from pathlib import Path

import raidproof
from raidproof.core.errors import RequestError

_PACKAGES = Path(raidproof.__file__).parent.parent
_PLUGIN = Path(__file__).with_name("plugin.py")

# By default glibc maps and unmaps a large buffer at each use, and a page fault costs more than copying the page.
_KEEP_MEMORY = ("MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=67108864", "MALLOC_TRIM_THRESHOLD_=268435456")

LONGEST_SOCKET_PATH = 107
"""Longest path in bytes of a unix socket (unix(7))."""


def nbdkit_command(
    *, socket: Path, config: Path, control: Path, log: Path | None = None, threads: int = 1
) -> list[str]:
    """Return the nbdkit command that serves the member disks.

    nbdkit stays in the foreground, and ends with the thread that started it. ``socket``: path of the NBD socket.
    ``config``: the file that `raidproof.disk.messages.save_disks` wrote. ``control``: path of the socket for
    `EngineClient`. ``log``: path of a write log that begins at once. ``threads``: number of concurrent requests for
    each connection; one is fastest, because Python executes one thread at a time.

    Raises:
        RequestError: the path of a socket is too long.
    """
    command = [
        "env",
        f"PYTHONPATH={_PACKAGES}",
        *_KEEP_MEMORY,
        "nbdkit",
        "--foreground",
        "--exit-with-parent",
        f"--unix={_checked(socket)}",
        f"--threads={threads}",
        "python",
        str(_PLUGIN),
        f"config={config}",
        f"control={_checked(control)}",
    ]
    return [*command, f"log={log}"] if log is not None else command


def storage_daemon_command(*, nbd_socket: Path, exports: Mapping[str, Path]) -> list[str]:
    """Return the qemu-storage-daemon command that serves members to a guest as vhost-user-blk devices.

    The kernel kills the daemon when the thread that started it ends. ``nbd_socket``: path of nbdkit's NBD socket.
    ``exports``: for each member's serial number the path of the vhost-user-blk socket, which the daemon creates.

    Raises:
        RequestError: the path of a socket is too long, or ``exports`` is empty.
    """
    if not exports:
        raise RequestError("a storage daemon needs at least one member to export, got none")
    command = ["setpriv", "--pdeathsig", "KILL", "qemu-storage-daemon"]
    for number, (serial, path) in enumerate(exports.items()):
        node = f"member{number}"
        command += [
            "--blockdev",
            qemu_options(
                ("driver", "nbd"),
                ("node-name", node),
                ("server.type", "unix"),
                ("server.path", _checked(nbd_socket)),
                ("export", serial),
                ("discard", "unmap"),
            ),
            "--export",
            qemu_options(
                ("type", "vhost-user-blk"),
                ("id", f"export{number}"),
                ("node-name", node),
                ("addr.type", "unix"),
                ("addr.path", _checked(path)),
                ("writable", "on"),
                ("logical-block-size", "512"),
                ("num-queues", "1"),
            ),
        ]
    return command


def qemu_options(*pairs: tuple[str, str]) -> str:
    """Return options in the syntax of QEMU's command line, with each comma inside a value doubled."""
    return ",".join(f"{key}={value.replace(',', ',,')}" for key, value in pairs)


def _checked(path: Path) -> str:
    text = str(path)
    if len(text.encode()) > LONGEST_SOCKET_PATH:
        raise RequestError(
            f"the path of the socket {text} has {len(text.encode())} bytes, the limit is {LONGEST_SOCKET_PATH}",
            remedy="use a state folder with a shorter path",
        )
    return text
