"""Snapshots of existing machines: saved before a run changes a machine, on the machine and on this host, and restored.

A snapshot has the machine's configuration and runtime state, not the content of disks. The program that saves and
restores is `raidproof.guest.keeper`, called the keeper; it runs on the machine.
"""

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
"""The folder on a machine for snapshots."""
PREFIX = "snapshot."
"""Start of the name of a snapshot's folder; the name of the run follows."""
DIRECTORIES = ("/srv/raidproof", "/mnt/raidproof")
"""The folders on a machine in which raidproof mounts file systems."""
RUNTIME = "/run/raidproof"
"""The folder on a machine for raidproof's agents and their configuration."""
DEADLINE_S = 300.0
UNNAMED = "INVENTORY"
"""Stands for the path of the inventory in the command of a remedy, where the path is unknown."""


class Remote(Protocol):
    """The interface of a machine that this module uses; commands run as root."""

    @property
    def name(self) -> str:
        """The name of the machine in messages."""

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEADLINE_S
    ) -> Completed:
        """Run a command, and return its output and its status, which may be a failure."""


@dataclass(frozen=True)
class KeeperConfig:
    """What a run may change on a machine; `raidproof.guest.keeper` reads these fields as JSON."""

    run: str
    """The name of the run, which is part of the name of the snapshot's folder."""
    role: Literal["server", "client"]
    disks: tuple[str, ...] = ()
    """Paths in /dev/disk/by-id; the run may create arrays on these disks."""
    interface: str | None = None
    """The network interface whose queues the run changes; None: the run changes no queues."""
    stop_nfs: bool = False
    """Whether the inventory permits that raidproof stops the machine's own NFS server during the run."""
    directories: tuple[str, ...] = DIRECTORIES
    """The folders in which the run mounts file systems."""
    runtime: str = RUNTIME
    """The folder of the run's agents."""


def restore_command(inventory: str) -> str:
    """Return the shell command that restores the machines of an inventory, for messages; ``inventory`` is its path."""
    return f"./raidproof hosts restore {inventory}"


def unrestored(machine: Remote) -> tuple[str, ...]:
    """Return the names of the runs whose snapshots are on a machine, because the machine has not been restored."""
    # Without the folder, find fails and prints nothing: there is no snapshot.
    argv = ["find", ROOT, "-maxdepth", "1", "-type", "d", "-name", f"{PREFIX}*", "-not", "-name", "*.new"]
    listed = machine.run([*argv, "-printf", "%f\\n"])
    return tuple(sorted(name.removeprefix(PREFIX) for name in listed.stdout.split()))


def require_restored(machine: Remote, inventory: str = UNNAMED) -> None:
    """Check that a machine has been restored after each earlier run. The remedy names the file ``inventory``.

    Raises:
        RequestError: the machine has a snapshot of an earlier run.
    """
    if runs := unrestored(machine):
        raise _not_restored(machine, runs, inventory)


def _not_restored(machine: Remote, runs: Sequence[str], inventory: str) -> RequestError:
    return RequestError(
        f"{machine.name} has not been restored since run {', '.join(runs)}", remedy=restore_command(inventory)
    )


def take(machine: Remote, config: KeeperConfig, folder: Path, inventory: str = UNNAMED) -> None:
    """Save all that a run may change on a machine, before the first change; store a copy in ``folder / run``.

    Raises:
        RequestError: the machine has not been restored after an earlier run; or the network interface has queueing
            disciplines that raidproof could not restore.
        RigError: the state cannot be saved.
    """
    brought = f"{ROOT}/gone.keeper.{config.run}"
    bring(machine, brought)
    answer = ask(machine, brought, "take", config.run, stdin=json.dumps(asdict(config)))
    if runs := answer.get("unrestored"):
        raise _not_restored(machine, runs, inventory)
    keep(copy_of(folder, config.run, machine.name), answer["snapshot"])
    set_up = [one for one in (answer["snapshot"]["link"] or {}).get("qdiscs", ()) if one["handle"] != "0:"]
    if set_up:
        ask(machine, place(config.run), "restore", config.run)
        copy_of(folder, config.run, machine.name).unlink()
        kinds = ", ".join(f"{one['kind']} {one['handle']}" for one in set_up)
        raise RequestError(
            f"{machine.name} has qdiscs of its own on {config.interface}, which link conditions would remove: {kinds}",
            remedy="request no link conditions (rate, delay, loss), or remove these qdiscs from the interface",
        )


def settle(machine: Remote, run: str) -> None:
    """Stop the machine's own NFS server, after `take` and before the run changes the machine.

    Raises:
        RequestError: the machine runs an NFS server, and the inventory does not permit raidproof to stop it.
        RigError: the NFS server does not stop.
    """
    answer = ask(machine, place(run), "settle", run)
    if "serving" in answer:
        daemons = ", ".join(answer["serving"]) or "nfsd"
        raise RequestError(
            f"{machine.name} is an NFS server already ({daemons}), which raidproof would have to stop during the run",
            remedy="if this NFS server is not needed during the run, write stop_nfs = true into the inventory",
        )
    if answer["failed"]:
        raise RigError(f"{machine.name}: its own NFS server does not stop: {'; '.join(answer['failed'])}")


def place(run: str) -> str:
    """Return the path of the folder of a run's snapshot on a machine."""
    return f"{ROOT}/{PREFIX}{run}"


