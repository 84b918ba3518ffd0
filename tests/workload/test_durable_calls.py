"""The system calls of the ledger's agent before it reports an operation as done, and the parsing of its reports."""

import errno
import mmap
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raidproof.guest import ledger_format, ledger_worker
from raidproof.guest import ledger_reader as scan
from raidproof.guest import ledger_writer as agent
from raidproof.guest.ledger_format import ACKNOWLEDGE, FRAME, ISSUE, KINDS
from raidproof.record.run import ScanResult
from raidproof.verdict.ledger import balance_of
from raidproof.workload.history import Ended, History, Recorder, WorkerSpec, parse
from raidproof.workload.ledger import LedgerSpec

FIELDS = len(FRAME.unpack(bytes(FRAME.size)))
OPERATIONS = 40
WANTING = {"clone", "o_direct", "setxattr"} & {*KINDS}
"""Operations that the file system of a temporary folder may lack."""


class Call(NamedTuple):
    """One system call of an operation."""

    name: str
    fd: int
    flags: int = 0
    """The flags with which the file was opened."""


class Calls:
    """Records the system calls of each operation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operations: list[tuple[str, list[Call]]] = []
        self.flags: dict[int, int] = {}
        self._now = threading.local()
        self._patch(monkeypatch)

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opens, do = os.open, ledger_worker.Worker.do

        def opened(path: Any, flags: int, mode: int = 0o777, **rest: Any) -> int:
            fd = opens(path, flags, mode, **rest)
            self.flags[fd] = flags
            return fd

        def noted(name: str, call: Callable[..., Any], place: int = 0) -> Callable[..., Any]:
            def wrapper(*arguments: Any, **rest: Any) -> Any:
                done = call(*arguments, **rest)
                self.note(name, arguments[place])
                return done

            return wrapper

        def wrapped(
            worker: ledger_worker.Worker, kind: str, index: int, generation: int, action: Callable[[], Any]
        ) -> bool:
            def act() -> None:
                self._now.calls = []
                action()
                self.operations.append((kind, self._now.calls))

            done = do(worker, kind, index, generation, act)
            self._now.calls = None
            return done

        monkeypatch.setattr(os, "open", opened)
        for name, place in {
            "pwrite": 0,
            "write": 0,
            "fsync": 0,
            "fdatasync": 0,
            "close": 0,
            "copy_file_range": 1,
        }.items():
            monkeypatch.setattr(os, name, noted(name, getattr(os, name), place))
        monkeypatch.setattr(ledger_worker.Worker, "do", wrapped)

        class Mapped(mmap.mmap):
            def flush(mapped, *arguments: int) -> None:  # noqa: N805  `self` is the notes
                super().flush(*arguments)
                self.note("msync", -1)

        monkeypatch.setattr(mmap, "mmap", Mapped)

    def note(self, name: str, fd: int) -> None:
        calls = getattr(self._now, "calls", None)
        if calls is not None:
            calls.append(Call(name, fd, self.flags.get(fd, 0)))


class Ran(NamedTuple):
    """A finished run of the agent."""

    root: Path
    workers: list[WorkerSpec]
    history: History

    def scan_result(self) -> ScanResult:
        orders = {"root": str(self.root), "seed": 1, "workers": [one.model_dump() for one in self.workers]}
        return balance_of(self.workers, self.history, scan.read_back(orders)).result()


def run(folder: Path, spec: LedgerSpec, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Run the agent in a folder, in this process."""
    # Nobody waits for a lock that another client has.
    monkeypatch.setattr("raidproof.guest.ledger_holders.LOCK_S", 0)
    # No fault has to strike in the middle of a listing.
    monkeypatch.setattr("raidproof.guest.ledger_listing.PAUSE_S", 0)
    # Nothing is read of standard input, by which the harness ends it.
    monkeypatch.setattr("raidproof.guest.ledger_writer.select.select", lambda *_: ([], [], []))
    root = folder / "root"
    root.mkdir()
    workers = [one.model_copy(update={"operations": OPERATIONS}) for one in spec.workers(["client1"])]
    recorder = Recorder(folder / "history")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        # A pause makes workers that map files do without a process of their own.
        config = {"root": str(root), "seed": 1, "host": host, "port": port, "quiet_s": 1e-6}
        thread = threading.Thread(target=agent.write, args=(config | {"workers": [w.model_dump() for w in workers]},))
        thread.start()
        heard = [listener.accept()[0] for _ in workers]
        thread.join()
        for number, one in enumerate(heard):
            with one, one.makefile("rb") as stream:
                recorder.add(number, number + 1, stream.read())
    recorder.close()
    return Ran(root, workers, History.read(folder / "history"))


