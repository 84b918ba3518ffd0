"""A second fault of the server in a run that was really recorded: the scan after it is judged like the first one."""

import json
import shutil
from pathlib import Path

import pytest

from raidproof.core.blame import Cause
from raidproof.disk.cache import CutPolicy
from raidproof.fault import FaultEffects
from raidproof.pytest_plugin.fixtures import CrashTestResult
from raidproof.record import CrashTestRecord, RunStore
from raidproof.record.outcome import Outcome
from raidproof.record.run import FaultRecord, Recovery
from raidproof.verdict.crash_test import judge_crash_test
from raidproof.verdict.evidence import ON_SERVER, CrashTestEvidence

RECORDED = Path(__file__).resolve().parents[1] / "data" / "run"
CUT = FaultEffects(server_memory_lost=True, caches=CutPolicy.DROP, nfsd_restarted=True, server_away=True)
REBOOT = FaultEffects(nfsd_restarted=True, server_away=True)
AFTER = f"{ON_SERVER} after power-cut, fault 2"


class Twice:
    """The recorded crash test with a second fault after all operations of the clients."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.cycle: CrashTestRecord = store.load().cycles[0]
        # An older record lacks the other instants of the fault.
        cut_ns = self.cycle.fault_at_ns or 0
        self.cycle.fault_begun_ns, self.cycle.fault_ended_ns, self.cycle.resumed_ns = cut_ns, cut_ns + 1, cut_ns + 2
        history = CrashTestEvidence(self.cycle, store.path).history
        last_ns = max(one.ended_ns or 0 for one in history.operations)
        files = self.cycle.files
        assert files.on_client is not None
        again = str(Path(files.on_client).with_name("on-server-after-1.json"))
        # The client's scan shows all operations, as a scan of the server after the second fault would.
        shutil.copy(store.path / files.on_client, store.path / again)
        self.second = FaultRecord(
            fault="power-cut",
            target="server",
            proof="killed",
            effects=CUT,
            begun_ns=last_ns + 1,
            at_ns=last_ns + 2,
            ended_ns=last_ns + 3,
            resumed_ns=last_ns + 4,
            recovery=Recovery(assemble_s=1.0),
            on_server_file=again,
        )
        self.cycle.during.append(self.second)

    def lose(self, file: str | None, *, since_ns: int = 0) -> None:
        """Remove the block of an fsync that began after an instant from what a scan found."""
        path = self.store.path / str(file)
        found = json.loads(path.read_text())
        evidence = CrashTestEvidence(self.cycle, self.store.path)
        worker = next(one for one in evidence.workers if one.path == "client1-0-fsync")
        mine = (
            one for one in evidence.history.operations if one.worker == worker.number and one.issued_ns >= since_ns
        )
        found[worker.key]["blocks"][next(mine).place] = 0
        path.write_text(json.dumps(found))

    def judged(self) -> Outcome:
        judge_crash_test(self.cycle, self.store.path)
        return self.cycle.outcome

    def failed(self) -> str:
        return " ".join(one.checker for one in self.cycle.verdicts if one.outcome is Outcome.FAIL)


@pytest.fixture
def twice(tmp_path: Path) -> Twice:
    return Twice(RunStore(Path(shutil.copytree(RECORDED, tmp_path / "run"))))


def test_every_promise_was_kept_twice(twice: Twice) -> None:
    assert twice.judged() is Outcome.PASS
    assert twice.second.on_server is not None
    assert twice.cycle.on_server is not None
    # Those acknowledged between the faults are bound by the second one.
    assert twice.second.on_server.acknowledged_total > twice.cycle.on_server.acknowledged_total
    assert [one.checker for one in twice.cycle.verdicts if one.checker.endswith(AFTER)]


def test_a_loss_that_only_the_second_scan_shows_is_a_failure(twice: Twice) -> None:
    twice.lose(twice.second.on_server_file)
    assert twice.judged() is Outcome.FAIL
    assert AFTER in twice.failed()
    assert twice.second.on_server is not None
    assert twice.second.on_server.lost_total > 0
    assert CrashTestResult(twice.cycle, twice.store.path).lost > 0


def test_a_disk_that_lied_only_before_the_second_cut_is_to_blame(twice: Twice) -> None:
    twice.second.disks = {"disk1": {"broken_promises": 3}}
    twice.lose(twice.second.on_server_file)
    assert twice.judged() is Outcome.FAIL
    blames = [one.blame for one in twice.cycle.verdicts if one.outcome is Outcome.FAIL and one.checker.endswith(AFTER)]
    assert {blame.cause for blame in blames if blame is not None} == {Cause.LOST_FLUSHES}


def test_an_async_export_excuses_what_the_fault_before_the_scan_lost(twice: Twice) -> None:
    twice.cycle.asked["export"]["sync"] = False
    twice.lose(twice.second.on_server_file)
    assert twice.judged() is Outcome.PASS
    assert twice.cycle.reason.startswith("measured loss")


def test_a_later_loss_of_memory_excuses_no_earlier_loss(twice: Twice) -> None:
    twice.cycle.asked["export"]["sync"] = False
    twice.cycle.effects = REBOOT
    twice.lose(twice.cycle.files.on_server)
    assert twice.judged() is Outcome.FAIL
    assert AFTER not in twice.failed()


def test_a_fault_that_keeps_memory_excuses_nothing(twice: Twice) -> None:
    twice.cycle.asked["export"]["sync"] = False
    twice.cycle.effects = twice.second.effects = REBOOT
    twice.lose(twice.second.on_server_file)
    assert twice.judged() is Outcome.FAIL


def test_a_loss_between_the_faults_is_explained_by_the_second_fault_only(twice: Twice) -> None:
    twice.cycle.asked["export"]["sync"] = False
    for file in (twice.second.on_server_file, twice.cycle.files.on_client):
        twice.lose(file, since_ns=twice.cycle.resumed_ns or 0)
    assert twice.judged() is Outcome.PASS
    twice.cycle.during.clear()
    assert twice.judged() is Outcome.FAIL
    assert "after recovery" in twice.failed()
