"""A crash test finds defects of nfsd that clients meet at work: a lock granted twice, a listing that skips names."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from raidproof.fault import FaultContext
from raidproof.image.kernel.rebuild import SourceEdit, Substitution, rebuilt
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record import CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.verdict.checks.listing import LISTINGS
from raidproof.verdict.checks.locks import EXCLUSIVE
from raidproof.workload.ledger import LedgerSpec
from scenarios.selftest.defective_server import LEFT_OUT, defective_run, left_out, select
from scenarios.selftest.defects import Before, Places, TamperedCut
from scenarios.selftest.nfsd_defects import MODULE, NFSD
from scenarios.selftest.planted_source import inserted
from scenarios.selftest.test_planted import all_said

pytestmark = pytest.mark.exhaustive


@dataclass(frozen=True)
class Defect:
    """A defect of nfsd: its name, the file and the edit that plant it, and the worker and the check that find it."""

    name: str
    file: str
    edit: Substitution
    worker: str
    checker: str

    def build(self, kernel: str) -> Path:
        """Build nfsd with the defect for the kernel of a name; return the folder with the module."""
        return rebuilt(kernel, MODULE, SourceEdit(self.file, inserted(), (self.edit,)))


DEFECTS = (
    Defect(
        "lock-granted-twice",
        "fs/nfsd/nfs4state.c",
        Substitution("nfsd4_lock", "err = vfs_lock_file(", 'err = planted("lock-granted-twice") ? 0 : vfs_lock_file('),
        "locks",
        EXCLUSIVE,
    ),
    Defect(
        "listing-skips-names",
        "fs/nfsd/vfs.c",
        Substitution(
            "nfsd_buffered_readdir",
            "if (func(",
            'if (!(de->namlen == 200 && planted_nth("listing-skips-names", 40)) && func(',
        ),
        "listing",
        LISTINGS,
    ),
)


@pytest.fixture(scope="module", params=DEFECTS, ids=lambda defect: defect.name)
def defect(request: pytest.FixtureRequest) -> Defect:
    """Yield each defect."""
    found: Defect = request.param
    return found


@pytest.fixture(scope="module")
def own(current_run: Run, defect: Defect) -> Iterator[Run]:
    """Yield a separate run whose server has the nfsd with the defect."""
    with defective_run(f"planted-{defect.name}", current_run, defect.build) as one:
        yield one


def cut(own: Run, defect: Defect, *, planted: bool) -> tuple[CrashTestRecord, int]:
    """Cut the power with the defect or without it; return the record and the number of steps that nfsd left out."""
    places: Places = {}

    def plant(context: FaultContext, _places: Places) -> None:
        select(context.lab.server, NFSD, defect.name if planted else "")

    def count(context: FaultContext, places: Places) -> None:
        places[LEFT_OUT] = left_out(context.lab.server, NFSD)

    name = defect.name if planted else f"without-{defect.name}"
    spec = CrashTestSpec(
        name=name,
        title=name,
        stack=stack_of(),
        ledger=LedgerSpec(kinds=(defect.worker, "fsync", "metadata")),
        during=(Before(plant),),
        fault=TamperedCut(places=places, at_work=count),
    )
    record = own.cycle(spec)
    assert LEFT_OUT in places, all_said(record)
    return record, int(places[LEFT_OUT])


@pytest.mark.plants
def test_a_defect_that_clients_meet_at_work_is_found(own: Run, defect: Defect) -> None:
    record, broken = cut(own, defect, planted=True)
    assert broken, "the clients made no call that the defect affects"
    assert record.outcome is Outcome.FAIL, all_said(record)
    (found,) = (one for one in record.verdicts if one.checker == defect.checker)
    assert found.outcome is Outcome.FAIL, all_said(record)
    assert str(found.blame).startswith("the stack"), found.blame


def test_the_same_nfsd_without_the_defect_passes(own: Run, defect: Defect) -> None:
    record, broken = cut(own, defect, planted=False)
    assert not broken
    assert {one.outcome for one in record.verdicts} == {Outcome.PASS}, all_said(record)
