"""The chart of the configurations that advise compared."""

from raidproof.report.advice import render
from raidproof.report.charts import Figures, front
from tests.report.test_advice import BEST, a_record


def test_each_configuration_with_speed_and_loss_is_a_point() -> None:
    record = a_record()
    best, current = record.configurations
    record.configurations = [best.model_copy(update={"least": 90.0, "greatest": 120.0}), current]
    figures = Figures()
    chart = front.chart_of(record, figures)
    assert chart is not None
    (point,) = figures.data["points"]  # the other one has no known loss
    assert (point["name"], point["kind"], point["safety"]) == ("chunk=64KiB wsize=1MiB", "recommended", "SAFE")
    assert (point["speed"], point["low"], point["high"], point["lost_s"]) == (100.0, 90.0, 120.0, 0.0)
    assert point["unit"] == "MB/s"
    assert "100 MB/s, 0 s of acknowledged work lost, SAFE" in chart.description
    assert record.recommended == BEST
    assert 'data-spec="front-chart"' in render(record)


def test_a_record_without_losses_has_no_chart() -> None:
    record = a_record()
    record.configurations = [one.model_copy(update={"lost_s": None}) for one in record.configurations]
    assert front.chart_of(record, Figures()) is None
    assert "front-chart" not in render(record)
