import json
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from raidproof.cli.output import emit, say, screen


class Made(BaseModel):
    value: float
    text: str = "\N{GREEK SMALL LETTER MU}s"


@dataclass
class Plain:
    value: int


def test_text_alone(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Made(value=1), as_json=False, show=lambda console: console.print("shown"))
    assert capsys.readouterr() == ("shown\n", "")


def test_json_and_the_text_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Made(value=1), as_json=True, show=lambda console: console.print("shown"))
    captured = capsys.readouterr()
    assert captured.err == "shown\n"
    assert captured.out.isascii()
    assert Made.model_validate_json(captured.out) == Made(value=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_json_lacks(capsys: pytest.CaptureFixture[str], value: float) -> None:
    emit([Made(value=value)], as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["value"] is None


def test_a_list_of_dataclasses(capsys: pytest.CaptureFixture[str]) -> None:
    emit([Plain(1), Plain(2)], as_json=True)
    assert json.loads(capsys.readouterr().out) == [{"value": 1}, {"value": 2}]


def test_lines_are_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    line = "[bold] " + "word " * 50
    say(screen(as_json=False), [line])
    assert capsys.readouterr().out == line + "\n"
