"""One suite on one client of a stack that is online."""

from collections.abc import Mapping

from pydantic import Field

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded
from raidproof.core.layer import Machine, State
from raidproof.core.waiting import now_ns
from raidproof.workload.machines import run_limited
from raidproof.workload.room import own_directory
from raidproof.workload.suite.fsstress import compare_trees, read_tree
from raidproof.workload.suite.install import Target, install
from raidproof.workload.suite.outcome import SuiteOutcome, joined, unknown
from raidproof.workload.suite.place import SuitePlace, SuiteStep, step_command
from raidproof.workload.suite.suites import SuiteSpec, suite_of

SYNC_DEADLINE_S = 300.0


class SuiteRun(State):
    """What a run of a suite said, and how long it took."""

    outcome: SuiteOutcome
    seconds: float
    path: str
    """Of the suite in the machine; its folder's name carries the digest of what was copied."""
    commands: tuple[tuple[str, ...], ...]
    output: dict[str, str] = Field(default_factory=dict, exclude=True)
    """What each step printed, standard error last; kept as files beside the record."""


def run_suite(
    spec: SuiteSpec,
    client: Target,
    server: Machine,
    *,
    mount: str,
    export: str,
    vers: str,
    paths: Mapping[str, str] = {},
) -> SuiteRun:
    """Run a suite to its end; a step that does not end in its time is unknown, and the next is not begun.

    Raises:
        RequirementMissing: the suite is nowhere, or cannot run in the machine.
        RequestError: it cannot be asked of this mount.
        RigError: the machine failed.
    """
    suite = suite_of(spec)
    place = SuitePlace(
        path=install(spec, client, paths),
        directory=own_directory(client, mount, spec.suite),
        mount=mount,
        server=server.address,
        export=export,
        vers=vers,
    )
    steps = suite.steps(spec, place)
    client.succeed(["rm", "-rf", place.directory])
    client.succeed(["mkdir", "-p", "-m", "0777", place.directory, *suite.directories])
    begun = now_ns()
    outcomes: list[SuiteOutcome] = []
    output: dict[str, str] = {}
    for number, step in enumerate(steps):
        try:
            ended = run_limited(client, step_command(step), spec.deadline_s)
        except DeadlineExceeded as error:
            outcomes += [unknown(step.name, str(error)), *_not_run(steps[number + 1 :])]
            break
        output[step.name] = _said(ended)
        outcomes.append(suite.parse(step.name, ended))
    seconds = (now_ns() - begun) / 1e9
    if suite.trees and not joined(outcomes).unknown:
        outcomes.append(_compare(client, server, place))
    commands = tuple(tuple(step_command(step)) for step in steps)
    return SuiteRun(outcome=joined(outcomes), seconds=seconds, path=place.path, commands=commands, output=output)


def _not_run(steps: tuple[SuiteStep, ...]) -> list[SuiteOutcome]:
    return [unknown(step.name, "not begun: one before it did not end") for step in steps]


def _said(ended: Completed) -> str:
    return f"{ended.stdout}{ended.stderr}\nstatus {ended.status}\n"


def _compare(client: Machine, server: Machine, place: SuitePlace) -> SuiteOutcome:
    # What the client still holds back is not yet the server's.
    client.succeed(["sync"], deadline_s=SYNC_DEADLINE_S)
    below = place.directory.removeprefix(place.mount).strip("/")
    return compare_trees(read_tree(client, place.directory), read_tree(server, f"{place.export}/{below}"))
