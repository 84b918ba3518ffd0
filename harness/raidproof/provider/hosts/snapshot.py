"""The state of a machine before its use, saved on the machine and on this host, and its restoration."""

import io
import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import RaidproofError, RequestError, RigError
from raidproof.core.log import logger
from raidproof.guest import keeper

ROOT = "/var/lib/raidproof"
"""Folder on the machine."""
PREFIX = "snapshot."
DIRECTORIES = ("/srv/raidproof", "/mnt/raidproof")
"""Mount points of the layers."""
RUNTIME = "/run/raidproof"
"""Folder of the agents and their config."""
DEADLINE_S = 300.0
REMEDY = "./raidproof hosts restore INVENTORY"


class Remote(Protocol):
    """The part of a machine that is needed here: running a command as root."""

    @property
    def name(self) -> str:
        """The name of the machine in messages."""

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEADLINE_S
    ) -> Completed:
        """Run a command to its end, whatever its status."""


@dataclass(frozen=True)
class KeeperConfig:
    """What a run may change on a machine."""

    run: str
    role: Literal["server", "client"]
    disks: tuple[str, ...] = ()
    """Paths in /dev/disk/by-id; arrays on these disks belong to raidproof."""
    interface: str | None = None
    """Interface whose queues are changed, if any."""
    stop_nfs: bool = False
    """Whether the owner has agreed that the machine's own NFS server is stopped meanwhile."""
    directories: tuple[str, ...] = DIRECTORIES
    runtime: str = RUNTIME


def unrestored(machine: Remote) -> tuple[str, ...]:
    """Return the runs whose changes on a machine have not been undone."""
    # If the folder does not exist, find fails, and the result is empty.
    argv = ["find", ROOT, "-maxdepth", "1", "-type", "d", "-name", f"{PREFIX}*", "-not", "-name", "*.new"]
    listed = machine.run([*argv, "-printf", "%f\\n"])
    return tuple(sorted(name.removeprefix(PREFIX) for name in listed.stdout.split()))


def require_restored(machine: Remote) -> None:
    """Check that no earlier run has left a machine changed.

    Raises:
        RequestError: one has; with the command that restores the machine.
    """
    if runs := unrestored(machine):
        raise RequestError(f"{machine.name} has not been put back since run {', '.join(runs)}", remedy=REMEDY)


def take(machine: Remote, config: KeeperConfig, folder: Path) -> None:
    """Save all that a run may change, before its first change; the copy goes to ``folder / run``.

    Raises:
        RequestError: an earlier run was not undone, or the interface has settings that could not be restored.
        RigError: the state cannot be saved.
    """
    brought = f"{ROOT}/gone.keeper.{config.run}"
    bring(machine, brought)
    answer = ask(machine, brought, "take", config.run, stdin=json.dumps(asdict(config)))
    if runs := answer.get("unrestored"):
        raise RequestError(
            f"{machine.name} has not been put back since {', '.join(f'run {run}' for run in runs)}", remedy=REMEDY
        )
    keep(copy_of(folder, config.run, machine.name), answer["snapshot"])
    set_up = [one for one in (answer["snapshot"]["link"] or {}).get("qdiscs", ()) if one["handle"] != "0:"]
    if set_up:
        ask(machine, place(config.run), "restore", config.run)
        copy_of(folder, config.run, machine.name).unlink()
        kinds = ", ".join(f"{one['kind']} {one['handle']}" for one in set_up)
        raise RequestError(
            f"{machine.name} has qdiscs of its own on {config.interface}, which link conditions would end: {kinds}",
            remedy="request no link conditions, or remove these qdiscs from the interface",
        )


def settle(machine: Remote, run: str) -> None:
    """Stop the machine's own NFS server, after `take` and before the first layer is activated.

    Raises:
        RequestError: the machine serves NFS, and its owner has not agreed to stop that.
        RigError: its server does not stop.
    """
    answer = ask(machine, place(run), "settle", run)
    if "serving" in answer:
        daemons = ", ".join(answer["serving"]) or "nfsd"
        raise RequestError(
            f"{machine.name} is an NFS server already ({daemons}), which would have to stop for the time of the run",
            remedy="if it is not needed meanwhile, write stop_nfs = true into the inventory",
        )
    if answer["failed"]:
        raise RigError(f"{machine.name}: its own NFS server does not stop: {'; '.join(answer['failed'])}")


def place(run: str) -> str:
    """Return the folder of a run's snapshot on the machine."""
    return f"{ROOT}/{PREFIX}{run}"


def bring(machine: Remote, where: str) -> None:
    """Copy the keeper into a folder of a machine.

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
    """Run a command of the keeper, and return its answer.

    Raises:
        CommandFailed: the command failed.
        RigError: its answer is not whole.
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
    """Return the user's folder on this host with the copies of snapshots, which are kept until a restore succeeds."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "raidproof"


def copy_of(folder: Path, run: str, machine: str) -> Path:
    """Return the path of the copy of a machine's snapshot on this host."""
    return folder / run / f"{machine}.json"


