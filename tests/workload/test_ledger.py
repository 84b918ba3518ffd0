"""The real agent on a directory of this host: its reports, its files, and the verdict on them."""

import json
import os
import shutil
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.core.command import Completed, run
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.guest import ledger_format
from raidproof.guest import ledger_reader as scan
from raidproof.guest import ledger_writer as agent
from raidproof.guest.ledger_pieces import MARKS
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.machine import Machine
from raidproof.record.run import BlockClass, ScanResult
from raidproof.storage.server import ExportSpec
from raidproof.verdict.ledger import balance_of
from raidproof.workload.history import Ended, History, PieceSpec, Recorder, WorkerSpec
from raidproof.workload.ledger import KINDS, LEAST, AckListener, Found, Ledger, LedgerSpec
from raidproof.workload.ledger_receiver import SO_TIMESTAMPNS, Arrivals, Receiver
from raidproof.workload.ledger_sizes import BYTES
from tests.workload.local_clients import Client, Host, local_command

OPERATIONS = 40
OMIT = ("clone", "o_direct", "setxattr", "locks", "removed", "listing")
"""Operations that the file system of a temporary folder may lack."""
CLOCKS_DIFFER_NS = 50_000
"""Tolerance: a process may be interrupted between its readings of the real-time and the monotonic clock."""


