"""Records of before are read, judged the same, and written as those of today."""

import json
import shutil
from errno import ENOSPC, ETIMEDOUT
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.blame import Blame, Cause, Culprit, text_of
from raidproof.disk.cache import CutPolicy
from raidproof.fault import FaultEffects
from raidproof.fault.machine import PANIC
from raidproof.record import CrashTestRecord, RunStore
from raidproof.record.cell import Repetition
from raidproof.record.older import EFFECTS
from raidproof.record.run import ControlSpec
from raidproof.report.html import render
from raidproof.verdict.conditions import conditions_of
from raidproof.verdict.evidence import CrashTestEvidence
from raidproof.verdict.run import judge_run

DATA = Path(__file__).resolve().parents[1] / "data"
BARE = {"name": "x", "title": "x", "asked": {"export": {"sync": True}}, "cache_mode": "volatile", "seed": 1}
SENTENCES = {
    Cause.LOST_FLUSHES: "acknowledged flushes and kept nothing",
    Cause.MISPLACED_WRITES: "writes were not put where they belong",
    Cause.SECOND_MEMBER_FAILED: "a member failed before the one that had failed first was rebuilt",
    Cause.UNREADABLE_SECTORS: "sectors were unreadable that a rebuild needed",
    Cause.CHANGED_CONTENT: "what they gave back was not what had been written",
    Cause.NO_FLUSHES_SENT: "no flushes were sent to the disks",
}
"""The values of the causes in older records."""
JUDGED = {"verdicts", "outcome", "on_server", "on_client", "timeline", "loss_window_s"}


def cycle(**fields: Any) -> CrashTestRecord:
    return CrashTestRecord.model_validate({**BARE, "fault": "power-cut", **fields})