def spec_of(*kinds: str) -> LedgerSpec:
    omit = {"omit": tuple(sorted(WANTING))} if "omit" in LedgerSpec.model_fields else {}
    return LedgerSpec.model_validate({"kinds": kinds or (*LedgerSpec().kinds, "metadata"), "blocks": 4, **omit})


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Call]]]:
    """The calls of each operation that the agent did, by its kind."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        calls = Calls(monkeypatch)
        kinds = dict.fromkeys((*LedgerSpec().kinds, "metadata"))
        run(tmp_path_factory.mktemp("agent"), spec_of(*(kind for kind in kinds if kind not in WANTING)), monkeypatch)
    found: dict[str, list[list[Call]]] = {}
    for kind, made in calls.operations:
        found.setdefault(kind, []).append(made)
    return found


WRITES = {"pwrite", "write", "copy_file_range"}
AFTER = {"fdatasync": "fdatasync", "close": "close", "msync": "msync"}
OPENED = {"o_sync": os.O_SYNC, "o_dsync": os.O_DSYNC}
WRITING = {
    "fsync",
    "o_sync",
    "close",
    "append",
    "fdatasync",
    "o_dsync",
    "msync",
    "pages",
    "unaligned",
    "copy",
    "o_append",
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in WRITING])
def test_what_is_written_is_made_durable_before_it_is_reported(
    kind: str, operations: dict[str, list[list[Call]]]
) -> None:
    assert operations.get(kind), "the agent did none"
    for calls in operations[kind]:
        written = [place for place, call in enumerate(calls) if call.name in WRITES]
        if kind in OPENED:
            assert written
            assert all(calls[place].flags & os.O_SYNC == OPENED[kind] for place in written)
            continue
        after = [call for call in calls[written[-1] + 1 if written else 0 :] if call.name == AFTER.get(kind, "fsync")]
        files = {calls[place].fd for place in written}
        assert files <= {call.fd for call in after}, calls
        assert after, calls


def frame(what: int, sequence: int = 0, error: int = 0, kind: str = "fsync") -> bytes:
    return FRAME.pack(*(what, KINDS.index(kind), 3, sequence, 5, 1, error, 0)[:FIELDS])


def recorded(folder: Path, *arrivals: tuple[int, bytes]) -> History:
    recorder = Recorder(folder / "history")
    for stamp_ns, data in arrivals:
        recorder.add(1, stamp_ns, data)
    recorder.close()
    return History.read(folder / "history")


def test_an_operation_is_issued_when_the_report_of_its_beginning_arrived(tmp_path: Path) -> None:
    (one,) = recorded(tmp_path, (100, frame(ISSUE)), (900, frame(ACKNOWLEDGE))).operations
    assert (one.issued_ns, one.ended_ns, one.ended) == (100, 900, Ended.OK)
    assert [one.issued_ns for one in parse([(7, frame(ISSUE))])] == [7]


def test_a_failed_operation_was_not_acknowledged(tmp_path: Path) -> None:
    history = recorded(
        tmp_path,
        (100, frame(ISSUE) + frame(ACKNOWLEDGE, error=errno.EIO)),
        (200, frame(ISSUE, 1) + frame(ACKNOWLEDGE, 1)),
        (300, frame(ISSUE, 2)),
    )
    assert [one.ended for one in history.operations] == [Ended.FAILED, Ended.OK, Ended.UNKNOWN]
    assert [one.sequence for one in history.acknowledged()] == [1]
    assert [one.binds() for one in history.operations] == [False, True, False]
    assert history.operations[0].error == errno.EIO


@pytest.mark.parametrize("half", range(1, FRAME.size))
def test_a_report_that_arrives_in_halves_arrived_with_its_second(half: int, tmp_path: Path) -> None:
    said = frame(ACKNOWLEDGE)
    history = recorded(tmp_path, (100, frame(ISSUE) + said[:half]), (200, said[half:] + frame(ISSUE, 1)))
    assert [(one.issued_ns, one.ended_ns) for one in history.operations] == [(100, 200), (200, None)]
    assert not list(history.acknowledged(before_ns=200))
    assert len(list(history.acknowledged(before_ns=201))) == 1


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Return the names that a worker of names has left."""
    return run(tmp_path, spec_of("metadata"), monkeypatch)


def first(ran: Ran, name: str) -> Path:
    """Return a name in the first directory that has it; a symbolic link may be dangling."""
    found = (directory / name for directory in ran.root.glob("*/d*"))
    return min(path for path in found if path.is_symlink() or path.exists())


def test_the_report_has_exactly_the_executed_operations(tree: Ran) -> None:
    evidence = tree.scan_result()
    assert (evidence.lost_total, evidence.invented, evidence.acknowledged_total) == (0, [], OPERATIONS)


def test_a_symlink_that_points_elsewhere_is_no_symlink_that_was_made(tree: Ran) -> None:
    link = first(tree, "s")
    target = link.readlink()
    link.unlink()
    link.symlink_to(f"{target}x")
    evidence = tree.scan_result()
    assert evidence.lost.get("symlink") or evidence.invented


@pytest.mark.parametrize("content", [bytes(ledger_format.TRUNCATED), b"x" * ledger_format.TRUNCATED])
def test_a_truncated_file_must_hold_its_beginning(content: bytes, tree: Ran) -> None:
    path = first(tree, "c")
    assert path.stat().st_size == ledger_format.TRUNCATED
    path.write_bytes(content)
    evidence = tree.scan_result()
    assert evidence.lost_total or evidence.invented
