import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from raidproof.cli.main import main
from raidproof.cli.project_tests import pytest_arguments
from raidproof.core.errors import Status
from raidproof.core.waiting import wall_clock
from raidproof.record.finding import Answer, Finding, FindingsRecord, KernelAnswer
from raidproof.run import named

ID = "md-early-commit-block"


@pytest.mark.parametrize("words", [[], ["list"]])
def test_findings_are_listed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", *words]) == Status.PASS
    assert ID in capsys.readouterr().out


def test_a_finding_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", "list", ID, "--json"]) == Status.PASS
    (found,) = json.loads(capsys.readouterr().out)
    assert Finding.model_validate(found).reproducer is not None


def test_an_unknown_finding_is_a_bad_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", "list", "md-early"]) == Status.BAD_REQUEST
    assert "no finding is named 'md-early'" in capsys.readouterr().err


def test_an_unknown_kernel_is_a_bad_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", "run", ID, "--kernel", "debian/sidd"]) == Status.BAD_REQUEST
    assert "debian/sidd" in capsys.readouterr().err


def test_an_installed_package_has_no_findings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(named, "HOME", tmp_path)
    assert main(["findings"]) == Status.BAD_REQUEST
    assert "not part of an installed raidproof" in capsys.readouterr().err


def test_a_document_that_is_out_of_date_is_found_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "findings.md").write_text("old")
    (tmp_path / "tox.ini").touch()
    (tmp_path / "findings").symlink_to(named.HOME / "findings")
    monkeypatch.setattr(named, "HOME", tmp_path)
    assert main(["findings", "docs", "--check"]) == Status.FAIL
    assert "run ./raidproof findings docs" in capsys.readouterr().err
    assert main(["findings", "docs"]) == Status.PASS
    assert main(["findings", "docs", "--check"]) == Status.PASS


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer.AFFECTED, Status.FAIL),
        (Answer.UNDECIDED, Status.INCONCLUSIVE),
        (Answer.NOT_AFFECTED, Status.PASS),
    ],
)
def test_the_exit_status_follows_the_answers(
    answer: Answer, status: Status, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(found: Sequence[Finding], kernels: Sequence[str], *_: object, **__: object) -> tuple[FindingsRecord, Path]:
        answers = [KernelAnswer(finding=one.id, kernel=kernels[0], answer=answer, reason="r") for one in found]
        ids = tuple(one.id for one in found)
        record = FindingsRecord(
            started=wall_clock(), command=["./raidproof"], kernels=tuple(kernels), findings=ids, answers=answers
        )
        return record, Path("results/x/findings.json")

    monkeypatch.setattr("raidproof.run.doctor.require_host", lambda: None)
    monkeypatch.setattr("raidproof.run.findings.run_findings", run)
    assert main(["findings", "run", ID, "--kernel", "debian/sid"]) == status
    assert "stored: results/x/findings.json" in capsys.readouterr().out
    assert main(["findings", "run", ID, "--json"]) == status
    assert FindingsRecord.model_validate_json(capsys.readouterr().out).findings == (ID,)


def test_a_reproducer_runs_without_the_scenarios() -> None:
    assert pytest_arguments(["findings/test_nfsd.py"]) == ["findings/test_nfsd.py"]
    assert pytest_arguments(["-k", "x"]) == ["scenarios", "-k", "x"]
