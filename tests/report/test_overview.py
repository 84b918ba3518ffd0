from raidproof.record.run import RunRecord
from raidproof.report.overview import Valid, advice, validity


def test_a_run_is_valid_only_if_its_controls_behaved(run: RunRecord, invalid_run: RunRecord) -> None:
    assert validity(run).word is Valid.YES
    assert validity(invalid_run).word is Valid.NO
    run.cycles = run.cycles[:2]
    assert validity(run).word is Valid.NOT_SHOWN


def test_the_recommended_cell_is_named_with_its_value(plan_run: RunRecord) -> None:
    first = advice(plan_run)[0]
    [best] = first.cells
    cell = plan_run.cells[best.number - 1]
    assert (best.name, cell.rank) == (cell.name, 1)
    assert "fastest of those shown SAFE" in first.sentence


def test_without_a_power_cut_nothing_is_recommended(uncut_run: RunRecord) -> None:
    for one in advice(uncut_run):
        assert not one.cells
        assert one.sentence == "none: no power cut tested the configurations, so that none is shown SAFE"
