"""Calls of the ledger's workers that fail, and workers that die: the real writer on this host, with defects."""

import os
from errno import EIO, ENOLCK
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest.ledger_format import REFUSED, STEPS
from raidproof.guest.ledger_listing import fill
from raidproof.machine.machine import Machine
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.checks.ends import judge_ends
from raidproof.verdict.checks.errors import judge_errors
from raidproof.verdict.checks.listing import judge_listings
from raidproof.verdict.checks.locks import judge_locks
from raidproof.verdict.checks.removed import judge_removed
from raidproof.verdict.conditions import Conditions
from raidproof.workload.history import Ended, History, WorkerSpec
from raidproof.workload.ledger import Ledger, LedgerSpec
from tests.workload.local_clients import Client, Host

SYNC = Conditions(export_sync=True)
KINDS = ("fsync", "msync", "pages", "metadata", "o_append", "locks", "removed", "listing")
FAILING = """
import errno
import os, fcntl, os
def failing(call, applies, code):
    def planted(*arguments, **more):
        if applies(*arguments):
            raise OSError(code, os.strerror(code))
        return call(*arguments, **more)
    return planted
"""
LOCK = FAILING + "fcntl.lockf = failing(fcntl.lockf, lambda fd, how: how != fcntl.LOCK_UN, errno.ENOLCK)\n"
UNLOCK = FAILING + "fcntl.lockf = failing(fcntl.lockf, lambda fd, how: how == fcntl.LOCK_UN, errno.EIO)\n"
FOLDER = FAILING + "os.makedirs = failing(os.makedirs, lambda path: path.endswith('{kind}'), errno.EIO)\n"
OPEN = FAILING + "os.open = failing(os.open, lambda path, *_: str(path).endswith('o_append'), errno.EIO)\n"
CLOSE = (
    FAILING + "os.close = failing(os.close, lambda fd: 'fsync' in os.readlink('/proc/self/fd/%d' % fd), errno.EIO)\n"
)


class Ran(NamedTuple):
    """A finished run of the ledger."""

    workers: list[WorkerSpec]
    history: History

    @property
    def bad(self) -> list[Verdict]:
        """The verdicts on the errors and the ends of the workers that are not PASS."""
        found = [judge_errors(self.history, SYNC), *judge_ends(self.workers, self.history, SYNC, ())]
        return [one for one in found if one.outcome is not Outcome.PASS]


def ran(tmp_path: Path, defect: str = "", kinds: tuple[str, ...] = KINDS, *, many: bool = False) -> Ran:
    """Let two clients work; the second one has the defect, and the directory of ``many`` names."""
    (tmp_path / "root").mkdir()
    clients = [Client("client1", tmp_path / "client1"), Client("client2", tmp_path / "client2", defect)]
    spec = LedgerSpec(kinds=kinds)
    ledger = Ledger(spec, cast("list[Machine]", clients), Host(), str(tmp_path / "root"), tmp_path / "history")
    if many:
        fill(str(tmp_path / "root" / ledger.workers[-1].path), os.getuid())
        ledger.filled = ledger.workers[-1].number
    with ledger.running():
        ledger.work(0.2)
        if many:
            wait_until(lambda: of_many(tmp_path / "history", ledger.filled), Deadline.after(60), "a whole listing")
        ledger.stop(Deadline.after(30))
    return Ran(ledger.workers, ledger.history())


def test_each_worker_of_a_sound_client_reports_its_steps_and_its_end(tmp_path: Path) -> None:
    done = ran(tmp_path)
    assert done.bad == []
    assert {one.kind for one in done.history.steps} == {*STEPS} - {"pause"}
    (verdict,) = judge_locks(done.workers, done.history.steps, None)
    assert verdict.outcome is not Outcome.FAIL, verdict.reason
    assert {one.ended for one in done.history.steps if one.error not in REFUSED} == {Ended.OK}
    assert {*done.history.ends} == {one.number for one in done.workers}


@pytest.mark.parametrize(
    ("defect", "kind", "step", "error"),
    [
        (LOCK, "o_append", "lock", ENOLCK),
        (UNLOCK, "o_append", "unlock", EIO),
        (OPEN, "o_append", "set-up", EIO),
        (FOLDER.format(kind="pages"), "pages", "set-up", EIO),
        (FOLDER.format(kind="metadata"), "metadata", "set-up", EIO),
        (CLOSE, "fsync", "last close", EIO),
    ],
)
def test_a_call_that_fails_outside_the_operations_is_an_error_of_the_client(
    tmp_path: Path, defect: str, kind: str, step: str, error: int
) -> None:
    done = ran(tmp_path, defect, (kind,))
    failed = [one for one in done.history.steps if one.ended is Ended.FAILED]
    assert {(one.kind, one.error, done.workers[one.worker].client) for one in failed} == {(step, error, "client2")}
    assert [(one.outcome, one.checker) for one in done.bad] == [(Outcome.FAIL, "errors told to clients")]
    assert done.bad[0].reason.endswith(f"for {step}")


def test_a_server_that_grants_every_lock_is_found(tmp_path: Path) -> None:
    # The second client's claims do not reach the kernel, and all succeed.
    done = ran(tmp_path, "import fcntl\nfcntl.fcntl = lambda *_: 0\n", ("locks",))
    (verdict,) = judge_locks(done.workers, done.history.steps, None)
    assert verdict.outcome is Outcome.FAIL, verdict.reason


