"""The order of the steps of a crash test after a fault, and what differs between crash tests."""

from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.core.command import Completed
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.run import CrashTestRecord, Recovery
from raidproof.run import crash_test as module
from raidproof.run.crash_test import CrashTest, CrashTestSpec, schedule_of
from raidproof.run.crash_test_files import CrashTestFiles
from raidproof.storage.mount import MountSpec
from raidproof.workload.ledger import LedgerSpec


class Stop(Exception):
    pass


class Fake:
    """A fake lab with stack and ledger that records all calls."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.idle = False
        self.refusing: set[str] = set()
        """The machines on which commands fail."""
        self.server = self.machine("server")
        self.clients = (self.machine("client1"), self.machine("client2"))
        self.topology = SimpleNamespace(disks=())
        self.disks = SimpleNamespace(set_mode=lambda *_: None, counters=dict)

    def machine(self, name: str) -> Any:
        def put(content: str, path: str) -> None:
            dropped = (content, path) == ("3\n", "/proc/sys/vm/drop_caches")
            self.did.append(f"{name} drops its caches" if dropped else f"{name}: {content} into {path}")

        def succeed(argv: list[str], **_: object) -> str:
            self.did.append(f"{name}: {argv[0]}")
            return ""

        def run(argv: list[str], **_: object) -> Completed:
            self.did.append(f"{name}: {argv[0]}")
            refuses = name in self.refusing
            return Completed(tuple(argv), int(refuses), "", "fallocate: not supported\n" if refuses else "", name)

        return SimpleNamespace(
            name=name, address="10.77.0.10", put=put, succeed=succeed, run=run, start_command=self.note(f"{name} asks")
        )

    def note(self, what: str) -> Any:
        return lambda *_, **__: self.did.append(what)

    def stack(self) -> Any:
        steps = [SimpleNamespace(run=self.note(what)) for what in ("assemble", "mount", "export")]
        mounts = {
            client.name: SimpleNamespace(
                directory="/mnt",
                activate=self.note(f"{client.name} mounts"),
                deactivate=self.note(f"{client.name} unmounts"),
            )
            for client in self.clients
        }
        return SimpleNamespace(
            spec=stack_of(),
            server_steps=lambda: steps,
            mounts=mounts,
            filesystem=SimpleNamespace(directory="/srv"),
            export=SimpleNamespace(end_lockd_grace=lambda: None),
            activate_client=lambda name: self.did.append(f"{name} mounts"),
        )

    def ledger(self) -> Any:
        def scan(machine: Any, root: str) -> dict[str, Any]:
            self.did.append(f"scan on {machine.name} of {root}")
            return {"bytes": 0, "calls": 0}

        return SimpleNamespace(
            scan=scan,
            root="/mnt/ledger",
            heard_since=lambda _: True,
            all_began_since=lambda _: True,
            is_idle=lambda: self.idle,
        )


def record(name: str) -> CrashTestRecord:
    common = {"name": name, "title": "x", "asked": {}, "cache_mode": "volatile", "fault": "power-cut", "seed": 1}
    return CrashTestRecord.model_validate(common)


def cycle_of(fake: Fake, folder: Path, name: str = "x", **changes: object) -> CrashTest:
    one = CrashTest.__new__(CrashTest)
    one.lab = fake  # type: ignore[assignment]
    one.spec = CrashTestSpec.model_validate({"name": name, "title": "x", "stack": stack_of(), **changes})
    one.record = record(name)
    one.record.recovery = Recovery()
    one.record.effective = {"export": {"lease_s": 1, "grace_s": 1}}
    one.files = CrashTestFiles(folder, name)
    one.stack, one.context = fake.stack(), None  # type: ignore[assignment]
    one.schedule = schedule_of(one.spec)
    return one


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(module, "fetched", lambda *_: SimpleNamespace(since=lambda _: Counted()))
    return Fake()


EFFECTIVE: Any = SimpleNamespace(filesystem=None)


class Counted:
    def _asdict(self) -> dict[str, int]:
        return {"bytes": 0, "calls": 0}


def test_what_a_client_reads_back_comes_from_no_cache(fake: Fake, tmp_path: Path) -> None:
    cycle_of(fake, tmp_path)._scan_client(fake.ledger())
    assert fake.did == [
        "client2 unmounts",
        "client2 mounts",
        "server drops its caches",
        "client2 drops its caches",
        "scan on client2 of /mnt/ledger",
    ]


@pytest.mark.parametrize("same", [True, False])
def test_a_second_reader_follows_and_a_difference_makes_the_server_read_again(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    def read(client: Any, _ledger: object, _stack: object, source: str) -> dict[str, Any]:
        fake.did.append(f"libnfs on {client.name} of {source}")
        return {"bytes": 0 if same else 1, "calls": 0}

    monkeypatch.setattr(module, "read_by_libnfs", read)
    test = cycle_of(fake, tmp_path, second_reader=True)
    test._scan_client(fake.ledger())
    again = [] if same else ["scan on server of /srv/ledger"]
    assert fake.did[4:] == ["scan on client2 of /mnt/ledger", "libnfs on client2 of 10.77.0.10:/srv/ledger", *again]
    assert test.record.files.by_libnfs is not None
    assert (test.record.files.on_server_again is None) is same


@pytest.mark.parametrize(
    ("refusing", "changes", "why"),
    [
        (set(), {}, None),
        ({"client2"}, {}, "FALLOC_FL_ZERO_RANGE fails on client2: fallocate: not supported"),
        ({"client1", "client2"}, {"ledger": LedgerSpec(kinds=("fsync",))}, None),
        ({"client2"}, {"stack": stack_of(mount=MountSpec(vers="4.1"))}, None),
    ],
)
def test_clients_that_cannot_zero_a_range_are_named(
    fake: Fake, tmp_path: Path, refusing: set[str], changes: dict[str, object], why: str | None
) -> None:
    fake.refusing = refusing
    assert cycle_of(fake, tmp_path, "x", **changes)._why_no_zero_range() == why
    assert fake.did.count("client1: truncate") == fake.did.count("client1: rm")


def test_each_cycle_has_a_ledger_seed_of_its_own(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    def ledger(spec: LedgerSpec, *_: object, **__: object) -> AbstractContextManager[None]:
        seeds.append(spec.seed)
        raise Stop

    monkeypatch.setattr(module, "Ledger", ledger)
    monkeypatch.setattr(CrashTest, "_tolerated_errnos", lambda _: ())
    asked = LedgerSpec()
    for name in ("one", "two", "one"):
        with pytest.raises(Stop):
            cycle_of(fake, tmp_path, name, ledger=asked)._promise_and_break(EFFECTIVE)
    other = asked.model_copy(update={"seed": asked.seed + 1})
    with pytest.raises(Stop):
        cycle_of(fake, tmp_path, "one", ledger=other)._promise_and_break(EFFECTIVE)
    assert seeds[0] == seeds[2], "an exploration finds it again by the cycle's name"
    assert len(set(seeds)) == 3


@pytest.mark.parametrize("off", [True, False])
@pytest.mark.parametrize("moved", [True, False])
def test_both_servers_are_up_and_the_first_one_is_active_in_the_next_crash_test(
    fake: Fake, tmp_path: Path, off: bool, moved: bool
) -> None:
    first, other = fake.server, fake.machine("server2")
    one = cycle_of(fake, tmp_path)
    one._first = first
    fake.server, standby = (other, first) if moved else (first, other)
    fake.standby = standby  # type: ignore[attr-defined]
    standby.boot_id, standby.start = None if off else "1", fake.note("standby boots")

    def hand_over() -> None:
        fake.server = first

    fake.hand_over = hand_over  # type: ignore[attr-defined]
    one._restore_servers()
    assert fake.did == ["standby boots"] * off
    assert fake.server is first


def test_a_lab_with_one_server_has_nothing_to_restore(fake: Fake, tmp_path: Path) -> None:
    fake.standby = None  # type: ignore[attr-defined]
    one = cycle_of(fake, tmp_path)
    one._first = fake.server
    one._restore_servers()
    assert fake.did == []
