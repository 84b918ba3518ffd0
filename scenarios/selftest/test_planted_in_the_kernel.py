"""A crash test of the demo's sync export, or an exploration of it, finds each defect that is planted in nfsd."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from raidproof.fault import FaultContext
from raidproof.pytest_plugin.fixtures import Explore
from raidproof.record import CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.run.demo import demo_cycles
from raidproof.run.run import Run
from raidproof.verdict.contract import PROMISES
from scenarios.crash.known_findings import KNOWN
from scenarios.crash.quiet import quiet
from scenarios.selftest.defective_server import LEFT_OUT, defective_run, left_out, select
from scenarios.selftest.defects import Before, Places, TamperedCut
from scenarios.selftest.nfsd_defects import DEFECTS, NFSD, defective_nfsd
from scenarios.selftest.test_planted import all_said

pytestmark = pytest.mark.exhaustive

SYNC = demo_cycles()[0]
STATES = 400
"""Number of crash states to check."""
CULPRIT = "the stack"
"""Beginning of the expected blame: no disk lies and no option allows a loss, so only the server's software remains."""
NONE = "clean"
"""Name of the crash test without a defect."""


EXTENTS = {"allocate", "punch", "zero_range", "copy", "clone", "unlink"}
"""The kinds of operations that the worker kind ``extents`` does on a file after it has written the file."""


def is_hidden(defect: str) -> bool:
    """Return whether a defect shows only in crash states at the replies of a quiet ledger."""
    return defect in DEFECTS and DEFECTS[defect].hidden


@dataclass(frozen=True)
class Defective:
    """Runs crash tests with a defective nfsd in a separate run: expected failures do not fail the shared run."""

    current_run: Run

    def cycle(self, defect: str) -> tuple[CrashTestRecord, int]:
        """Execute the demo's first crash test with a defect; return its record and the number of omitted steps."""
        places: Places = {}

        def plant(context: FaultContext, _places: Places) -> None:
            select(context.lab.server, NFSD, "" if defect == NONE else defect)

        def count(context: FaultContext, places: Places) -> None:
            places[LEFT_OUT] = left_out(context.lab.server, NFSD)

        changes = {
            "name": defect,
            "title": f"nfsd: {DEFECTS[defect].says if defect in DEFECTS else 'no defect'}",
            "fio": None,
            "ledger": quiet("extents", omit=EXTENTS - DEFECTS[defect].kinds) if is_hidden(defect) else SYNC.ledger,
            "during": (Before(plant),),
            "fault": TamperedCut(places=places, at_work=count),
        }
        record = self.current_run.cycle(SYNC.model_copy(update=changes))
        assert LEFT_OUT in places, all_said(record)
        return record, int(places[LEFT_OUT])


@pytest.fixture(scope="module")
def defective(current_run: Run) -> Iterator[Defective]:
    """Yield crash tests in a separate run, in which the server has the nfsd with defects."""
    with defective_run("planted-in-the-kernel", current_run, lambda name: defective_nfsd(name=name)) as own:
        yield Defective(own)


@pytest.mark.plants
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_nfsd_is_found(defect: str, defective: Defective) -> None:
    record, broken = defective.cycle(defect)
    # The test proves nothing if the ledger made no call that the defect affects.
    assert broken > 0, (
        f"nfsd omitted no step: the ledger made no call that defect {defect!r} affects ({DEFECTS[defect].says})"
    )
    if record.outcome is Outcome.FAIL:
        found = {plain(one.checker): one.blame for one in record.verdicts if one.outcome is Outcome.FAIL}
    else:
        # A quiet ledger has no COMMIT, and too few operations of some kinds: the crash test is then INCONCLUSIVE.
        assert record.outcome is Outcome.PASS or is_hidden(defect), all_said(record)
        explored = Explore(defective.current_run)(record, STATES, at_replies=is_hidden(defect), cold=False)
        assert explored.record.outcome is Outcome.FAIL, explored.record.reason
        found = {plain(one.promise): one.blame for one in explored.record.failures if one.confirmed}
    promised = {plain(PROMISES[kind]) for kind in DEFECTS[defect].kinds}
    assert found.keys() & promised, f"{found}\n{all_said(record)}"
    assert all(str(found[one]).startswith(CULPRIT) for one in found.keys() & promised), f"{found}\n{all_said(record)}"


def plain(checker: str) -> str:
    """Return the name of a promise without the place (server, client) where the loss was seen."""
    return checker.partition(",")[0]


def test_without_a_defect_the_same_nfsd_keeps_every_promise(defective: Defective) -> None:
    record, broken = defective.cycle(NONE)
    assert broken == 0
    assert {one.outcome for one in record.verdicts} == {Outcome.PASS}, all_said(record)
    Explore(defective.current_run)(record, STATES, cold=False).must_keep_every_promise(but=KNOWN)
