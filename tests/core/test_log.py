import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from raidproof.core import log


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> io.StringIO:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if getattr(request, "param", False) else io.StringIO()
    monkeypatch.setattr(log, "console", Console(file=stream, force_terminal=getattr(request, "param", False)))
    return stream


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    handlers, level = list(log.logger.handlers), log.logger.level
    with log.to_file(tmp_path / "run.log"):
        yield tmp_path / "run.log"
    assert not [one for one in log.logger.handlers if one not in handlers and isinstance(one, logging.FileHandler)]
    log.logger.setLevel(level)


def test_plain_lines_without_a_terminal(screen: io.StringIO) -> None:
    with log.progress("starting"):
        log.step("boot [server]")
    log.say("done")
    assert screen.getvalue() == "starting\nboot [server]\ndone\n"


@pytest.mark.parametrize("screen", [True], indirect=True)
def test_steps_replace_each_other_on_a_terminal(screen: io.StringIO) -> None:
    with log.progress("starting"):
        log.step("boot")
        with log.progress("an inner part"):
            pass
    log.say("done")
    assert screen.getvalue().endswith("done\n")
    assert "\x1b[" in screen.getvalue()


def test_a_step_is_shown_with_what_it_waits_for(screen: io.StringIO) -> None:
    log.step("boot")
    log.aside("waiting for SSH")
    assert screen.getvalue() == "boot\nwaiting for SSH\n"


@pytest.mark.parametrize("screen", [True], indirect=True)
def test_on_a_terminal_it_goes_with_the_next_step(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    with log.progress("starting"):
        assert log._status is not None
        monkeypatch.setattr(log._status, "update", shown.append)
        log.aside("waiting for a lock")
        log.step("boot")
        log.aside("waiting for SSH")
        log.step("mount")
    assert shown == ["starting; waiting for a lock", "boot", "boot; waiting for SSH", "mount"]


def test_the_file_has_everything(screen: io.StringIO, log_file: Path) -> None:
    log.say("said")
    log.step("stepped")
    log.logger.debug("detail")
    text = log_file.read_text()
    assert all(word in text for word in ("said", "stepped", "detail"))
    assert logging.getLogger("raidproof") is log.logger


@pytest.mark.parametrize(
    ("variables", "stream", "redrawn"),
    [
        ({}, Terminal(), True),
        ({}, io.StringIO(), False),
        ({"CI": "true"}, Terminal(), False),
        ({"CI": "1"}, Terminal(), False),
        ({"CI": "false"}, Terminal(), True),
        ({"TERM": "dumb"}, Terminal(), False),
        # The log of a CI job that shows colors is no terminal.
        ({"FORCE_COLOR": "1"}, io.StringIO(), False),
        ({"NO_COLOR": "1"}, Terminal(), True),
    ],
)
def test_a_log_has_no_movement_of_the_cursor(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], stream: io.StringIO, redrawn: bool
) -> None:
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(log, "console", Console(file=stream))
    assert log.redrawn() is redrawn
    with log.progress("starting"):
        log.step("boot")
    text = stream.getvalue()
    assert ("\x1b[" in text) is redrawn
    if not redrawn:
        assert text == "starting\nboot\n"