@dataclass
class Ran:
    """A finished run of the agent."""

    root: Path
    workers: list[WorkerSpec]
    history: History

    def scan(self) -> Found:
        orders = {"root": str(self.root), "seed": 1, "workers": [one.model_dump() for one in self.workers]}
        path = self.root.with_name("scan.json")
        path.write_text(json.dumps(orders))
        said = subprocess.run(local_command(scan, path), capture_output=True, check=True)
        found: Found = json.loads(said.stdout)
        return found

    def scan_result(self, before_ns: int | None = None) -> ScanResult:
        return balance_of(self.workers, self.history, self.scan(), before_ns=before_ns).result()

    def path(self, kind: str) -> Path:
        return self.root / next(one.path for one in self.workers if one.kind == kind)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    directory = tmp_path_factory.mktemp("ledger")
    root = directory / "root"
    root.mkdir()
    kinds = (*KINDS, "metadata")
    workers = [
        one.model_copy(update={"operations": OPERATIONS, "pieces": tuple(filter(is_local, one.pieces))})
        for one in LedgerSpec(kinds=kinds, omit=OMIT).workers(["client1", "client2"])
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = Receiver(listener, Recorder(directory / "history"))
        receiver.start()
        orders = {
            "root": str(root), "seed": 1, "host": "127.0.0.1", "port": listener.getsockname()[1],
            "workers": [one.model_dump() for one in workers],
        }  # fmt: skip
        config = directory / "config.json"
        config.write_text(json.dumps(orders))
        process = subprocess.Popen(local_command(agent, config), stdin=subprocess.PIPE)
        wait_until(lambda: process.poll() is not None, Deadline.after(60), "the agent to finish")
        wait_until(lambda: receiver.open_connections == 0, Deadline.after(10), "its last words")
        receiver.stop()
        process.communicate()
    return Ran(root, workers, History.read(directory / "history"))


def is_local(piece: PieceSpec) -> bool:
    """Whether a local file system takes a piece: NFS also takes direct writes that are not aligned."""
    return not piece.kind.startswith("o_direct") or not (piece.size % 512 or piece.position % 512)


@pytest.fixture
def ran(original: Ran, tmp_path: Path) -> Ran:
    root = tmp_path / "root"
    # Some files are sparse, and some are hard links.
    run(["cp", "--archive", "--sparse=always", str(original.root), str(root)])
    return Ran(root, original.workers, original.history)


def test_every_operation_is_reported_and_kept(ran: Ran) -> None:
    evidence = ran.scan_result()
    assert [one for one in ran.history.operations if one.ended is not Ended.OK] == []
    assert evidence.acknowledged_total == OPERATIONS * len(ran.workers)
    assert (evidence.lost_total, evidence.lost_files, evidence.invented, evidence.broken_blocks) == (0, 0, [], 0)
    assert evidence.first_lost_ns is None


def test_acknowledgements_after_the_cut_do_not_count(ran: Ran) -> None:
    middle = ran.history.operations[len(ran.history.operations) // 2].issued_ns
    shutil.rmtree(ran.root)
    ran.root.mkdir()
    all_lost, some_lost = ran.scan_result(), ran.scan_result(before_ns=middle)
    assert all_lost.acknowledged_total > some_lost.acknowledged_total > 0
    assert some_lost.lost.get("fsync") == some_lost.acknowledged.get("fsync")


def test_a_missing_file_loses_its_operations_and_is_counted(ran: Ran) -> None:
    ran.path("fsync").unlink()
    evidence = ran.scan_result()
    assert evidence.lost == {"fsync": OPERATIONS}
    assert evidence.lost_files == 1
    assert evidence.lost_bytes == OPERATIONS * ledger_format.BLOCK
    assert evidence.blocks[BlockClass.SYNCED_LOST] == 16
    first = min(one.ended_ns or 0 for one in ran.history.operations if one.worker == 0)
    assert evidence.first_lost_ns == first


def test_an_old_generation_is_stale(ran: Ran) -> None:
    path = ran.path("o_sync")
    worker = next(one for one in ran.workers if one.kind == "o_sync")
    with path.open("r+b") as file:
        file.write(ledger_format.block(worker.file, 0, 1, 1))
    evidence = ran.scan_result()
    assert evidence.blocks[BlockClass.STALE] == 1
    assert evidence.lost == {"o_sync": 2}  # generations 2 and 3 of block 0


def test_garbage_and_misplaced_blocks_are_distinguished(ran: Ran) -> None:
    worker = next(one for one in ran.workers if one.kind == "fsync")
    with ran.path("fsync").open("r+b") as file:
        file.write(b"x" * ledger_format.BLOCK)
        file.write(ledger_format.block(worker.file, 0, 1, 1))
    evidence = ran.scan_result()
    assert evidence.blocks[BlockClass.GARBAGE] == 1
    assert evidence.blocks[BlockClass.MISPLACED] == 1


def test_a_block_without_an_operation_is_invented(ran: Ran) -> None:
    newer = ledger_format.block(0, 0, 99, 1)
    with ran.path("fsync").open("r+b") as file:
        file.write(newer)
    assert ran.scan_result().blocks[BlockClass.GARBAGE] == 1


@pytest.mark.parametrize("name", ["d9999", "d0/x", "x"])
def test_a_name_without_an_operation_is_invented(ran: Ran, name: str) -> None:
    (ran.path("metadata") / name).mkdir()
    assert any(name in one for one in ran.scan_result().invented)


def test_a_small_file_without_an_operation_is_invented(ran: Ran) -> None:
    (ran.path("close") / "f77").touch()
    assert ran.scan_result().invented


def rename_back(directory: Path) -> None:
    (directory / "t").rename(directory / "a")
    (directory / "t").touch(0o600)


def bring_back(directory: Path) -> None:
    (directory / "a").write_bytes(b"+" * ledger_format.APPENDED)
    (directory / "a").chmod(ledger_format.CREATED)


def block_back(directory: Path, place: int = ledger_format.PUNCHED) -> None:
    with (directory / "a").open("r+b") as file:
        file.seek(place * ledger_format.BLOCK)
        file.write(b"x")


UNDO: dict[str, Callable[[Path], object]] = {
    "mkdir": shutil.rmtree,
    "create": lambda directory: (directory / "a").unlink(),
    "append": lambda directory: os.truncate(directory / "c", 0),
    "setattr": lambda directory: (directory / "a").chmod(0o600),
    "link": lambda directory: (directory / "b").unlink(),
    "symlink": lambda directory: (directory / "s").unlink(),
    "rename": lambda directory: (directory / "c").rename(directory / "a"),
    "truncate": lambda directory: os.truncate(directory / "c", 100),
    "remove": lambda directory: os.link(directory / "c", directory / "b"),
    "replace": rename_back,
    "unlink": bring_back,
    "rmdir": lambda directory: directory.mkdir(),
}
IN_A_ROUND_WITH = {
    "append": "truncate",
    "create": "setattr",
    "mkdir": "setattr",
    "link": "symlink",
    "pages": "allocate",
}


def directory_after(ran: Ran, worker: WorkerSpec, kind: str) -> Path:
    """Return a directory that has been through a complete round with an operation of a kind."""
    steps = next(one for one in worker.rounds if IN_A_ROUND_WITH.get(kind, kind) in one)
    done = Counter(one.place for one in ran.history.operations if one.worker == worker.number)
    place = next(one for one in done if worker.rounds[one % len(worker.rounds)] == steps and done[one] == len(steps))
    return ran.root / worker.path / f"d{place}"


@pytest.mark.parametrize("kind", UNDO)
def test_each_change_of_metadata_is_missed_when_it_is_undone(ran: Ran, kind: str) -> None:
    worker = next(one for one in ran.workers if one.kind == "metadata")
    UNDO[kind](directory_after(ran, worker, kind))
    evidence = ran.scan_result()
    assert evidence.lost.get(kind) == 1
    if kind not in {"mkdir", "create", "append", "unlink"}:
        assert evidence.lost_total == 1, evidence.examples
    assert evidence.invented == []


@pytest.mark.parametrize(
    ("kind", "undo"),
    [
        ("pages", lambda directory: os.truncate(directory / "a", 0)),
        ("allocate", lambda directory: os.truncate(directory / "a", ledger_format.WRITTEN * ledger_format.BLOCK)),
        ("punch", block_back),
        ("copy", lambda directory: os.truncate(directory / "b", ledger_format.BLOCK)),
        ("zero_range", lambda directory: block_back(directory, ledger_format.ZEROED)),
        ("fragments", lambda directory: block_back(directory, ledger_format.FRAGMENTS[-1])),
    ],
)
def test_each_change_of_extents_is_missed_when_it_is_undone(
    ran: Ran, kind: str, undo: Callable[[Path], object]
) -> None:
    worker = next(one for one in ran.workers if one.kind == "extents")
    undo(directory_after(ran, worker, kind))
    evidence = ran.scan_result()
    assert evidence.lost.get(kind) == 1, evidence.examples


def test_an_unknown_kind_of_worker_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'fsync'"):
        LedgerSpec(kinds=("fsnc",)).workers(["client1"])


def test_words_that_are_still_on_their_way_are_waited_for(tmp_path: Path) -> None:
    clients = [cast("Machine", SimpleNamespace(name=name, boot_id="same")) for name in ("client1", "client2")]
    ledger = Ledger(LedgerSpec(kinds=("fsync",)), clients, cast("AckListener", None), "/root", tmp_path / "history")
    heard = SimpleNamespace(open_connections=1, failure=None, refused=None, statuses={})
    ledger._receiver = cast("Receiver", heard)
    ledger._boots = {"client1": "same", "client2": "before its power went"}
    ended = SimpleNamespace(close_input=lambda: None, wait=lambda _: Completed((), 0, "", "", "client1"))
    ledger._commands = dict.fromkeys(ledger.clients, cast("RemoteCommand", ended))
    ledger.stop(Deadline.after(0.1))  # the one that is open is that of the client that is dead
    heard.open_connections = 2
    with pytest.raises(DeadlineExceeded, match="last reports"):
        ledger.stop(Deadline.after(0.1))


def frame(what: int, kind: str = "fsync", worker: int = 0) -> bytes:
    return ledger_format.FRAME.pack(what, ledger_format.KINDS.index(kind), worker, 0, 0, 1, 0, 0)


def test_work_continues_until_each_kind_was_done_often_enough(tmp_path: Path) -> None:
    client = cast("Machine", SimpleNamespace(name="client1", boot_id="same"))
    ledger = Ledger(
        LedgerSpec(kinds=("fsync", "o_sync")), [client], cast("AckListener", None), "/root", tmp_path / "history"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = Receiver(listener, Recorder(tmp_path / "history"))
        receiver.start()
        with socket.create_connection(listener.getsockname()) as one:
            done = frame(ledger_format.ISSUE) + frame(ledger_format.ACKNOWLEDGE)
            one.sendall(done * LEAST + frame(ledger_format.ACKNOWLEDGE)[:5])
            wait_until(lambda: receiver.ended["fsync"] == LEAST, Deadline.after(10), "fsync")
            assert not ledger._enough(receiver)
            with socket.create_connection(listener.getsockname()) as other:
                other.sendall(
                    (frame(ledger_format.ISSUE, "o_sync", 1) + frame(ledger_format.ACKNOWLEDGE, "o_sync", 1))
                    * (LEAST - 1)
                )
                wait_until(lambda: receiver.ended["o_sync"] == LEAST - 1, Deadline.after(10), "o_sync")
                assert not ledger._enough(receiver)
                other.sendall(frame(ledger_format.END, worker=1))
                wait_until(lambda: ledger._enough(receiver), Deadline.after(10), "the one that does no more")
        wait_until(lambda: receiver.open_connections == 0, Deadline.after(10), "both to end")
        receiver.stop()


def test_work_continues_until_each_client_has_done_enough_by_each_kind_of_worker(tmp_path: Path) -> None:
    clients = [cast("Machine", SimpleNamespace(name=name, boot_id="same")) for name in ("client1", "client2")]
    spec = LedgerSpec(kinds=("fsync", "shared", "metadata", "metadata"))
    ledger = Ledger(spec, clients, cast("AckListener", None), "/root", tmp_path / "history")
    enough = {one.number: LEAST for one in ledger.workers}

    def is_enough(*, done: tuple[int, ...] = (), **ended_of: int) -> bool:
        counts = Counter(enough | {int(name[1:]): count for name, count in ended_of.items()})
        ended = Counter({kind: 99 for one in ledger.workers for kind in one.kinds})
        heard = SimpleNamespace(done={*done}, ended=ended, ended_of=counts, failure=None)
        return ledger._enough(cast("Receiver", heard))

    assert [one.group for one in ledger.workers[4:]] == [
        ("client2", "fsync"),
        ("client2", "shared"),
        ("client2", "metadata"),
        ("client2", "metadata"),
    ]
    assert is_enough()
    assert not is_enough(_4=LEAST - 1)
    assert not is_enough(_5=0)
    assert is_enough(_6=0)
    assert not is_enough(_6=0, _7=LEAST - 1)
    assert is_enough(_5=0, done=(5,))


def test_work_ends_even_if_no_operation_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = cast("Machine", SimpleNamespace(name="client1", boot_id="same"))
    ledger = Ledger(LedgerSpec(kinds=("fsync",)), [client], cast("AckListener", None), "/root", tmp_path / "history")
    ledger._receiver = cast(
        "Receiver",
        SimpleNamespace(done=set(), ended=Counter(), ended_of=Counter(), failure=None, refused=None, statuses={}),
    )
    monkeypatch.setattr("raidproof.workload.ledger.ENOUGH_DEADLINE_S", 0.05)
    ledger.work(0.0)


@pytest.mark.parametrize(
    ("vers", "filesystem", "server", "left_out"),
    [
        ("4.2", "xfs", "knfsd", set()),
        ("4.2", "xfs", "ganesha", {"clone"}),
        ("4.2", "ext4", "knfsd", {"clone"}),
        ("4.1", "xfs", "knfsd", {"extents"}),
        ("3", "xfs", "knfsd", {"extents"}),
    ],
)
def test_what_a_version_a_file_system_or_a_server_has_not_is_left_out_with_the_reason(
    vers: str, filesystem: str, server: str, left_out: set[str]
) -> None:
    fitting, reasons = LedgerSpec().fitting(vers, filesystem, server)
    assert set(reasons) - {"clone"} == left_out - {"clone"}
    done = {kind for worker in fitting.workers(["client1"]) for kind in (worker.kind, *worker.kinds)}
    assert not done & (left_out | {"setxattr"})


def test_workers_that_lock_files_are_left_out_if_clients_may_lose_locks() -> None:
    reasons = LedgerSpec().fitting("3", "xfs", "knfsd", no_locks="the lease ends")[1]
    assert {kind for kind, why in reasons.items() if why == "the lease ends"} == {"locks", "o_append"}


def test_a_quiet_ledger_has_one_client() -> None:
    assert {one.client for one in LedgerSpec(quiet_s=0.01).workers(["client1", "client2"])} == {"client1"}


def test_what_settings_do_not_permit_is_left_out_with_the_reason() -> None:
    reasons = LedgerSpec().fitting("4.2", "xfs", "knfsd", root_squash=True)[1]
    assert {*reasons} == {"chown"}
    assert {*LedgerSpec(users=2).fitting("4.2", "xfs", "knfsd")[1]} == {"chown"}
    fitting, reasons = LedgerSpec().fitting("4.2", "ext4", "knfsd", shows_old_data=True)
    assert {*reasons} == {"clone", "shrink", "grow"}
    assert {"shrink", "grow"}.isdisjoint(kind for one in fitting.workers(["client1"]) for kind in one.kinds)
    assert {*LedgerSpec().fitting("4.2", "xfs", "knfsd", shares_blocks=False)[1]} == {"clone"}
    fitting, reasons = LedgerSpec().fitting("4.2", "xfs", "knfsd", no_zero_range="EOPNOTSUPP")
    assert reasons == {"zero_range": "EOPNOTSUPP"}
    assert "zero_range" not in {kind for one in fitting.workers(["client1"]) for kind in one.kinds}


@pytest.mark.parametrize(
    ("users", "squash", "expected"),
    [
        (None, False, {0}),
        (None, True, {1001, 1002, 1003}),
        (0, True, {0}),
        (1, False, {1001}),
        (2, True, {1001, 1002}),
    ],
)
def test_workers_are_ordinary_users_if_the_export_squashes_root(
    users: int | None, squash: bool, expected: set[int]
) -> None:
    export = ExportSpec(root_squash=squash)
    fitting, _ = LedgerSpec(users=users).fitting("4.2", "xfs", "knfsd", root_squash=squash)
    workers = fitting.workers(["client1", "client2"], owner_of=export.owner_of)
    assert {one.uid for one in workers} == expected
    assert all(one.owner == (one.uid or (65534 if squash else 0)) for one in workers)
    # Who share a file have one user, on all clients.
    for kind in ("shared", "o_append", "locks"):
        assert len({one.uid for one in workers if one.path == kind}) == 1


def test_files_of_all_users_may_have_one_owner() -> None:
    export = ExportSpec(all_squash=True, anonuid=99)
    fitting, _ = LedgerSpec().fitting("4.2", "xfs", "knfsd", root_squash=export.squashes_root)
    assert {one.owner for one in fitting.workers(["client1"], owner_of=export.owner_of)} == {99}


def test_the_number_of_operations_limits_each_worker() -> None:
    spec = LedgerSpec(kinds=("fsync", "o_sync"), operations=60)
    assert [one.operations for one in spec.workers(["client1"])] == [60, 60]
    assert {one.operations for one in LedgerSpec(omit=("sizes",)).workers(["client1"])} == {None}


def test_a_worker_of_many_sizes_ends_before_the_marks_of_single_bytes_repeat() -> None:
    (worker,) = LedgerSpec(kinds=("sizes",)).workers(["client1"])
    assert worker.operations == len(worker.pieces) * MARKS * BYTES
    (worker,) = LedgerSpec(kinds=("sizes",), operations=60).workers(["client1"])
    assert worker.operations == 60


def stamped() -> bool:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        with socket.create_connection(listener.getsockname()) as one, listener.accept()[0] as other:
            one.sendall(b"?")
            return bool(other.recvmsg(1, 64)[1])


def test_what_arrived_before_the_receiver_woke_has_the_stamp_of_its_arrival(tmp_path: Path) -> None:
    begun = frame(ledger_format.ISSUE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = Receiver(listener, Recorder(tmp_path / "history"))
        # The kernel begins to stamp some time after the first socket wants it.
        wait_until(stamped, Deadline.after(10), "the kernel to stamp")
        with socket.create_connection(listener.getsockname()) as one:
            before = now_ns()
            one.sendall(begun)
            after = now_ns()
            receiver.start()
            wait_until(lambda: receiver.last_ns, Deadline.after(10), "the frame")
        receiver.stop()
    stamp = History.read(tmp_path / "history").operations[0].issued_ns
    assert before - CLOCKS_DIFFER_NS < stamp < after + CLOCKS_DIFFER_NS
    assert receiver.last_ns == stamp


@pytest.mark.parametrize("ancillary", [[], [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("@qq", 1 << 40, 0))]])
def test_without_a_credible_stamp_of_the_kernel_it_is_now(ancillary: list[tuple[int, int, bytes]]) -> None:
    before = now_ns()
    assert before <= Arrivals().date(ancillary) <= now_ns()


class HostClocks:
    """The clocks of a host whose real-time clock is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.ahead_ns = 10**12, 10**18
        monkeypatch.setattr("raidproof.workload.ledger_receiver.now_ns", lambda: self.now_ns)
        monkeypatch.setattr("raidproof.workload.ledger_receiver.realtime_ahead_ns", lambda: self.ahead_ns)

    def stamp(self) -> list[tuple[int, int, bytes]]:
        """Return the kernel's stamp of data that arrive now."""
        real = self.now_ns + self.ahead_ns
        return [(socket.SOL_SOCKET, SO_TIMESTAMPNS, struct.pack("@qq", real // 10**9, real % 10**9))]


@pytest.mark.parametrize("set_by_ns", [16_500_000, -16_500_000, 100_000])
def test_data_that_arrived_before_the_clock_was_set_get_no_earlier_date(
    monkeypatch: pytest.MonkeyPatch, set_by_ns: int
) -> None:
    clocks = HostClocks(monkeypatch)
    arrivals, first = Arrivals(), clocks.now_ns
    early = [clocks.stamp(), clocks.stamp()]
    clocks.now_ns += 1_000_000
    assert arrivals.date(early[0]) == first
    clocks.ahead_ns += set_by_ns
    # Two connections whose data arrived before the clock was set.
    read = [clocks.now_ns, clocks.now_ns + 1000]
    for at_ns in read:
        clocks.now_ns = at_ns
        assert first <= arrivals.date(early[1]) <= at_ns
    clocks.now_ns += 1_000_000
    late, arrived = clocks.stamp(), clocks.now_ns
    clocks.now_ns += 1_000_000
    assert arrivals.date(late) == arrived


def test_clocks_that_differ_by_their_reading_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = HostClocks(monkeypatch)
    arrivals, stamp, arrived = Arrivals(), clocks.stamp(), clocks.now_ns
    clocks.now_ns += 1_000_000
    clocks.ahead_ns += 300
    assert arrivals.date(stamp) == arrived - 300


def test_clients_work_until_the_ledger_stops_them_and_what_they_did_is_found(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    clients = [Client(name, tmp_path / name) for name in ("client1", "client2")]
    machines = cast("list[Machine]", clients)
    spec = LedgerSpec(kinds=("fsync", "shared", "o_append"))
    ledger = Ledger(spec, machines, Host(), str(tmp_path / "root"), tmp_path / "history")
    with ledger.running():
        ledger.work(0.0)
        wait_until(lambda: ledger.all_began_since(0), Deadline.after(30), "every client to begin")
        assert not ledger.all_began_since(now_ns() + 10**9)
        ledger.stop(Deadline.after(30))
        # A worker that has ended begins nothing more.
        wait_until(lambda: ledger.all_began_since(now_ns()), Deadline.after(30), "the workers' ends to arrive")
        last_ns = ledger.heard_since(0)
        assert last_ns is not None
        assert ledger.heard_since(last_ns) is None
    history = ledger.history()
    done = Counter(one.kind for one in history.operations)
    assert set(done) == {"fsync", "o_append"}
    assert min(done.values()) >= LEAST
    evidence = balance_of(ledger.workers, history, ledger.scan(machines[0], str(tmp_path / "root"))).result()
    assert (evidence.lost_total, evidence.lost_files, evidence.invented, evidence.broken_blocks) == (0, 0, [], 0)
    assert {one.ended for one in history.operations} == {Ended.OK}


def test_a_failed_agent_is_reported_with_its_output(tmp_path: Path) -> None:
    clients = cast("list[Machine]", [Client("client1", tmp_path / "client1")])
    ledger = Ledger(LedgerSpec(kinds=("fsync",)), clients, Host(), "/root", tmp_path / "history")
    ledger.config = lambda *_: "no orders"  # type: ignore[method-assign]
    with pytest.raises(RigError, match="JSONDecodeError"), ledger.running():
        pass
