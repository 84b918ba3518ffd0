"""A small application of our own: its clean version passes, and each planted defect is reported as what it is."""

from pathlib import Path
from typing import Any

import pytest

from raidproof.core.blame import Culprit
from raidproof.disk.cache import CacheMode
from raidproof.pytest_plugin.fixtures import CrashTestRunner, Explore, name_of, stack_of
from raidproof.record.outcome import Outcome
from raidproof.run.run import Run
from raidproof.workload.application import ApplicationSpec
from scenarios.crash.known_findings import KNOWN

RECORDS = Path(__file__).with_name("records.py")
STATES = 20
CHECK = "check of the application, seen on the server"
SLOW = pytest.mark.exhaustive


def records(run: str = "", check: str = "", **settings: Any) -> ApplicationSpec:
    """Return the application that appends records, with planted defects of its run or check command."""
    python, program = "python3", RECORDS.name
    return ApplicationSpec(
        files=(str(RECORDS),), run=(python, program, "run", run), check=(python, program, "check", check), **settings
    )


@pytest.fixture
def own_cycle(own: Run, request: pytest.FixtureRequest) -> CrashTestRunner:
    return CrashTestRunner(own, name_of(request.node.name))


@pytest.mark.parametrize("on", ["clients", pytest.param("server", marks=SLOW)])
def test_every_acknowledged_record_is_there(cycle: CrashTestRunner, explore: Explore, on: str) -> None:
    ended = cycle(stack_of(), application=records(on=on)).must_keep_every_promise()
    assert ended.acknowledged
    explore(ended, STATES, cold=False).must_keep_every_promise(but=KNOWN)


@pytest.mark.exhaustive
def test_all_clients_run_the_application(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), application=records(all_machines=True)).must_keep_every_promise()
    assert all(ended.went_on(client) for client in ("client1", "client2"))


def test_an_async_export_loses_records_by_design(cycle: CrashTestRunner) -> None:
    cycle(stack_of(sync=False), application=records()).must_lose_by_design()


def test_an_early_acknowledgement_is_a_failure(own: Run, own_cycle: CrashTestRunner) -> None:
    ended = own_cycle(stack_of(), application=records("early"))
    assert ended.record.outcome is Outcome.FAIL, ended.record.reason
    assert ended.record.reason.startswith("acknowledged by the application, seen on the server")
    found = Explore(own)(ended, STATES, smallest=False, cold=False).must_find("acknowledged by the application")
    assert found.damage == "the operation is missing"


def test_lying_disks_are_blamed(own_cycle: CrashTestRunner) -> None:
    ended = own_cycle(stack_of(), application=records(), cache_mode=CacheMode.LYING)
    assert ended.record.outcome is Outcome.FAIL, ended.record.reason
    failed = [one for one in ended.record.verdicts if one.outcome is Outcome.FAIL]
    assert any(one.blame is not None and one.blame.culprit is Culprit.DISKS for one in failed)


@pytest.mark.parametrize(
    ("application", "outcome", "checker", "says"),
    [
        pytest.param(records("phantom"), Outcome.FAIL, "nothing invented, seen on the server", "500005", id="phantom"),
        pytest.param(records(check="hangs", check_s=2), Outcome.ERROR, CHECK, "did not end within 2 s", id="hangs"),
        pytest.param(records(check="fails"), Outcome.ERROR, CHECK, "the file is strange", id="fails", marks=SLOW),
        pytest.param(records(check="chatty"), Outcome.ERROR, CHECK, "checking ...", id="chatty", marks=SLOW),
    ],
)
def test_a_defect_is_reported(
    own_cycle: CrashTestRunner, application: ApplicationSpec, outcome: Outcome, checker: str, says: str
) -> None:
    ended = own_cycle(stack_of(), application=application)
    assert ended.record.outcome is outcome, ended.record.reason
    assert any(one.checker == checker and says in one.reason for one in ended.record.verdicts)


@pytest.mark.parametrize(
    ("defect", "says"), [("garbage", "'hello, harness'"), pytest.param("dies", "no more", marks=SLOW)]
)
def test_an_application_that_breaks_the_protocol_is_an_error(
    own_cycle: CrashTestRunner, defect: str, says: str
) -> None:
    ended = own_cycle(stack_of(), application=records(defect))
    assert ended.record.outcome is Outcome.ERROR
    assert "the application" in ended.record.reason
    assert says in ended.record.reason


@pytest.mark.exhaustive
def test_an_application_without_acknowledgements_proves_nothing(own_cycle: CrashTestRunner) -> None:
    idle = ApplicationSpec(run=("sleep", "1000"), check=("true",))
    assert own_cycle(stack_of(), application=idle).record.outcome is Outcome.INCONCLUSIVE


def test_an_application_may_end_before_the_cut(cycle: CrashTestRunner) -> None:
    ended = cycle(stack_of(), application=records("ends"), ledger_seconds=5.0).must_keep_every_promise()
    assert ended.acknowledged == 10
