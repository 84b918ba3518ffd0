from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.waiting import wall_clock
from raidproof.record.finding import Answer, FindingsRecord, KernelAnswer, Layer, load_finding, load_findings
from raidproof.record.outcome import Outcome

TEXT = """
title = "md forgets"
short = "forgets"
layer = "md"
wrong = "w"
software = "s"
reproduce = "r"
evidence = "e"
state = "s"
"""
WITHOUT = f'{TEXT}no_reproducer = "seen once"\n'
WITH = f'{TEXT}[reproducer]\nnode = "findings/test_x.py::test_y"\nanswers = {{ PASS = "affected" }}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "md-b.toml").write_text(WITH)
    (tmp_path / "md-a.toml").write_text(WITHOUT)
    (tmp_path / "client-a.toml").write_text(WITHOUT.replace('"md"', '"NFS client"'))
    return tmp_path


def test_findings_are_in_the_order_of_the_layers(folder: Path) -> None:
    found = load_findings(folder)
    assert [one.id for one in found] == ["md-a", "md-b", "client-a"]
    assert found[2].layer is Layer.NFS_CLIENT
    assert found[1].reproducer is not None
    assert found[1].reproducer.answers == {Outcome.PASS: Answer.AFFECTED}
    assert [one.id for one in load_findings(folder, ["md-b"])] == ["md-b"]


def test_an_unknown_finding_is_refused(folder: Path) -> None:
    with pytest.raises(RequestError, match=r"no finding is named 'md-c' .*did you mean 'md-b'"):
        load_findings(folder, ["md-c"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{WITHOUT}typo = 1\n", "typo: Extra inputs"),
        (WITHOUT.replace('"md"', '"dm"'), "layer: "),
        ("title = ", "Invalid value"),
        (TEXT, "either a reproducer or the field no_reproducer"),
        (f'no_reproducer = "x"\n{WITH}', "either a reproducer or the field no_reproducer"),
    ],
)
def test_what_is_no_finding_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "md-x.toml"
    path.write_text(text)
    with pytest.raises(RequestError, match=words):
        load_finding(path)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([Answer.NOT_AFFECTED, Answer.AFFECTED, Answer.UNDECIDED], Outcome.FAIL),
        ([Answer.NOT_AFFECTED, Answer.UNDECIDED], Outcome.INCONCLUSIVE),
        ([Answer.NOT_AFFECTED], Outcome.PASS),
        ([], Outcome.INCONCLUSIVE),
    ],
)
def test_the_outcome_of_a_matrix(answers: list[Answer], outcome: Outcome) -> None:
    record = FindingsRecord(
        started=wall_clock(),
        command=["./raidproof"],
        kernels=("k",),
        findings=tuple(map(str, range(len(answers)))),
        answers=[
            KernelAnswer(finding=str(number), kernel="k", answer=answer, reason="r")
            for number, answer in enumerate(answers)
        ],
    )
    assert record.outcome is outcome
    assert FindingsRecord.model_validate_json(record.model_dump_json()) == record
    assert record.answer("0", "other") is None
