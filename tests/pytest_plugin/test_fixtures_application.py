"""The fixture cycle takes an application."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.guest.ledger_format import APPLICATION
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.workload.application import ApplicationSpec
from raidproof.workload.ledger import KINDS


def test_an_application_replaces_the_ledgers_own_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.pytest_plugin.fixtures.check_directed", lambda *_: None)
    asked: list[CrashTestSpec] = []
    current_run = cast("Run", SimpleNamespace(cycle=asked.append, store=SimpleNamespace(path=tmp_path)))
    application = ApplicationSpec(run=("run",), check=("check",))
    cycle = CrashTestRunner(current_run, "orders")
    cycle(stack_of(), application=application)
    cycle(stack_of())
    assert asked[0].ledger.kinds == (APPLICATION,)
    assert asked[0].ledger.application == application
    assert asked[1].ledger.kinds == KINDS