def test_an_open_file_without_a_name_whose_content_changes_is_found(tmp_path: Path) -> None:
    done = ran(tmp_path, "import os\nos.posix_fadvise = lambda fd, *_: os.pwrite(fd, b'other', 0)\n", ("removed",))
    (verdict,) = judge_removed(done.history.steps, SYNC, None)
    assert verdict.outcome is Outcome.FAIL, verdict.reason
    (sound,) = judge_removed((one for one in done.history.steps if one.worker == 0), SYNC, None)
    assert sound.outcome is Outcome.PASS, sound.reason


LISTED = """
import ctypes, os
real, calls, seen = ctypes.CDLL(None).getdents64, [], []
def third():
    seen.append(1)
    return len(seen) == 3
def getdents64(fd, buffer, size):
    count = real(fd, buffer, size)
    calls.append(count)
    {change}
    return count
class Library:
    def __init__(self, name, **more): self.library = real_library(name, **more)
    def __getattr__(self, name): return getdents64 if name == "getdents64" else getattr(self.library, name)
real_library, ctypes.CDLL = ctypes.CDLL, Library
"""
"""A client whose getdents64(2) has a defect."""


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        # The second part of a listing is the first one again, and so it is if the server forgets the cookie.
        ("if len(calls) == 2: os.lseek(fd, 0, 0); count = real(fd, buffer, size)", "had a name twice"),
        ("if len(calls) == 2: count = real(fd, buffer, size)", "lacked a name that a client had created"),
        (
            "if len(calls) == 1: os.mkdir('new', dir_fd=fd); os.lseek(fd, 0, 0); count = real(fd, buffer, size)",
            "had a name that no client had created",
        ),
        ("", None),
    ],
)
def test_a_listing_with_wrong_names_is_found(tmp_path: Path, change: str, wrong: str | None) -> None:
    done = ran(tmp_path, LISTED.format(change=change or "pass"), ("listing",))
    (verdict,) = judge_listings(done.history.steps, SYNC, None)
    if wrong is None:
        assert verdict.outcome is Outcome.PASS, verdict.reason
    else:
        assert verdict.outcome is Outcome.FAIL, verdict.reason
        assert wrong in verdict.reason
    (sound,) = judge_listings((one for one in done.history.steps if one.worker == 0), SYNC, None)
    assert sound.outcome is Outcome.PASS, sound.reason


MANY = "os.readlink('/proc/self/fd/%d' % fd).endswith('many')"
"""Whether the directory of the call is that of many names."""


def of_many(history: Path, worker: int | None) -> bool:
    """Return whether a worker has come to the listing after the first one of its directory of many names, or ended."""
    done = History.read(history)
    return worker in done.ends or any(one.worker == worker and one.place > 2 for one in done.steps)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        # The third part is the first one again, as if the restarted server did not know the cookie; or it is left out.
        (f"if {MANY} and third(): os.lseek(fd, 0, 0); count = real(fd, buffer, size)", "had a name twice"),
        (f"if {MANY} and third(): count = real(fd, buffer, size)", "lacked a name"),
        ("", None),
    ],
)
def test_a_listing_of_thousands_of_names_is_compared(tmp_path: Path, change: str, wrong: str | None) -> None:
    done = ran(tmp_path, LISTED.format(change=change or "pass"), ("listing",), many=True)
    (verdict,) = judge_listings(done.history.steps, SYNC, None)
    assert verdict.outcome is (Outcome.PASS if wrong is None else Outcome.FAIL), verdict.reason
    assert (wrong or "of them of a directory of thousands of names") in verdict.reason
    (sound,) = judge_listings((one for one in done.history.steps if one.worker == 0), SYNC, None)
    assert "none of a directory of thousands of names" in sound.reason


@pytest.mark.parametrize("kind", ["msync", "sizes"])
def test_a_worker_that_a_signal_killed_is_an_error_of_the_client(tmp_path: Path, kind: str) -> None:
    (tmp_path / "root").mkdir()
    clients = cast("list[Machine]", [Client("client1", tmp_path / "client1")])
    # A local file system refuses direct writes that are not aligned.
    spec = LedgerSpec(kinds=(kind, "fsync"), omit=("o_direct", "o_direct_sync"))
    ledger = Ledger(spec, clients, Host(), str(tmp_path / "root"), tmp_path / "history")
    with ledger.running():
        ledger.work(0.0)
        # An access beyond the end of a mapped file is the SIGBUS that a page gives which cannot be read.
        path = tmp_path / "root" / ledger.workers[0].path
        pieces = enumerate(ledger.workers[0].pieces)
        for file in [path / f"f{place}" for place, one in pieces if one.kind == "msync"] or [path]:
            file.write_bytes(b"")
        assert ledger._receiver is not None
        wait_until(ledger._receiver.done.__len__, Deadline.after(30), "the death of a worker")
        assert ledger._receiver is not None
        wait_until(ledger._receiver.done.__len__, Deadline.after(30), "the death of a worker")
        ledger.stop(Deadline.after(30))
    done = Ran(ledger.workers, ledger.history())
    assert [one.outcome for one in done.bad] == [Outcome.FAIL]
    assert "killed by SIGBUS" in done.bad[0].reason
