"""The verdict on the readings of two clients: which one is wrong, and that a difference is never passed."""

import json
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.blame import Culprit
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.checks.second_reader import SecondReader, comparable, differing_workers, judge_second_reader
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import CrashTestEvidence

BLOCKS = {"blocks": [1, 2, 0], "names": ["f0"]}
OTHER = {"blocks": [1, 1, 0], "names": ["f0"]}
DIRECTORY, FILE = 0o040755, 0o100644
TREE: dict[str, Any] = {"d": [DIRECTORY, 4096, 3, None], "d/a": [FILE, 10, 1, "+", "value"]}
READ = {"w@0": BLOCKS, "tree": TREE}


def test_equal_readings_pass() -> None:
    verdict = judge_second_reader(READ, READ, None)
    assert verdict.outcome is Outcome.PASS
    assert "2 workers" in verdict.reason


def test_a_copy_lacks_attributes_and_sizes_of_directories() -> None:
    copied = {"d": [DIRECTORY, 60, 2, None], "d/a": [FILE, 10, 1, "+", None]}
    assert comparable(copied) == comparable(TREE)
    assert judge_second_reader(READ, {**READ, "tree": copied}, None).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "copied",
    [
        {"d": TREE["d"]},
        {**TREE, "d": [0o040700, 4096, 3, None]},
        {**TREE, "d/a": [FILE, 9, 1, "+", "value"]},
        {**TREE, "d/a": [FILE, 10, 2, "+", "value"]},
        {**TREE, "d/a": [FILE, 10, 1, "other", "value"]},
    ],
    ids=["missing", "mode", "size", "links", "content"],
)
def test_every_other_difference_of_a_tree_is_found(copied: dict[str, Any]) -> None:
    assert differing_workers(READ, {**READ, "tree": copied}) == ["tree"]


def test_a_worker_that_only_one_client_sees_is_a_difference() -> None:
    assert differing_workers(READ, {"tree": TREE}) == ["w@0"]
    assert differing_workers({"tree": TREE}, READ) == ["w@0"]


def test_the_kernels_client_is_wrong_if_the_server_has_what_libnfs_reads() -> None:
    verdict = judge_second_reader({**READ, "w@0": OTHER}, READ, READ)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.blame is not None
    assert verdict.blame.culprit is Culprit.CLIENT
    assert "w@0" in verdict.reason


def test_the_server_is_wrong_if_no_client_reads_what_it_has() -> None:
    verdict = judge_second_reader({**READ, "w@0": OTHER}, {**READ, "w@0": None}, READ)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.blame is not None
    assert verdict.blame.culprit is Culprit.SERVER


@pytest.mark.parametrize(
    ("libnfs", "again", "outcomes"),
    [
        (None, None, []),
        (READ, None, [Outcome.PASS]),
        ({**READ, "w@0": OTHER}, {**READ, "w@0": OTHER}, [Outcome.FAIL]),
        ({**READ, "w@0": OTHER}, READ, [Outcome.INCONCLUSIVE]),
    ],
)
def test_the_stored_readings_are_judged(tmp_path: Path, libnfs: Any, again: Any, outcomes: list[Outcome]) -> None:
    files = {"on_client": READ, "by_libnfs": libnfs, "on_server_again": again}
    for name, found in files.items():
        (tmp_path / name).write_text(json.dumps(found))
    record = {"name": "x", "title": "x", "asked": {}, "cache_mode": "volatile", "fault": "power-cut", "seed": 1}
    cycle = CrashTestRecord.model_validate(
        {**record, "files": {name: name for name, found in files.items() if found is not None}}
    )
    found = SecondReader().judge(CrashTestEvidence(cycle, tmp_path), Conditions(export_sync=True))
    assert [one.outcome for one in found] == outcomes


def test_a_difference_of_libnfs_alone_decides_nothing() -> None:
    verdict = judge_second_reader(READ, {**READ, "w@0": OTHER}, READ)
    assert (verdict.outcome, verdict.blame) == (Outcome.INCONCLUSIVE, None)
    assert judge_second_reader(READ, {**READ, "w@0": OTHER}, None).outcome is Outcome.INCONCLUSIVE
