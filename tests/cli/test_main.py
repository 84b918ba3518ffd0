import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from jsonschema import Draft202012Validator

from raidproof import __version__
from raidproof.cli import main as cli
from raidproof.cli.main import cause_of, main, status_of
from raidproof.cli.project_tests import Parts, pytest_arguments, tox_arguments
from raidproof.core.errors import ProductError, RequestError, RequirementMissing, RigError, Status
from raidproof.core.waiting import wall_clock
from raidproof.record import RunRecord, RunStore
from raidproof.record.outcome import Outcome
from raidproof.record.run import SCHEMA
from raidproof.run.doctor import HostCheck
from raidproof.run.doctor import Outcome as Found
from raidproof.verdict.change.comparison import compare

HOME = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _pytests_own_signals() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def stderr_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(arguments)
    return status, capsys.readouterr().err


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = stderr_of(capsys, "dmeo")
    assert status == Status.BAD_REQUEST
    assert said == "raidproof: No such command 'dmeo'. Did you mean 'demo'?\n"


def test_an_unknown_option_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = stderr_of(capsys, "doctor", "--jsn")
    assert status == Status.BAD_REQUEST
    assert "--json" in said
    assert said.count("\n") == 1


def test_an_unknown_part_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = stderr_of(capsys, "test", "linnt")
    assert status == Status.BAD_REQUEST
    assert said.startswith("raidproof: unknown part of the tests: 'linnt' (did you mean 'lint'?")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("demo", "test", "scenarios", "doctor", "judge", "shell", "gc"))


def test_no_arguments_show_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Usage: raidproof" in capsys.readouterr().out