def keep(path: Path, content: object) -> None:
    """Write a file durably (fsync), readable by its owner only."""
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


@dataclass(frozen=True)
class Restored:
    """The result of restoring one machine."""

    machine: str
    run: str
    failed: tuple[str, ...] = ()
    """Steps that failed."""
    differences: tuple[str, ...] = ()
    """Differences from the saved state."""
    replaced: dict[str, Any] = field(default_factory=dict)
    """Configuration that another program changed since, by path, with its replaced content; no layer writes it."""

    @property
    def clean(self) -> bool:
        """Whether nothing differs from the saved state; only then the snapshot is removed."""
        return not self.failed and not self.differences


def restore(machine: Remote, run: str, folder: Path) -> Restored:
    """Restore one machine. Idempotent: repeat an interrupted restore.

    Raises:
        RigError: the machine does not answer, or cannot run the keeper that lies beside its snapshot.
    """
    answer = ask(machine, place(run), "restore", run)
    replaced = {path: entry for path, entry in answer["replaced"].items() if path.startswith("/etc/")}
    if replaced:
        keep(copy_of(folder, run, machine.name).with_suffix(".replaced.json"), replaced)
    restored = Restored(machine.name, run, tuple(answer["failed"]), tuple(answer["differences"]), replaced)
    if restored.clean:
        copy = copy_of(folder, run, machine.name)
        copy.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: copies of other machines, or replaced files
            copy.parent.rmdir()
    return restored


def restore_from_copy(machine: Remote, run: str, folder: Path) -> Restored:
    """Restore a machine that has lost its own snapshot, from the copy on this host. Raises as `restore`.

    Raises:
        RequestError: there is no copy, or the machine still has its own.
    """
    path = copy_of(folder, run, machine.name)
    if run in unrestored(machine):
        raise RequestError(f"{machine.name} has its own snapshot of run {run}", remedy=REMEDY)
    try:
        snapshot = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RequestError(f"no copy of {machine.name}'s snapshot of run {run}: {error}") from error
    bring(machine, place(run))
    written = machine.run(["dd", f"of={place(run)}/snapshot.json", "status=none"], stdin=json.dumps(snapshot))
    if not written.ok:
        raise RigError(f"{machine.name}: the snapshot cannot be written: {written.stderr.strip()}")
    return restore(machine, run, folder)


def restore_all(machines: Sequence[Remote], folder: Path) -> list[Restored]:
    """Restore every machine that any run has left changed, in reverse order, so clients before their server.

    Raises:
        RigError: a machine could not be restored; lists what is left, after all have been tried.
    """
    restored: list[Restored] = []
    failed: list[str] = []
    left: list[tuple[Remote, str]] = []
    for machine in machines:
        try:
            left += [(machine, run) for run in unrestored(machine)]
        except RaidproofError as error:
            failed.append(f"{machine.name}: {error}")
    if failed := [*failed, *_put_back(left, folder, restored)]:
        raise _left(failed)
    return restored


def _put_back(used: Sequence[tuple[Remote, str]], folder: Path, restored: list[Restored]) -> list[str]:
    """Try to restore all machines, the last one first; return what is left to do."""
    failed: list[str] = []
    for machine, run in reversed(used):
        try:
            restored.append(restore(machine, run, folder))
            failed += complaints(restored[-1])
        except RaidproofError as error:
            failed.append(f"{machine.name}: {error}")
    return failed


def _left(failed: Sequence[str]) -> RigError:
    return RigError("not all is as it was found:\n" + "\n".join(failed), remedy=f"see to it, and repeat: {REMEDY}")


def complaints(restored: Restored) -> list[str]:
    """Return what is left to do on one machine."""
    return [f"{restored.machine}: {said}" for said in (*restored.failed, *restored.differences)]


@contextmanager
def left_as_found(kept: Sequence[tuple[Remote, KeeperConfig]], folder: Path) -> Iterator[None]:
    """Save machines, run the body, and restore them, whatever happens; the server comes first in ``kept``.

    Raises:
        RequestError: a machine has not been restored since an earlier run, or has an NFS server that may not stop.
        RigError: a machine could not be restored; names the command that tries it again.
    """
    used: list[tuple[Remote, str]] = []
    try:
        for machine, config in kept:
            take(machine, config, folder)
            used.append((machine, config.run))
            settle(machine, config.run)
        yield
    except BaseException as error:
        if failed := _put_back(used, folder, []):
            # The error of the body is raised; add this one to it, so that it is not lost.
            logger.error("%s", _left(failed))
            error.add_note(str(_left(failed)))
        raise
    if failed := _put_back(used, folder, []):
        raise _left(failed)
