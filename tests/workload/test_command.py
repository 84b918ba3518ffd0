"""The workload command: the real meter on a directory of this host, and what is made of its output."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError, RigError
from raidproof.guest import application_meter
from raidproof.guest.application_meter import Dates
from raidproof.report.cells import measure
from raidproof.workload.application import ApplicationError, ApplicationSpec
from raidproof.workload.command import PRIMARY, Command, CommandSpec, meter_sample, parse_meter, percentile
from raidproof.workload.workload import Place
from tests.workload.guest import Guest, said

RECORDS = Path(__file__).resolve().parents[2] / "scenarios" / "applications" / "records.py"
OUTPUT = '{"seconds":2.5,"acknowledged_us":[1000,400000,2500000],"latency_us":[900,2000,1000]}\n'


def spec(defect: str = "", **settings: Any) -> CommandSpec:
    run = (sys.executable, RECORDS.name, "run", defect)
    return CommandSpec(files=(str(RECORDS),), run=run, check=("true",), **settings)


def measured(tmp_path: Path, asked: CommandSpec) -> "subprocess.CompletedProcess[str]":
    application = asked.application("clients")
    config = {
        "step": "prepare", "seed": 1, "seconds": asked.seconds, "directory": str(tmp_path / "data"),
        "worker": {"number": 0},
        "application": {**application.config(application.content()), "home": str(tmp_path / "home")},
    }  # fmt: skip
    for step in ("prepare", "run"):
        (tmp_path / "config.json").write_text(json.dumps({**config, "step": step}))
        argv = [sys.executable, application_meter.__file__, str(tmp_path / "config.json")]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    return ended


def test_the_meter_dates_each_operation(tmp_path: Path) -> None:
    ended = measured(tmp_path, spec(seconds=0.3))
    state = parse_meter(ended.stdout)
    assert (tmp_path / "data" / "records").stat().st_size // 9 >= len(state.acknowledged_us) > 3
    assert list(state.acknowledged_us) == sorted(state.acknowledged_us)
    assert len(state.latency_us) == len(state.acknowledged_us)
    assert min(state.latency_us) >= 0


def test_an_application_that_ends_by_itself_is_measured_until_then(tmp_path: Path) -> None:
    state = parse_meter(measured(tmp_path, spec("ends", seconds=60.0)).stdout)
    assert len(state.acknowledged_us) == 10


def test_an_application_that_dies_is_an_error(tmp_path: Path) -> None:
    ended = measured(tmp_path, spec("dies", seconds=60.0))
    assert ended.returncode == 1
    assert "ended with status 1: no more" in ended.stderr


def test_an_application_that_reports_without_end_and_ignores_sigterm_is_measured(tmp_path: Path) -> None:
    program = tmp_path / "endless.py"
    program.write_text(
        "import itertools, os, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for number in itertools.count():\n"
        "    os.write(int(os.environ['RAIDPROOF_FD']), b'begun %d\\nacknowledged %d\\n' % (number, number))\n"
    )
    endless = CommandSpec(files=(str(program),), run=(sys.executable, program.name), check=("true",), seconds=0.2)
    state = parse_meter(measured(tmp_path, endless.model_copy(update={"stop_s": 0.5})).stdout)
    assert state.acknowledged_us


def test_a_run_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    ended = measured(tmp_path, spec().model_copy(update={"run": ("./missing",)}))
    assert ended.returncode == 1
    assert "ended with status 127: ./missing: No such file or directory" in ended.stderr


def test_a_line_that_is_no_report_ends_the_meter(tmp_path: Path) -> None:
    ended = measured(tmp_path, spec("garbage", seconds=60.0))
    assert ended.returncode == 1
    assert "hello, harness" in ended.stderr


@pytest.mark.parametrize("text", ["", OUTPUT[:-9], "{}"])
def test_an_output_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(RigError, match="malformed"):
        parse_meter(text)


def test_an_application_without_acknowledgements_has_no_rate() -> None:
    with pytest.raises(ApplicationError, match="acknowledged no operation"):
        parse_meter('{"seconds":0,"acknowledged_us":[],"latency_us":[]}')


def test_rates_are_added_and_latencies_are_taken_together() -> None:
    state = parse_meter(OUTPUT)
    sample = meter_sample({"client1": state, "client2": state}, {})
    assert sample.primary == PRIMARY
    assert sample.values == {
        PRIMARY: pytest.approx(2.4), "latency_p50_ms": 1.0, "latency_p95_ms": 2.0, "latency_p99_ms": 2.0,
        "latency_max_ms": 2.0,
    }  # fmt: skip
    assert [(one.at_s, one.value) for one in sample.series] == [(1.0, 4.0), (2.0, 0.0)]


@given(st.lists(st.integers(), min_size=1), st.floats(0, 1))
def test_a_percentile_is_one_of_the_values(values: list[int], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(one <= found for one in ordered) >= share * len(ordered)


def test_dates_are_those_of_whole_lines() -> None:
    dates = Dates()
    dates.take(b"worker 0\nbegun 1\nacknow", 1000)
    dates.take(b"ledged 1\n", 4000)
    assert dates.acknowledged == [(3000, 3000)]
    with pytest.raises(ValueError, match="the line"):
        dates.take(b"acknowledged 1\n", 5000)


def test_commands_on_the_machines() -> None:
    guests = [Guest(name, lambda argv: said(argv, OUTPUT) if argv[0] == "env" else None) for name in ("c1", "c2")]
    place = Place(guests, "/mnt")
    tool = Command(spec(seconds=3))
    tool.prepare(place)
    assert tool.run(place).values[PRIMARY] == pytest.approx(1.2)
    assert "python3" in guests[0].programs
    assert not guests[1].ran
    everywhere = Command(spec(seconds=3, all_machines=True))
    everywhere.prepare(place)
    assert everywhere.run(place).values[PRIMARY] == pytest.approx(2.4)
    failing = Guest(
        "c1", lambda argv: said(argv, stderr="no python module lmdb", status=1) if argv[0] == "env" else None
    )
    with pytest.raises(ApplicationError, match="no python module lmdb"):
        tool.run(Place([failing], "/mnt"))


def test_a_cell_has_the_application_of_its_place() -> None:
    application = spec(check_s=3.0).application("server")
    assert isinstance(application, ApplicationSpec)
    assert (application.on, application.check_s) == ("server", 3.0)
    assert spec().work().durable == "each"


def test_the_rate_is_shown_per_second() -> None:
    assert measure(PRIMARY) == ("operations", "1/s")


ASKED = {"run": ["true"], "check": ["true"]}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({**ASKED, "run": "python3 a.py"}, r'^run must be a list of words, for example \["python3", "a\.py"\]$'),
        ({**ASKED, "files": "a.py"}, r'^files must be a list of words, for example \["a\.py"\]$'),
        ({"run": ["true"]}, r"^`check` is missing$"),
        ({**ASKED, "check": []}, r"^check must not be empty$"),
        (
            {**ASKED, "second": 5},
            r"^tool command has no setting 'second'; did you mean 'seconds'\? valid: all_machines, ",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        CommandSpec.model_validate(asked)