@pytest.fixture(params=["run", "older"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    """A run that was recorded when faults were known by name, and observations by words."""
    return RunStore(Path(shutil.copytree(DATA / request.param, tmp_path / "run")))


def test_an_older_run_is_judged_as_it_was(store: RunStore) -> None:
    raw = json.loads((store.path / "report.json").read_text())
    assert all("checks" in one and "effects" not in one for one in raw["cycles"])
    before, run = store.load(), store.load()
    judge_run(run, store.path)
    # Older records lack the kind of a promise; reasons and descriptions are texts for people.
    descriptions = {"examples", "invented"}
    left_out: Any = {"verdicts": {"__all__": {"kind", "reason"}}, "on_server": descriptions, "on_client": descriptions}
    for was, again in zip(before.cycles, run.cycles, strict=True):
        now, kept = (one.model_dump(include=JUDGED, exclude=left_out) for one in (again, was))
        for one in (now, kept):
            one["verdicts"].sort(key=itemgetter("checker"))
        assert now == kept
    assert run.outcome == before.outcome


def test_an_older_run_that_is_stored_again_is_the_same_run(store: RunStore) -> None:
    run = store.load()
    judge_run(run, store.path)
    page = render(run)
    store.save(run)
    again = store.load()
    assert again == run
    assert render(again) == page
    judge_run(again, store.path)
    assert again == run
    raw = json.loads((store.path / "report.json").read_text())
    assert all("checks" not in one and "effects" in one for one in raw["cycles"])


def test_every_observation_of_an_older_run_is_read() -> None:
    raw = json.loads((DATA / "older" / "report.json").read_text())["cycles"][0]
    (record,) = RunStore(DATA / "older").load().cycles
    assert len(raw["checks"]) == len(record.observed.model_fields_set) + 1, "alarms are effects"
    assert dict(record.files.by_title()) == raw["files"]
    seen = record.observed
    assert seen.members is not None
    assert seen.members.start is not None
    assert seen.members.start["disk0"].model_dump() == raw["checks"]["members"]["start"]["disk0"]
    assert seen.calls == raw["checks"]["calls"]
    assert seen.read_back is not None
    assert seen.read_back.model_dump() == raw["checks"]["read back"]


@pytest.mark.parametrize("name", sorted(EFFECTS))
def test_a_fault_is_known_by_its_name(name: str) -> None:
    assert cycle(fault=name).effects == EFFECTS[name]


def test_a_fault_that_the_judge_did_not_know_excuses_nothing() -> None:
    assert cycle(fault="clock-step").effects == FaultEffects()
    assert cycle(fault="none").effects == FaultEffects()


def test_only_of_a_power_cut_the_policy_counts() -> None:
    assert cycle(policy="torn").effects.caches is CutPolicy.TORN
    assert cycle(policy="torn").policy == "torn"
    assert cycle(fault="kernel-panic", policy="torn").effects.caches is None


def test_what_stood_beside_the_name_is_an_effect() -> None:
    record = cycle(
        fault="kernel-panic",
        checks={"alarms": ["Disk failure on"], "export": ["sync"]},
        allowed_errors=[ENOSPC],
        allowed_by_fault=[ETIMEDOUT],
        explanation="the disks: rot",
        during=[{"fault": "lease-expiry", "target": "client2", "proof": "so", "lasted": "still so"}],
    )
    assert record.effects.kernel_messages == (PANIC, "Disk failure on")
    assert record.observed.export == ["sync"]
    assert record.during[0].lasted == "still so"
    conditions = conditions_of(CrashTestEvidence(record, Path()))
    during, main = conditions.windows
    assert (during.effects.errors, during.begun_ns) == (frozenset({ENOSPC}), 0)
    assert (main.effects.errors, main.begun_ns) == (frozenset({ETIMEDOUT}), None)
    assert conditions.explanation == Blame(culprit=Culprit.DISKS, detail="rot")
    assert during.effects.lease_lost


def test_a_client_without_power_is_still_named() -> None:
    assert cycle(fault="client-power-cut", lost_power=["client2"]).lost_power == ["client2"]
    assert cycle(fault="client-power-cut").lost_power == []


def test_files_are_found_by_what_they_were_called() -> None:
    files = {"fio": "a", "fio 1": "b", "server away client1": "c", "console server": "d", "write log": "e"}
    record = cycle(files=files)
    assert record.files.fio == ["a", "b"]
    assert (record.files.away, record.files.consoles) == ({"client1": "c"}, {"server": "d"})
    assert record.files.write_log == "e"


@pytest.mark.parametrize("cause", Cause)
def test_an_older_sentence_is_read_as_its_cause(cause: Cause) -> None:
    sentence = SENTENCES[cause]
    stored = json.dumps({"culprit": "the disks", "cause": sentence, "members": ["disk0"]})
    blame = Blame.model_validate_json(stored)
    assert blame == Blame(culprit=Culprit.DISKS, cause=cause, members=("disk0",))
    assert json.loads(blame.model_dump_json())["cause"] == cause.value
    assert Blame.model_validate({"culprit": Culprit.DISKS, "cause": sentence}).cause is cause
    control = ControlSpec.model_validate_json(json.dumps({"expects_loss": True, "expects_blame": sentence}))
    assert control.expects_blame is cause
    assert ControlSpec.model_validate_json(control.model_dump_json()) == control


@pytest.mark.parametrize("cause", Cause)
def test_a_cause_is_stored_as_a_short_name_and_printed_in_words(cause: Cause) -> None:
    assert cause.value == cause.name.lower().replace("_", "-")
    assert str(Blame(culprit=Culprit.DISKS, cause=cause)) == f"the disks: {cause.text}"
    assert text_of(cause) == cause.text != cause.value


def test_an_unknown_cause_is_refused() -> None:
    with pytest.raises(ValueError, match="cause"):
        Blame.model_validate({"culprit": "the disks", "cause": "worn out"})


def test_an_expected_blame_of_an_older_record_is_its_culprit() -> None:
    control = ControlSpec.model_validate({"expects_loss": True, "expects_blame": "the disks: disk0 kept nothing"})
    assert control.expects_blame is Culprit.DISKS
    assert text_of(Culprit.DISKS) == "the disks"


def test_a_record_without_lives_and_moments_is_read() -> None:
    """Fields that were added later are unknown in an older record, and not empty."""
    assert cycle().lives is None
    assert Repetition.model_validate({"round": 1, "value": 2.0}).moments == []
    life = {"client": "client1", "path": "f", "kind": "fsync", "block": 0, "generation": 1, "found": "is missing"}
    read = cycle(lives=[{**life, "written_s": -1.0}])
    assert CrashTestRecord.model_validate_json(read.model_dump_json()) == read
    assert read.lives is not None
    assert read.lives[0].requests is None