def bring(machine: Remote, where: str) -> None:
    """Copy the program `raidproof.guest.keeper` into the folder ``where`` of a machine; create the folder if needed.

    Raises:
        CommandFailed: the machine cannot write into the folder.
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
    """Run the program `raidproof.guest.keeper` in the folder ``where`` of a machine, and return its output.

    ``command`` is ``take``, ``settle`` or ``restore``; ``run`` is the name of the run.

    Raises:
        CommandFailed: the program failed.
        RigError: the output is not JSON, for instance because it is truncated.
    """
    # With the working directory ``where``, in which python3 -m looks for the package first.
    argv = ["env", f"--chdir={where}", "python3", "-B", "-s", "-m", "keeper", command, run]
    ended = machine.run(argv, stdin=stdin, deadline_s=DEADLINE_S)
    if not ended.ok:
        raise CommandFailed(ended)
    try:
        answer: dict[str, Any] = json.loads(ended.stdout)
    except ValueError as error:
        raise RigError(
            f"{machine.name}: the output of the program that saves and restores the machine (keeper {command}) is not "
            f"JSON; it ends with {ended.stdout[-200:]!r}"
        ) from error
    return answer


def copies() -> Path:
    """Return the folder on this host with copies of snapshots; a copy is removed when its machine is restored."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "raidproof"


def copy_of(folder: Path, run: str, machine: str) -> Path:
    """Return the path of the copy of a machine's snapshot on this host."""
    return folder / run / f"{machine}.json"


def keep(path: Path, content: object) -> None:
    """Write ``content`` as JSON into a file that only its owner can read, and make the file durable (fsync)."""
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
    """The name of the machine."""
    run: str
    """The name of the run whose snapshot was restored."""
    failed: tuple[str, ...] = ()
    """The steps of the restore that failed, each with the reason."""
    differences: tuple[str, ...] = ()
    """What still differs from the snapshot, such as ``/etc/fstab: other content``."""
    replaced: dict[str, Any] = field(default_factory=dict)
    """The files in /etc that another program or user changed during the run: the changed content, by path."""

    @property
    def clean(self) -> bool:
        """Whether no step failed and nothing differs from the snapshot; only then the snapshot is removed."""
        return not self.failed and not self.differences


def restore(machine: Remote, run: str, folder: Path) -> Restored:
    """Restore one machine from its snapshot of a run. An interrupted restore can be repeated.

    ``folder`` has the copies of snapshots on this host.

    Raises:
        RigError: the machine does not answer, or `raidproof.guest.keeper` in the snapshot's folder fails.
    """
    answer = ask(machine, place(run), "restore", run)
    replaced = {path: entry for path, entry in answer["replaced"].items() if path.startswith("/etc/")}
    if replaced:
        keep(copy_of(folder, run, machine.name).with_suffix(".replaced.json"), replaced)
    restored = Restored(machine.name, run, tuple(answer["failed"]), tuple(answer["differences"]), replaced)
    if restored.clean:
        copy = copy_of(folder, run, machine.name)
        copy.unlink(missing_ok=True)
        with suppress(OSError):  # the folder still has copies of other machines, or replaced files
            copy.parent.rmdir()
    return restored


def restore_all(machines: Sequence[Remote], folder: Path, inventory: str = UNNAMED) -> list[Restored]:
    """Restore each machine that has snapshots, the last machine first, so clients before their server.

    ``folder`` has the copies of snapshots on this host; ``inventory`` is the path of the inventory, for the remedy.

    Raises:
        RigError: a machine could not be restored. All machines have been tried; the message lists what failed.
    """
    restored: list[Restored] = []
    failed: list[str] = []
    left: list[tuple[Remote, str]] = []
    for machine in machines:
        try:
            left += [(machine, run) for run in unrestored(machine)]
        except RaidproofError as error:
            failed.append(f"{machine.name}: {error}")
    if failed := [*failed, *_restore_each(left, folder, restored)]:
        raise _incomplete(failed, inventory)
    return restored


def _restore_each(used: Sequence[tuple[Remote, str]], folder: Path, restored: list[Restored]) -> list[str]:
    """Try to restore all machines, the last first; add the results to ``restored``; return messages about failures."""
    failed: list[str] = []
    for machine, run in reversed(used):
        try:
            restored.append(restore(machine, run, folder))
            failed += complaints(restored[-1])
        except RaidproofError as error:
            failed.append(f"{machine.name}: {error}")
    return failed


def _incomplete(failed: Sequence[str], inventory: str) -> RigError:
    return RigError(
        "machines differ from their state before the run:\n" + "\n".join(failed),
        remedy=f"remove the causes, and repeat: {restore_command(inventory)}",
    )


def complaints(restored: Restored) -> list[str]:
    """Return messages about the failed steps and the remaining differences of one machine."""
    return [f"{restored.machine}: {what}" for what in (*restored.failed, *restored.differences)]


@contextmanager
def left_as_found(
    kept: Sequence[tuple[Remote, KeeperConfig]], folder: Path, inventory: str = UNNAMED
) -> Iterator[None]:
    """Save the state of machines, run the body of the with statement, and restore the machines, even after a failure.

    ``kept`` has the machines, the server first. ``folder`` gets the copies of snapshots on this host; ``inventory``
    is the path of the inventory, for remedies.

    Raises:
        RequestError: a machine has not been restored after an earlier run, or runs an NFS server that raidproof may
            not stop.
        RigError: a machine could not be restored; the remedy is the command that restores it.
    """
    used: list[tuple[Remote, str]] = []
    try:
        for machine, config in kept:
            take(machine, config, folder, inventory)
            used.append((machine, config.run))
            settle(machine, config.run)
        yield
    except BaseException as error:
        if failed := _restore_each(used, folder, []):
            # The body's error is raised, so this one becomes a note of it.
            logger.error("%s", _incomplete(failed, inventory))
            error.add_note(str(_incomplete(failed, inventory)))
        raise
    if failed := _restore_each(used, folder, []):
        raise _incomplete(failed, inventory)
