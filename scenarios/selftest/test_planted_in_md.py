"""A crash test, or an exploration of it, finds each defect that is planted in md."""

import re
from collections.abc import Iterator
from functools import partial

import pytest

from raidproof.fault import FaultContext
from raidproof.pytest_plugin.fixtures import Explore, stack_of
from raidproof.record import CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.run import Run
from raidproof.storage.filesystem import Ext4Spec
from scenarios.crash.known_findings import KNOWN, others
from scenarios.selftest.defective_server import LEFT_OUT, defective_run, left_out, select
from scenarios.selftest.defects import Before, Places, TamperedCut
from scenarios.selftest.md_defects import MD_DEFECTS, defective_md
from scenarios.selftest.test_planted import all_said

pytestmark = pytest.mark.exhaustive

LEDGER_SECONDS = 3.0
"""Duration of the workload in seconds: a row counts as never written a second after its last write."""
SOLO_SECONDS = 4.0
"""Duration of the solo operations: enough for some that depend on a flush of the member that is left out."""
STATES = 60
"""Number of crash states to check."""


@pytest.fixture(scope="module", params=MD_DEFECTS)
def own(current_run: Run, request: pytest.FixtureRequest) -> Iterator[tuple[str, Run]]:
    """Yield the name of a defect, and a separate run whose server has the module with the defect."""
    with defective_run(f"planted-in-md-{request.param}", current_run, partial(defective_md, request.param)) as one:
        yield request.param, one


def cut(own: Run, name: str, title: str, *, defect: str) -> tuple[CrashTestRecord, int]:
    """Cut the power with a defect selected (empty: none); return the record and the number of steps left out."""
    places: Places = {}
    module, level = MD_DEFECTS[name].module, MD_DEFECTS[name].level

    def plant(context: FaultContext, _places: Places) -> None:
        select(context.lab.server, module, defect)

    def count(context: FaultContext, places: Places) -> None:
        places[LEFT_OUT] = left_out(context.lab.server, module)

    record = own.cycle(
        CrashTestSpec(
            name=title.replace(" ", "-"),
            title=title,
            stack=stack_of(level, filesystem=Ext4Spec() if level == "1" else None),  # one disk is too small for XFS
            ledger_seconds=LEDGER_SECONDS,
            solo_seconds=SOLO_SECONDS,
            during=(Before(plant),),
            fault=TamperedCut(places=places, at_work=count),
        )
    )
    assert LEFT_OUT in places, all_said(record)
    return record, int(places[LEFT_OUT])


@pytest.mark.plants
def test_a_defect_of_md_is_found(own: tuple[str, Run]) -> None:
    name, run = own
    record, omitted = cut(run, name, f"md {name}", defect=name)
    assert omitted, f"md left out no step: {MD_DEFECTS[name].says}"
    found = {one.checker: one.blame for one in record.verdicts if one.outcome is Outcome.FAIL}
    if record.outcome is not Outcome.FAIL:
        explored = Explore(run)(record, STATES, cold=False)
        assert explored.record.outcome is Outcome.FAIL, explored.record.reason
        found = {one.promise: one.blame for one in others(explored.record) if one.confirmed}
    seen = {checker: blame for checker, blame in found.items() if re.match(MD_DEFECTS[name].found_as, checker)}
    assert seen, f"{found}\n{all_said(record)}"
    assert all(str(blame).startswith("the stack") for blame in seen.values()), seen


def test_without_a_defect_the_same_module_keeps_every_promise(own: tuple[str, Run]) -> None:
    name, run = own
    record, omitted = cut(run, name, f"sound {name}", defect="")
    assert not omitted
    assert {one.outcome for one in record.verdicts} == {Outcome.PASS}, all_said(record)
    Explore(run)(record, STATES, cold=False).must_keep_every_promise(but=KNOWN)