def test_launcher_and_program_list_the_same() -> None:
    launcher = subprocess.run([HOME / "raidproof"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  ([a-z-]+) +\w", launcher, re.MULTILINE)
    commands = {
        command.name or command.callback.__name__.replace("_", "-")
        for command in cli.app.registered_commands
        if command.callback
    }
    groups = {group.typer_instance.info.name for group in cli.app.registered_groups if group.typer_instance}
    assert set(listed) == commands | groups
    assert tuple(listed) == cli.ORDER
    for status in Status:
        assert f"{status.value} " in launcher


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == Status.PASS
    assert re.fullmatch(r"raidproof \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError("x"), Status.BAD_REQUEST),
        (RequirementMissing("x"), Status.REQUIREMENT_MISSING),
        (RigError("x"), Status.ERROR),
        (ProductError("x"), Status.FAIL),
        (OSError(errno.ENOSPC, "No space left on device"), Status.ERROR),
        (ValueError("x"), Status.ERROR),
        (KeyboardInterrupt(), Status.INTERRUPTED),
    ],
)
def test_status_says_whose_fault(error: BaseException, status: Status) -> None:
    assert status_of(error) == status


def test_causes_are_one_line() -> None:
    assert cause_of(OSError(errno.ENOSPC, "No space left on device", "/x/image")).startswith(
        "disk full or quota exceeded: /x/image ("
    )
    # write() and fsync() name no file.
    cause = cause_of(OSError(errno.ENOSPC, "No space left on device"))
    assert re.match(r"disk full or quota exceeded: /\S+ has the least free space, \d+ MiB \(remove files", cause)
    assert cause_of(OSError(errno.EADDRINUSE, "Address already in use")) == "Address already in use"
    assert cause_of(PermissionError(errno.EACCES, "Permission denied", "/x")) == "Permission denied: /x"
    assert cause_of(ValueError("odd")) == "internal error: ValueError: odd (--debug shows the traceback)"


def test_a_plan_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "p.toml"
    plan.write_text('title = "\\u001b[2J\\u009b31m"\n[[workload]]\ntool = "fio"\n')
    assert main(["run", str(plan), "--dry-run"]) == Status.PASS
    assert main(["demo", "--set", "\x1b[2J=1"]) == Status.BAD_REQUEST
    printed = capsys.readouterr()
    assert "\\x1b[2J\\x9b31m" in printed.out
    assert "\x1b" not in printed.out + printed.err


def break_doctor(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def examine() -> None:
        raise error

    monkeypatch.setattr("raidproof.run.doctor.examine", examine)


def test_an_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    break_doctor(monkeypatch, RigError("broken", remedy="mend it"))
    assert stderr_of(capsys, "doctor") == (Status.ERROR, "raidproof: broken (mend it)\n")


@pytest.mark.parametrize("words", [["--debug", "doctor"], ["doctor", "--debug"]])
def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    break_doctor(monkeypatch, RigError("broken"))
    with pytest.raises(RigError):
        main(words)


def test_interruption(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    break_doctor(monkeypatch, KeyboardInterrupt())
    status, said = stderr_of(capsys, "doctor")
    assert status == Status.INTERRUPTED
    assert said.startswith("raidproof: interrupted")


def test_sigterm_is_ctrl_c() -> None:
    program = (
        "import os, signal, sys, raidproof.run.doctor as doctor\n"
        "from raidproof.cli.main import main\n"
        "doctor.examine = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(main(['doctor']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == Status.INTERRUPTED
    assert ended.stderr.startswith("raidproof: interrupted")


def test_a_reader_that_went_away() -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "raidproof", "--help"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert "Traceback" not in ended.stderr
    assert ended.returncode != -signal.SIGSEGV


def test_parts_are_those_of_tox() -> None:
    parts = Parts.read((HOME / "tox.ini").read_text())
    assert tox_arguments([], parts)[-1] == "lint,type,docs,unit,core"
    assert tox_arguments(["unit"], parts)[-1] == "unit"
    assert tox_arguments(["all"], parts)[-1] == "lint,type,docs,unit,core,rest"
    assert tox_arguments(["core", "all"], parts)[-1] == "core,lint,type,docs,unit,rest"
    # Does not decide, so it is no part of them; whoever wants it says so.
    assert tox_arguments(["fuzz"], parts)[-1] == "fuzz"
    with pytest.raises(RequestError, match="unknown part of the tests: 'scenarois'"):
        tox_arguments(["scenarois"], parts)


def test_ci_and_all_run_each_part_once() -> None:
    parts = Parts.read((HOME / "tox.ini").read_text())
    assert set(parts.labels["all"]) == {*parts.usual, "rest"}
    script = (HOME / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert [line for line in script.splitlines() if line.startswith("./raidproof test")] == [
        './raidproof test 2>&1 | tee "$output" || status=$?',
        './raidproof test rest 2>&1 | tee --append "$output" || status=$?',
    ]


def test_ci_prints_the_failed_tests_and_their_reasons_last(tmp_path: Path) -> None:
    script = tmp_path / ".ci" / "run"
    script.parent.mkdir()
    shutil.copy(HOME / ".ci" / "run", script)
    program = tmp_path / "raidproof"
    program.write_text(
        "#!/bin/sh\n"
        "echo '___ test_of_something ___'; echo 'E   assert 1 == 2'; echo 'FAILED tests/test_it.py - assert 1 == 2'\n"
        'test "$2" = rest\n'
    )
    program.chmod(0o755)
    ended = subprocess.run([script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    last = ended.stdout.split("The checks failed.")[1]
    assert "___ test_of_something ___\nE   assert 1 == 2\nFAILED tests/test_it.py" in last


def test_generated_examples_are_the_same_at_each_run() -> None:
    assert settings().derandomize
    assert not settings.get_profile("fuzz").derandomize


@pytest.mark.parametrize(("tox_status", "status"), [(0, Status.PASS), (1, Status.FAIL), (5, Status.FAIL)])
def test_parts_that_fail(monkeypatch: pytest.MonkeyPatch, tox_status: int, status: Status) -> None:
    monkeypatch.setattr("tox.run.main", lambda _: tox_status)
    assert main(["test", "unit"]) == status


def test_parts_that_are_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def tox(_: list[str]) -> int:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        return 1

    monkeypatch.setattr("tox.run.main", tox)
    assert main(["test", "unit"]) == Status.INTERRUPTED
    assert capsys.readouterr().err.startswith("raidproof: interrupted")


def test_scenarios_takes_pytest_arguments() -> None:
    assert pytest_arguments(["-k", "sync"]) == ["scenarios", "-k", "sync"]
    assert pytest_arguments(["scenarios/test_x.py::test_y"]) == ["scenarios/test_x.py::test_y"]
    assert pytest_arguments(["/tmp/run/test_seed_3.py"]) == ["/tmp/run/test_seed_3.py"]


TINY = str(HOME / "scenarios" / "plans" / "tiny.toml")


@pytest.fixture
def _no_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    def booted(*_: object, **__: object) -> None:
        raise AssertionError("a plan is carried out")

    monkeypatch.setattr("raidproof.run.plan_runner.run_plan", booted)


@pytest.mark.usefixtures("_no_machines")
def test_a_dry_run_says_what_would_be_done(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", TINY, "--dry-run", "--results", str(tmp_path)]) == Status.PASS
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines() if re.match(r"\d ", line)] == [
        ["1", "5", "sync"], ["2", "5", "async"], ["3", "10", "sync"], ["4", "10", "async"]
    ]  # fmt: skip
    assert "expected: 8 repetitions, about" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_no_machines")
def test_a_dry_run_of_some_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", TINY, "--dry-run", "-k", "level=5", "--repeats", "5"]) == Status.PASS
    assert "expected: 10 repetitions" in capsys.readouterr().out


@pytest.mark.usefixtures("_no_machines")
@pytest.mark.parametrize("command", ["run", "ab"])
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_crash_states_that_machines_cannot_show_are_refused_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, dry: list[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('workload.tool = "dd"\nrun = { cut = "explore", provider = "vagrant" }\n')
    status, said = stderr_of(capsys, command, str(plan), *dry)
    assert status == Status.BAD_REQUEST
    assert "provider vagrant: crash states need the disk engine" in said
    assert "use provider uml or qemu" in said


@pytest.mark.usefixtures("_no_machines")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no-such.toml"], "no-such.toml cannot be read: No such file"),
        ([TINY, "-k", "level=7"], "-k 'level=7': no cell's name matches"),
        ([TINY, "--repeats", "0"], r"run.repeats"),
        ([TINY, "--resume"], "no run of plan tiny"),
    ],
)
def test_a_plan_that_cannot_be(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], reason: str
) -> None:
    status, said = stderr_of(capsys, "run", *arguments, "--results", str(tmp_path))
    assert status == Status.BAD_REQUEST
    assert reason in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("outcome", ["PASS", "FAIL", "ERROR", "INVALID", "INCONCLUSIVE"])
def test_a_plans_run_ends_with_its_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: str) -> None:
    record = RunRecord(run="run", started=wall_clock(), command=[], outcome=Outcome[outcome])
    monkeypatch.setattr("raidproof.run.plan_runner.run_plan", lambda *_, **__: (record, tmp_path / "report.html"))
    assert main(["run", TINY]) == Status[outcome]


def out_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command; its standard output must be one JSON document, which is returned."""
    main(arguments)
    return json.loads(capsys.readouterr().out)


def fits(name: str, document: Any) -> bool:
    schema = json.loads((HOME / "docs" / "schema" / f"{name}.schema.json").read_text())
    Draft202012Validator(schema).validate(document)
    return True


@pytest.mark.usefixtures("_no_machines")
def test_a_dry_run_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = out_of(capsys, "run", TINY, "--dry-run", "--json", "--kernel", "debian/sid", "--results", str(tmp_path))
    assert fits("dry-run", said)
    assert [cell["settings"]["level"] for cell in said["cells"]] == ["5", "5", "10", "10"]
    assert said["repetitions"] == 8
    assert said["platform"]["server"]["kernel"] == "debian/sid"


@pytest.mark.usefixtures("_no_machines")
def test_a_dry_run_as_json_says_the_rest_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected: 8 repetitions" in stderr_of(capsys, "run", TINY, "--dry-run", "--json")[1]


@pytest.mark.usefixtures("_no_machines")
def test_a_dry_run_of_two_sides_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    said = out_of(capsys, "ab", TINY, "--new", "kernel=debian/sid", "--dry-run", "--json")
    assert fits("comparison-dry-run", said)
    assert not said["alike"]
    assert [said[side]["platform"]["server"]["kernel"] for side in ("base", "new")] == [None, "debian/sid"]
    assert said["memory"] == 2 * said["base"]["memory"]


def test_a_run_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record = RunRecord(run="run", started=wall_clock(), command=[], outcome=Outcome.FAIL, reason="lost \N{EM DASH} 3")
    monkeypatch.setattr("raidproof.run.plan_runner.run_plan", lambda *_, **__: (record, tmp_path / "report.html"))
    assert main(["run", TINY, "--json"]) == Status.FAIL
    captured = capsys.readouterr()
    assert captured.out.isascii()
    assert fits("run", json.loads(captured.out))
    assert RunRecord.model_validate_json(captured.out) == record
    assert "report.html" in captured.err


def test_judge_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "made-up")
    store.save(RunRecord(run=store.path.name, started=wall_clock(), command=[]))
    said = out_of(capsys, "judge", str(store.path), "--json")
    assert fits("run", said)
    assert said["run"] == store.path.name


def test_a_bad_request_prints_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "no-such.toml", "--json"]) == Status.BAD_REQUEST
    assert capsys.readouterr().out == ""


def test_doctor_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = [HostCheck("memory", Found.MISSING, "1 GiB", "add memory")]
    monkeypatch.setattr("raidproof.run.doctor.examine", lambda: found)
    assert fits("doctor", out_of(capsys, "doctor", "--json"))


def test_versions_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    said = out_of(capsys, "version", "--json")
    assert fits("version", said)
    assert said["raidproof"] == __version__
    assert said["schemas"]["run"] == SCHEMA


def test_the_command_and_the_option_print_the_same_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["version"])
    by_command = capsys.readouterr().out
    main(["--version"])
    assert capsys.readouterr().out == by_command


def test_a_comparison_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = HOME / "tests" / "data" / "run"
    base, new = (RunRecord.model_validate_json((data / f"ab-{side}.json").read_text()) for side in ("base", "new"))
    compared = compare(base, new, name="two-ab")
    monkeypatch.setattr("raidproof.run.comparison.run_ab", lambda *_, **__: (compared, tmp_path / "comparison.html"))
    assert main(["ab", TINY, "--new", "kernel=debian/sid", "--json"]) == Status[compared.outcome.name]
    captured = capsys.readouterr()
    assert fits("comparison", json.loads(captured.out))
    assert "comparison.html" in captured.err


def test_colors_follow_the_variables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(**variables: str) -> str:
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"TERM": "xterm-256color", **variables}.items():
            monkeypatch.setenv(name, value)
        main(["judge", "tests/data/run", "--results", "."])
        return capsys.readouterr().out

    # The terminal shows verdicts and safety in colors: SGR 31 and 32, or 91 and 92.
    colored = re.compile(r"\x1b\[(?:\d+;)*[39][12]m")
    monkeypatch.chdir(HOME)
    monkeypatch.setattr("raidproof.run.run.write_report", lambda *_: Path("report.html"))
    assert "\x1b" not in shown()
    assert colored.search(shown(FORCE_COLOR="1"))
    assert not colored.search(shown(FORCE_COLOR="1", NO_COLOR="1"))
    assert "\x1b" not in shown(FORCE_COLOR="1", TERM="dumb")
