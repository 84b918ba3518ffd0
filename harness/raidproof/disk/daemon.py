"""Command lines of the two daemons between a guest and its member disks."""

from collections.abc import Mapping
from pathlib import Path

import raidproof
from raidproof.core.errors import RequestError

_PACKAGES = Path(raidproof.__file__).parent.parent
_PLUGIN = Path(__file__).with_name("plugin.py")

# glibc maps and unmaps large buffers at each use, and a page fault costs more than copying the page.
_KEEP_MEMORY = ("MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=67108864", "MALLOC_TRIM_THRESHOLD_=268435456")

LONGEST_SOCKET_PATH = 107
"""Limit in bytes of a unix socket's path in the kernel (unix(7))."""


def nbdkit_command(
    *, socket: Path, config: Path, control: Path, log: Path | None = None, threads: int = 1
) -> list[str]:
    """Return the command that serves the members in the foreground, and ends when the thread that started it does.

    ``config`` is written by `raidproof.disk.messages.save_disks`; ``control`` is the socket for `EngineClient`;
    ``log`` begins a write log at once. ``threads`` is nbdkit's number of concurrent requests per connection: Python
    executes one at a time anyway, and one thread needs no switching.

    Raises:
        RequestError: a socket's path is too long.
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
    """Return the command that serves members (serial -> socket to make) to a guest as vhost-user-blk devices.

    It is killed when the thread that started it ends.

    Raises:
        RequestError: a socket's path is too long, or there is nothing to export.
    """
    if not exports:
        raise RequestError("a storage daemon needs at least one member")
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
    """Join options in QEMU's syntax: a comma inside a value is doubled."""
    return ",".join(f"{key}={value.replace(',', ',,')}" for key, value in pairs)


def _checked(path: Path) -> str:
    text = str(path)
    if len(text.encode()) > LONGEST_SOCKET_PATH:
        raise RequestError(
            f"the path of a socket may have {LONGEST_SOCKET_PATH} bytes, this has {len(text.encode())}: {text}",
            remedy="use a shorter state folder",
        )
    return text
