"""A plan, a comparison and an exploration of before, recorded by the code of then, are judged as they were.

Each archive in ``tests/data/older`` is what one command left, without pages, logs of the rig and paths of its host. In
the write log of the exploration only the headers of ledger blocks are left of the data.
"""

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from raidproof.cli.main import main
from raidproof.core.blame import Blame, Culprit
from raidproof.core.errors import Status
from raidproof.crash.journal import lines_of
from raidproof.crash.states import Recording
from raidproof.crash.stats import ExplorationStats
from raidproof.disk.writelog import WriteLog
from raidproof.record import RunRecord, RunStore
from raidproof.record.comparison import ComparisonRecord, Method, PairFinding
from raidproof.record.exploration import ExplorationRecord
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.change.comparison import compare
from raidproof.verdict.exploration import conclude_exploration
from raidproof.verdict.oracle import Oracle
from raidproof.verdict.run import judge_run

OLDER = Path(__file__).resolve().parents[1] / "data" / "older"
CELL = {"name", "rank", "rankable", "limit", "lost", "lost_everything", "outcome"}
CYCLE = {"outcome", "on_server", "on_client", "timeline", "loss_window_s"}
TEXTS = {"reason", "flag", "cause"}
"""Fields for people, whose words change."""
DESCRIPTIONS: Any = {"on_server": {"examples", "invented"}, "on_client": {"examples", "invented"}}
"""Descriptions for people in the evidence of a crash test, whose words change, too."""
RENAMED = {
    "nothing is there": "the block is missing",
    "the directory is not there": "the directory is missing",
    "the record is not there": "the record is missing",
}
"""Today's words for each kind of damage in the older exploration."""
COMMA = "fallocate, punch hole"
"""A promise whose loss was no failure of its own then, because its name was cut off at the comma."""


def unpacked(name: str, path: Path) -> Path:
    with tarfile.open(OLDER / f"{name}.tar.xz") as archive:
        archive.extractall(path, filter="data")
    return path / name


def blamed(blame: Blame | None) -> tuple[Culprit, tuple[str, ...]] | None:
    """Return the culprit of a blame and the blamed disks; older records have the disks in their sentence only."""
    if blame is None:
        return None
    return blame.culprit, blame.members or tuple(re.findall(r"disk\d+", blame.detail))


def judged(verdict: Verdict) -> tuple[str, ...]:
    """Return the parts of a verdict that are no text for users, as text: their order is of no importance."""
    return verdict.checker, verdict.outcome, str(blamed(verdict.blame)), str(verdict.of_the_stack)


def judged_again(store: RunStore) -> tuple[RunRecord, RunRecord]:
    before, again = store.load(), store.load()
    for cycle in again.cycles:
        cycle.verdicts, cycle.outcome, cycle.on_server, cycle.on_client = [], Outcome.INCONCLUSIVE, None, None
    for cell in again.cells:
        cell.rank, cell.rankable, cell.outcome = None, False, Outcome.INCONCLUSIVE
    again.outcome = Outcome.INCONCLUSIVE
    judge_run(again, store.path)
    return before, again


def require_same(before: RunRecord, again: RunRecord) -> None:
    assert again.outcome is before.outcome
    for was, now in zip(before.cycles, again.cycles, strict=True):
        assert sorted(map(judged, now.verdicts)) == sorted(map(judged, was.verdicts))
        kept, found = (one.model_dump(include=CYCLE, exclude=DESCRIPTIONS) for one in (was, now))
        assert found == kept
    for one, other in zip(before.cells, again.cells, strict=True):
        assert other.model_dump(include=CELL) == one.model_dump(include=CELL)


def test_an_older_plan_has_the_same_verdicts_and_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = unpacked("plan", tmp_path)
    before, again = judged_again(RunStore(path))
    require_same(before, again)
    assert [(cell.name, cell.rank) for cell in again.cells] == [("level=1", 1), ("level=5", 2)]
    assert [cycle.control is not None for cycle in again.cycles] == [True, True, False, False]
    assert any(verdict.blame is not None for verdict in again.cycles[0].verdicts)
    assert main(["judge", str(path)]) == Status.PASS
    assert "fastest: level=1" in capsys.readouterr().out
    assert (path / "report.html").is_file()


def test_an_older_comparison_finds_the_same(tmp_path: Path) -> None:
    root = unpacked("ab", tmp_path)
    (stored,) = root.glob("*/comparison.json")
    before = ComparisonRecord.model_validate_json(stored.read_text())
    sides = []
    for side in (before.base, before.new):
        was, now = judged_again(RunStore(root / side.run))
        require_same(was, now)
        sides.append(now)
    again = compare(*sides, name=before.name)
    # The older code compared ranges, and stored no rounds.
    texts = {*TEXTS, "rounds"}
    left_out: Any = {
        "reason": True,
        "method": True,
        "base": TEXTS,
        "new": TEXTS,
        "pairs": {
            "__all__": {"why": True, "finding": True, "change": True, "more": True, "base": texts, "new": texts}
        },
    }
    assert again.model_dump(exclude=left_out) == before.model_dump(exclude=left_out)
    assert (before.schema_version, before.method, again.method) == (2, Method.RANGES, Method.PERMUTATION)
    assert {pair.finding for pair in before.pairs} <= {PairFinding.UNDECIDED, PairFinding.NOT_COMPARABLE}


def test_an_older_exploration_finds_the_same(tmp_path: Path) -> None:
    path = unpacked("explore", tmp_path)
    before, again = judged_again(RunStore(path))
    require_same(before, again)
    stored = ExplorationRecord.model_validate_json((path / "explore-lying.json").read_text())
    assert conclude_exploration(stored)[0] is stored.outcome
    stats = explored_again(path, again, stored)
    assert (stats.judged, stats.broken, stats.checked) == (stored.judged, stored.broken, stored.checked)
    assert {mark.name: mark for mark in stats.marks} == {mark.name: mark for mark in stored.marks}
    assert (dict(stats.policies), dict(stats.tested)) == (stored.policies, stored.tested)
    assert (stats.loss, stats.undecided, stats.redundancy) == (stored.loss, stored.undecided, stored.redundancy)
    found: dict[tuple[str, str, str], tuple[int, list[str], Blame | None]] = {
        group.damage: (group.count, group.names, group.first.judgement.blame) for group in stats.failures()
    }
    assert {key for key in found if key[0] == COMMA} == {(COMMA, "the directory is missing", "read")}
    assert {key: (count, names, blamed(blame)) for key, (count, names, blame) in found.items() if key[0] != COMMA} == {
        (one.promise, RENAMED[one.damage], one.end): (one.states, one.examples, blamed(one.blame))
        for one in stored.failures
    }


def explored_again(path: Path, run: RunRecord, stored: ExplorationRecord) -> ExplorationStats:
    """Judge every state of a journal again."""
    recording = Recording(WriteLog(path / stored.log))
    (cycle,) = run.cycles
    stats = ExplorationStats(recording, Oracle.of(cycle, path, recording.corrupted_ns))
    seen = {}
    for line in lines_of(path / "explore-lying" / "states.jsonl"):
        if line.observation is not None:
            seen[line.digest] = line.observation
        stats.add(line.choice, line.crash, line.digest, seen[line.digest], checked=line.observation is not None)
    return stats
