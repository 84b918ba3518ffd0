"""A crash test finds an nfsd that grants a lock to a client while another client holds it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.fault import FaultContext
from raidproof.image.kernel.rebuild import SourceEdit, Substitution, rebuilt
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record import CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.verdict.checks.locks import EXCLUSIVE
from raidproof.workload.ledger import LedgerSpec
from scenarios.selftest.defective_server import LEFT_OUT, defective_run, left_out, select
from scenarios.selftest.defects import Before, Places, TamperedCut
from scenarios.selftest.nfsd_defects import MODULE, NFSD
from scenarios.selftest.planted_source import inserted
from scenarios.selftest.test_planted import all_said

pytestmark = pytest.mark.exhaustive

DEFECT = "lock-granted-twice"
EDIT = SourceEdit(
    "fs/nfsd/nfs4state.c",
    inserted(),
    (Substitution("nfsd4_lock", "err = vfs_lock_file(", f'err = planted("{DEFECT}") ? 0 : vfs_lock_file('),),
)
LEDGER = LedgerSpec(kinds=("locks", "fsync", "metadata"))


def with_defect(name: str) -> Path:
    """Build nfsd with the defect for the kernel of a name; return the folder with the module."""
    return rebuilt(name, MODULE, EDIT)


@pytest.fixture(scope="module")
def own(current_run: Run) -> Iterator[Run]:
    """Yield a separate run whose server has the nfsd with the defect."""
    with defective_run("planted-in-locks", current_run, with_defect) as one:
        yield one


def cut(own: Run, defect: str) -> tuple[CrashTestRecord, int]:
    """Cut the power with a defect selected (empty: none); return the record and the number of locks not taken."""
    places: Places = {}

    def plant(context: FaultContext, _places: Places) -> None:
        select(context.lab.server, NFSD, defect)

    def count(context: FaultContext, places: Places) -> None:
        places[LEFT_OUT] = left_out(context.lab.server, NFSD)

    name = defect or "sound-locks"
    fault = TamperedCut(places=places, at_work=count)
    spec = CrashTestSpec(
        name=name,
        title=name,
        stack=stack_of(),
        ledger=LEDGER,
        during=(Before(plant),),
        fault=fault,
    )
    record = own.cycle(spec)
    assert LEFT_OUT in places, all_said(record)
    return record, int(places[LEFT_OUT])


@pytest.mark.plants
def test_a_lock_that_is_granted_twice_is_found(own: Run) -> None:
    record, granted = cut(own, DEFECT)
    assert granted, "the clients claimed no lock"
    assert record.outcome is Outcome.FAIL, all_said(record)
    (found,) = (one for one in record.verdicts if one.checker == EXCLUSIVE)
    assert found.outcome is Outcome.FAIL, all_said(record)
    assert str(found.blame).startswith("the stack"), found.blame


def test_the_same_nfsd_without_the_defect_keeps_locks_apart(own: Run) -> None:
    record, granted = cut(own, "")
    assert not granted
    assert {one.outcome for one in record.verdicts} == {Outcome.PASS}, all_said(record)
