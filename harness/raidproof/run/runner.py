"""`raidproof run`: a plan from its file to its report."""

import re
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.log import progress, say
from raidproof.core.topology import Platform, Topology
from raidproof.plan.cell import Matrix
from raidproof.provider.registry import prepare
from raidproof.record import RunRecord, RunStore
from raidproof.record.store import RECORD
from raidproof.run.campaign import Campaign
from raidproof.run.doctor import require_host
from raidproof.run.plan_runner import PlanRunner, record_of


def run_plan(
    matrix: Matrix,
    path: Path,
    results: Path,
    *,
    platform: Platform | None = None,
    resumed: RunStore | None = None,
    keep: bool = False,
) -> tuple[RunRecord, Path | None]:
    """Carry out a plan, or the rest of one, and return its record and its report.

    ``platform`` takes the place of the plan's own.

    Raises:
        RequestError: the run to go on with was made of another plan.
        RequirementMissing: this host cannot run a lab.
    """
    require_host()
    plan = matrix.plan
    topology = plan.hardware.topology(platform or plan.run.platform)
    if resumed is not None:
        require_same(resumed, matrix, topology)
    with progress("preparing kernel and image"):
        prepare(topology)
        with Campaign(plan.name, results, topology, keep=keep, resumed=resumed) as campaign:
            if campaign.record.plan is None:
                campaign.record.plan = record_of(matrix, path)
            try:
                PlanRunner(matrix, campaign).run()
            except KeyboardInterrupt:
                say(f"what was measured is in {campaign.store.path}; the same command with --resume goes on")
                raise
    return campaign.record, campaign.report


def require_same(store: RunStore, matrix: Matrix, topology: Topology) -> None:
    """Make sure that a stored run was made of this very plan, on machines like these.

    Raises:
        RequestError: it was not.
    """
    record = store.load()
    if record.plan is None:
        raise RequestError(f"{record.run} did not carry out a plan")
    if record.plan.digest != matrix.digest:
        raise RequestError(
            f"the plan is no longer the one of {record.run}: its figures would not compare",
            remedy="run it anew, without --resume",
        )
    if record.topology != topology.model_dump(mode="json"):
        raise RequestError(
            f"{record.run} was made on other machines, or with other software: its figures would not compare",
            remedy="give the options that it was begun with, or run it anew, without --resume",
        )


def newest_of(name: str, results: Path) -> RunStore:
    """Return the newest stored run of a plan.

    Raises:
        RequestError: there is none.
    """
    # A plan's name may be the end of another's.
    named = re.compile(rf"(\d{{8}}-\d{{6}})-{re.escape(name)}(?:-(\d+))?")
    runs = [
        (found[1], int(found[2] or 1), path)
        for path in results.glob(f"*-{name}*")
        if (found := named.fullmatch(path.name)) and (path / RECORD).is_file()
    ]
    if not runs:
        raise RequestError(f"no run of {name} in {results.absolute()} to go on with")
    return RunStore(max(runs)[-1])
