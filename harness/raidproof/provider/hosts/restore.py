"""Machines that exist are made again what they were: at the end of a run, or by hand after a crash."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raidproof.core.errors import RaidproofError, RequestError, RigError
from raidproof.core.log import logger
from raidproof.provider.hosts.snapshot import (
    REMEDY,
    Orders,
    Remote,
    ask,
    bring,
    copy_of,
    keep,
    place,
    settle,
    take,
    unrestored,
)


@dataclass(frozen=True)
class Restored:
    """What came of putting one machine back."""

    machine: str
    run: str
    failed: tuple[str, ...] = ()
    """What could not be done."""
    differences: tuple[str, ...] = ()
    """What is not as it was found."""
    replaced: dict[str, Any] = field(default_factory=dict)
    """Configuration that somebody had changed since, by path, as it was: no layer of ours writes it."""

    @property
    def clean(self) -> bool:
        """Whether all is as it was found; only then is the snapshot gone."""
        return not self.failed and not self.differences


def restore(machine: Remote, run: str, folder: Path) -> Restored:
    """Put one machine back. What was done before does no harm, so an interrupted restore is just repeated.

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
        with suppress(OSError):  # other machines' copies, or what was replaced
            copy.parent.rmdir()
    return restored


def restore_from_copy(machine: Remote, run: str, folder: Path) -> Restored:
    """Put back a machine that has lost its own snapshot, by the copy on this host. Raises as `restore`.

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
    """Put back every machine that any run has left changed: the last of them first, so clients before their server.

    Raises:
        RigError: one of them could not be; says what is left, after all have been tried.
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
    """Try all, the last one first; return what is left to do."""
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
    """Say what is left to do on one machine."""
    return [f"{restored.machine}: {said}" for said in (*restored.failed, *restored.differences)]


@contextmanager
def left_as_found(kept: Sequence[tuple[Remote, Orders]], folder: Path) -> Iterator[None]:
    """Save machines, let the body use them, and put them back, whatever happens; the server comes first in ``kept``.

    Raises:
        RequestError: one has not been put back since an earlier run, or has a server of its own that may not stop.
        RigError: one could not be put back; names the command that tries it again.
    """
    used: list[tuple[Remote, str]] = []
    try:
        for machine, orders in kept:
            take(machine, orders, folder)
            used.append((machine, orders.run))
            settle(machine, orders.run)
        yield
    except BaseException as error:
        if failed := _put_back(used, folder, []):
            # What the run died of is what is raised; this must not be lost beside it.
            logger.error("%s", _left(failed))
            error.add_note(str(_left(failed)))
        raise
    if failed := _put_back(used, folder, []):
        raise _left(failed)
