"""What a machine that exists is like before it is used: saved on the machine itself, and once more here."""

import io
import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.guest import keeper

ROOT = "/var/lib/raidproof"
"""On the machine."""
PREFIX = "snapshot."
DIRECTORIES = ("/srv/raidproof", "/mnt/raidproof")
"""Where the layers mount."""
RUNTIME = "/run/raidproof"
"""Where agents and their orders are."""
DEADLINE_S = 300.0
REMEDY = "./raidproof hosts restore INVENTORY"


class Remote(Protocol):
    """What is needed of a machine: to run a command on it, as root."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEADLINE_S
    ) -> Completed:
        """Run a command to its end, whatever its status."""


@dataclass(frozen=True)
class Orders:
    """What a run may change on a machine."""

    run: str
    role: Literal["server", "client"]
    disks: tuple[str, ...] = ()
    """Paths in /dev/disk/by-id: what is made of them is ours."""
    interface: str | None = None
    """Whose queues are changed, if any are."""
    stop_nfs: bool = False
    """Whether the owner has agreed that the machine's own NFS server is stopped meanwhile."""
    directories: tuple[str, ...] = DIRECTORIES
    runtime: str = RUNTIME


def unrestored(machine: Remote) -> tuple[str, ...]:
    """Return the runs that have not put back on a machine what they changed."""
    # Where there is no such folder, find says so, and that is an answer too.
    argv = ["find", ROOT, "-maxdepth", "1", "-type", "d", "-name", f"{PREFIX}*", "-not", "-name", "*.new"]
    listed = machine.run([*argv, "-printf", "%f\\n"])
    return tuple(sorted(name.removeprefix(PREFIX) for name in listed.stdout.split()))


def require_restored(machine: Remote) -> None:
    """Make sure that no earlier run has left a machine changed.

    Raises:
        RequestError: one has; says how it is put back.
    """
    if runs := unrestored(machine):
        raise RequestError(f"{machine.name} has not been put back since run {', '.join(runs)}", remedy=REMEDY)


def take(machine: Remote, orders: Orders, folder: Path) -> None:
    """Save all that a run may change, before its first change; the copy goes to ``folder / run``.

    Raises:
        RequestError: an earlier run has not been put back, or what is set on the interface could not be put back.
        RigError: it cannot be saved.
    """
    brought = f"{ROOT}/gone.keeper.{orders.run}"
    bring(machine, brought)
    answer = ask(machine, brought, "take", orders.run, stdin=json.dumps(asdict(orders)))
    if runs := answer.get("unrestored"):
        raise RequestError(
            f"{machine.name} has not been put back since {', '.join(f'run {run}' for run in runs)}", remedy=REMEDY
        )
    keep(copy_of(folder, orders.run, machine.name), answer["snapshot"])
    set_up = [one for one in (answer["snapshot"]["link"] or {}).get("qdiscs", ()) if one["handle"] != "0:"]
    if set_up:
        ask(machine, place(orders.run), "restore", orders.run)
        copy_of(folder, orders.run, machine.name).unlink()
        kinds = ", ".join(f"{one['kind']} {one['handle']}" for one in set_up)
        raise RequestError(
            f"{machine.name} has queues of its own on {orders.interface}, which link conditions would end: {kinds}",
            remedy="ask for no link conditions, or for another interface",
        )


def settle(machine: Remote, run: str) -> None:
    """Make room for our NFS server, after `take` and before the first layer is activated.

    Raises:
        RequestError: the machine serves NFS, and its owner has not agreed that this stops.
        RigError: what runs there does not stop.
    """
    answer = ask(machine, place(run), "settle", run)
    if "serving" in answer:
        daemons = ", ".join(answer["serving"]) or "nfsd"
        raise RequestError(
            f"{machine.name} is an NFS server already ({daemons}), which would have to stop for the time of the run",
            remedy="if nobody needs it meanwhile, write stop_nfs = true into the inventory",
        )
    if answer["failed"]:
        raise RigError(f"{machine.name}: its own NFS server does not stop: {'; '.join(answer['failed'])}")


def place(run: str) -> str:
    """Return where a run's snapshot is on the machine."""
    return f"{ROOT}/{PREFIX}{run}"


def bring(machine: Remote, where: str) -> None:
    """Put the keeper into a folder of a machine.

    Raises:
        CommandFailed: it cannot be written there.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(Path(keeper.__file__).parent.glob("*.py")):
            entry = tarfile.TarInfo(f"keeper/{path.name}")
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)
    for argv, stdin in (
        (["mkdir", "--parents", where], None),
        (["tar", "--extract", "--no-same-owner", "--directory", where], content.getvalue()),
    ):
        ended = machine.run(argv, stdin=stdin)
        if not ended.ok:
            raise CommandFailed(ended)


def ask(machine: Remote, where: str, command: str, run: str, stdin: str | None = None) -> dict[str, Any]:
    """Let the keeper do something, and return what it says.

    Raises:
        CommandFailed: it could not.
        RigError: what it says is not whole.
    """
    # In its folder, because python3 -m looks there first.
    argv = ["env", f"--chdir={where}", "python3", "-B", "-s", "-m", "keeper", command, run]
    ended = machine.run(argv, stdin=stdin, deadline_s=DEADLINE_S)
    if not ended.ok:
        raise CommandFailed(ended)
    try:
        answer: dict[str, Any] = json.loads(ended.stdout)
    except ValueError as error:
        raise RigError(f"{machine.name}: the keeper's answer is not whole: {ended.stdout[-200:]!r}") from error
    return answer


def copies() -> Path:
    """Return the folder of this host, a user's own, in which copies are kept until a machine is as it was."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "raidproof"


def copy_of(folder: Path, run: str, machine: str) -> Path:
    """Return where the copy of a machine's snapshot is on this host."""
    return folder / run / f"{machine}.json"


def keep(path: Path, content: object) -> None:
    """Write a file that survives a power cut of this host; only its owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
