import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from raidproof.cli import completion
from raidproof.cli.completion import SCRIPTS, VARIABLE
from raidproof.cli.main import main
from raidproof.core.errors import Status

Complete = Callable[[str], list[str]]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("20260101-120000-demo", "20260102-120000-tiny"):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "report.json").write_text("{}")
    (tmp_path / "results" / "20260103-120000-began").mkdir()
    return tmp_path / "results"


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    def completed(line: str) -> list[str]:
        monkeypatch.setenv(VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit) as ended:
            main([])
        assert ended.value.code == 0
        return capsys.readouterr().out.split()

    return completed


def test_commands_and_options(complete: Complete) -> None:
    assert complete("raidproof d") == ["demo", "doctor"]
    assert complete("raidproof run --dry") == ["--dry-run"]


def test_stored_runs_the_newest_first(complete: Complete, results: Path) -> None:
    assert complete("raidproof judge 2026") == ["20260102-120000-tiny", "20260101-120000-demo"]
    assert complete("raidproof explore 20260101") == ["20260101-120000-demo"]


def test_stored_runs_of_another_directory(complete: Complete, results: Path) -> None:
    results.rename(results.with_name("kept"))
    assert complete("raidproof judge 2026") == []
    assert complete("raidproof judge --results kept 20260101") == ["20260101-120000-demo"]


def test_a_request_for_completions_imports_no_records() -> None:
    program = (
        "import sys, raidproof.cli.main\n"
        "print([name for name in ('pydantic', 'rich.console', 'raidproof.record') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("shell", SCRIPTS)
def test_each_script_requests_completions_of_the_command_as_written(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--show-completion", shell]) == Status.PASS
    script = capsys.readouterr().out
    assert f"{completion.VARIABLE}=complete_{shell}" in script
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_bash_runs_the_script(tmp_path: Path, results: Path) -> None:
    command = tmp_path / "raidproof"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m raidproof "$@"\n')
    command.chmod(0o755)
    words = "COMP_WORDS=(./raidproof judge 20260102); COMP_CWORD=2; _raidproof_completion ./raidproof"
    script = f'{SCRIPTS["bash"]}\n{words}\necho "${{COMPREPLY[@]}}"'
    ended = subprocess.run(
        [str(shutil.which("bash")), "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "20260102-120000-tiny\n"


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show-completion", "fsh"]) == Status.BAD_REQUEST
    assert "did you mean 'fish'?" in capsys.readouterr().err
