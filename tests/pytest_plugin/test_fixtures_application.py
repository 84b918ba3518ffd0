"""The fixture cycle takes a ledger or an application."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.guest.ledger_format import APPLICATION
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.workload.application import ApplicationSpec
from raidproof.workload.ledger import KINDS, LedgerSpec


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CrashTestSpec]:
    """The crash tests that run."""
    monkeypatch.setattr("raidproof.pytest_plugin.fixtures.check_directed", lambda *_: None)
    return []


def run_of(asked: list[CrashTestSpec], path: Path) -> Run:
    return cast("Run", SimpleNamespace(cycle=asked.append, store=SimpleNamespace(path=path)))


def test_an_application_replaces_the_ledgers_own_workers(asked: list[CrashTestSpec], tmp_path: Path) -> None:
    application = ApplicationSpec(run=("run",), check=("check",))
    cycle = CrashTestRunner(run_of(asked, tmp_path), "orders")
    cycle(stack_of(), application=application)
    cycle(stack_of())
    assert asked[0].ledger.kinds == (APPLICATION,)
    assert asked[0].ledger.application == application
    assert asked[1].ledger.kinds == KINDS


def test_the_default_ledger_is_that_of_calls_that_have_none(asked: list[CrashTestSpec], tmp_path: Path) -> None:
    few, one = LedgerSpec(kinds=("fsync", "names")), LedgerSpec(kinds=("close",))
    cycle = CrashTestRunner(run_of(asked, tmp_path), "few", ledger=few)
    cycle(stack_of())
    cycle(stack_of(), ledger=one)
    cycle(stack_of(), application=ApplicationSpec(run=("run",), check=("check",)))
    assert [spec.ledger.kinds for spec in asked] == [few.kinds, one.kinds, (APPLICATION,)]
