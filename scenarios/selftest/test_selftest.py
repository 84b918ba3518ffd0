"""The command selftest finds each defect that it plants in the disks, and passes sound disks."""

import json
from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.core.errors import Status
from raidproof.core.waiting import unwinding_on_signals
from raidproof.record import RunStore
from raidproof.record.outcome import Outcome
from raidproof.record.selftest import SELFTEST, SelftestAnswer, SelftestRecord
from raidproof.run.selftest import DEFECTS


@pytest.mark.plants
def test_each_planted_defect_of_the_disks_is_found(tmp_path: Path) -> None:
    with unwinding_on_signals():
        status = main(["selftest", "--results", str(tmp_path)])
    (path,) = tmp_path.glob(f"*/{SELFTEST}")
    record = SelftestRecord.model_validate(json.loads(path.read_text()))
    assert (status, record.outcome) == (Status.PASS, Outcome.PASS), record.reason
    answers = {one.defect: one.answer for one in record.rows}
    assert answers == {None: SelftestAnswer.PASSED} | {one.name: SelftestAnswer.FOUND for one in DEFECTS}
    run = RunStore(path.parent).load()
    assert [one.name for one in run.cycles] == ["no-defect", *(one.name for one in DEFECTS)]
    assert len(list(path.parent.glob("lab*"))) == 1, "all crash tests use one lab"
