"""Each effect that a fault may declare changes a verdict: without it the judge says no, or excuses nothing."""

import json
import shutil
from collections.abc import Callable
from errno import EEXIST, EIO, ENOSPC
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.disk.cache import CutPolicy
from raidproof.fault import FaultEffects
from raidproof.guest.ledger_format import GARBAGE
from raidproof.record import ControlSpec, CrashTestRecord, RunStore
from raidproof.record.exploration import End, Observation
from raidproof.record.observation import ArraySeen
from raidproof.record.outcome import Outcome
from raidproof.verdict.crash_test import judge_crash_test
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.verdict.oracle import Oracle
from raidproof.workload.history import Ended, History, Operation

RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"
ROT = Blame(culprit=Culprit.DISKS, cause=Cause.CHANGED_CONTENT)
WAITS = "[  181.200000] INFO: task agent.py:77 blocked for more than 120 seconds."


class Judged:
    """A crash test that was really recorded, with something changed in it."""

    def __init__(self, store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.cycle: CrashTestRecord = store.load().cycles[0]
        self.cycle.effects = FaultEffects()
        self._monkeypatch = monkeypatch

    def ends(self, **effects: Any) -> Outcome:
        """Judge it as after a fault of these effects."""
        self.cycle.effects = FaultEffects(**effects)
        judge_crash_test(self.cycle, self.store.path)
        return self.cycle.outcome

    def hold(self, key: str, state: int) -> None:
        """Let the first block of a worker be found in another state on the server."""
        path = self.store.path / (self.cycle.files.on_server or "none")
        found = json.loads(path.read_text())
        next(one for name, one in sorted(found.items()) if key in name)["blocks"][0] = state
        path.write_text(json.dumps(found))

    def fail(self, kind: str, error: int) -> None:
        """Let an operation fail after the fault; it was begun before."""
        worker = next(one["number"] for one in self.cycle.workers if one["kind"] == "metadata")
        fault_ns = self.cycle.fault_at_ns or 0
        self.cycle.fault_begun_ns, self.cycle.resumed_ns = fault_ns, fault_ns + 10**9
        failed = Operation(worker, 10**6, kind, 0, 10**6, fault_ns - 5, fault_ns + 5, Ended.FAILED, error)
        history = CrashTestEvidence(self.cycle, self.store.path).history
        more = History([*history.operations, failed], history.ends)
        self._monkeypatch.setattr(CrashTestEvidence, "history", more)

    def say(self, machine: str, line: str) -> None:
        """Let a kernel say a line, which a client's says while the server is away."""
        with (self.store.path / self.cycle.files.consoles[machine]).open("a") as console:
            console.write(f"{line}\n")
        (self.store.path / "away.log").write_text(f"{line}\n")
        self.cycle.files.away["client1"] = "away.log"


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    return Judged(RunStore(Path(shutil.copytree(RECORDED, tmp_path / "run"))), monkeypatch)


def server_memory_lost(judged: Judged) -> None:
    judged.cycle.asked["export"]["sync"] = False
    judged.hold("fsync", 0)
    assert judged.ends() is Outcome.FAIL
    assert judged.ends(server_memory_lost=True) is Outcome.PASS


def client_memory_lost(judged: Judged) -> None:
    judged.cycle.fault_target = "client2"
    judged.hold("client2-0-fsync", 9999)
    assert judged.ends() is Outcome.FAIL
    assert judged.ends(client_memory_lost=True) is Outcome.PASS


def caches(judged: Judged) -> None:
    judged.cycle.asked["export"]["sync"] = False
    judged.hold("fsync", GARBAGE)
    assert judged.ends(server_memory_lost=True, caches=CutPolicy.RANDOM) is Outcome.FAIL
    assert judged.ends(server_memory_lost=True, caches=CutPolicy.TORN) is Outcome.PASS


def nfsd_restarted(judged: Judged) -> None:
    judged.fail("mkdir", EEXIST)
    assert judged.ends() is Outcome.FAIL, "a session's reply cache knows the request"
    assert judged.ends(nfsd_restarted=True) is Outcome.PASS


def server_away(judged: Judged) -> None:
    judged.say("client1", WAITS)
    assert judged.ends() is Outcome.FAIL
    assert judged.ends(server_away=True) is Outcome.PASS


def lease_lost(judged: Judged) -> None:
    judged.fail("o_append", EIO)
    assert judged.ends() is Outcome.FAIL
    assert judged.ends(lease_lost=True) is Outcome.PASS


def errors(judged: Judged) -> None:
    judged.fail("mkdir", ENOSPC)
    assert judged.ends() is judged.ends(errors=frozenset({EIO})) is Outcome.FAIL
    assert judged.ends(errors=frozenset({ENOSPC})) is Outcome.PASS


def kernel_messages(judged: Judged) -> None:
    judged.say("server", "md/raid:md0: Disk failure on vdb, disabling device.")
    assert judged.ends() is Outcome.FAIL
    assert judged.ends(kernel_messages=("Disk failure on vdb",)) is Outcome.PASS


def member_missing(judged: Judged) -> None:
    judged.cycle.fault_begun_ns = 1
    path = judged.store.path / (judged.cycle.files.on_server or "none")
    seen = Observation(end=End.READ, found=json.loads(path.read_text()), degraded={"/dev/md0": 1})
    ends = []
    for missing in (False, True):
        judged.cycle.effects = FaultEffects(member_missing=missing)
        oracle = Oracle.of(judged.cycle, judged.store.path)
        ends.append(oracle.judge(seen, judged.cycle.fault_at_ns or 0).outcome)
    assert ends == [Outcome.FAIL, Outcome.PASS]


def unreadable_blocks(judged: Judged) -> None:
    judged.cycle.observed.array = ArraySeen(mismatch_cnt={"/dev/md0": 0}, bad_blocks={"disk1": "512000 8"})
    assert judged.ends() is Outcome.FAIL
    assert judged.ends(unreadable_blocks=True) is Outcome.PASS


def content_changed(judged: Judged) -> None:
    judged.cycle.observed.array = ArraySeen(mismatch_cnt={"/dev/md0": 8}, repaired={"/dev/md0": 0})
    assert judged.ends() is Outcome.FAIL
    assert judged.ends(content_changed=True) is Outcome.PASS


def explanation(judged: Judged) -> None:
    judged.cycle.control = ControlSpec(expects_loss=True, expects_blame=Culprit.DISKS)
    judged.hold("fsync", 0)
    assert judged.ends() is Outcome.FAIL
    assert judged.ends(explanation=ROT) is Outcome.PASS


EACH: list[Callable[[Judged], None]] = [
    server_memory_lost, client_memory_lost, caches, nfsd_restarted, server_away, lease_lost, errors, kernel_messages,
    member_missing, unreadable_blocks, content_changed, explanation,
]  # fmt: skip


@pytest.mark.parametrize("effect", EACH, ids=lambda one: one.__name__)
def test_an_effect_changes_a_verdict(judged: Judged, effect: Callable[[Judged], None]) -> None:
    effect(judged)


def test_each_effect_has_such_a_test() -> None:
    assert {one.__name__ for one in EACH} == set(FaultEffects.model_fields)
