"""The description of a search that has not begun: candidates, their order in the first round, use of the time."""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from raidproof.core.topology import Platform
from raidproof.plan.forecast import in_words
from raidproof.plan.free_axes import Free
from raidproof.record.advice import FreeAxisRecord, Picked
from raidproof.run.advise.advisor import axis_records, budget_of, candidates_of, model_key, written
from raidproof.run.advise.search import Search

ADVICE_DRY_RUN_SCHEMA = 1
SHOWN = 20
"""Greatest number of configurations of the first round on the terminal."""
SMALL_GAIN = 0.03
"""Expected gain, as a share, below which the description names further settings."""
LARGER = ("level", "log", "filesystem", "vers")
"""Axes that are varied on request only, and that change the server or its clients more than the usual axes."""


class AdviceDryRun(BaseModel):
    """What `raidproof advise` would measure first, and how it would use its time."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = ADVICE_DRY_RUN_SCHEMA
    plan: str
    platform: Platform
    workload: str
    current: str
    """Name of the cell with the current configuration."""
    fixed: dict[str, str]
    axes: list[FreeAxisRecord]
    left: list[str]
    """Axes that are varied on request only, because there would be too many candidates."""
    candidates: int
    first: list[Picked]
    """The configurations of the first round, in the order of their choice."""
    expected: float | None
    """The speed in MB/s that the model expects of the current configuration; None: no formula applies."""
    greatest_expected: float | None
    """The greatest speed in MB/s that the model expects of a candidate."""
    not_modelled: list[str]
    """Axes on which no formula of the model depends: only a measurement shows their effect."""
    seed: int
    budget_s: float
    repetition_s: float
    """Estimated seconds of one repetition."""
    repetitions: int
    """Estimated number of repetitions of the search."""
    cuts_s: float
    """Seconds reserved for controls and power cuts."""
    final_s: float
    """Seconds reserved for the comparison after the power cuts."""


def dry_run(free: Free, minutes: float, platform: Platform) -> AdviceDryRun:
    """Return the description of a search.

    Raises:
        RequestError: the budget is too small.
    """
    plan, budget = free.matrix.plan, budget_of(free, minutes)
    candidates = candidates_of(free, plan.hardware.topology(platform))
    search = Search(candidates, free.current.name, plan.run.seed)
    rung = search.next_rung([], [], budget.repetitions)
    return AdviceDryRun(
        plan=plan.name,
        platform=platform,
        workload=free.current.workload_name,
        current=free.current.name,
        fixed=written(free),
        axes=axis_records(free),
        left=list(free.left),
        candidates=len(free.matrix.cells),
        first=[] if rung is None else rung.picked,
        expected=next(one.expected for one in candidates if one.name == free.current.name),
        greatest_expected=max((one.expected for one in candidates if one.expected is not None), default=None),
        not_modelled=list(_not_modelled(free)),
        seed=plan.run.seed,
        budget_s=budget.total_s,
        repetition_s=budget.repetition_s,
        repetitions=budget.repetitions,
        cuts_s=budget.cuts_s,
        final_s=budget.final_s,
    )


def lines(found: AdviceDryRun) -> Iterator[str]:
    """Yield the description for a terminal, without what the command prints before each search."""
    yield (
        f"budget: {in_words(found.budget_s)}: about {found.repetitions} repetitions of {found.repetition_s:.1f} s to "
        f"search, {in_words(found.cuts_s)} for controls and power cuts, {in_words(found.final_s)} for the last "
        "comparison"
    )
    yield from _gain(found)
    yield f"first round: {len(found.first)} configurations"
    for one in found.first[:SHOWN]:
        expected = "" if one.expected is None else f"; expected {one.expected:.4g} MB/s"
        yield f"  {one.name} ({one.by.value}{expected})"
    if len(found.first) > SHOWN:
        yield f"  and {len(found.first) - SHOWN} more"


def _gain(found: AdviceDryRun) -> Iterator[str]:
    """Yield the greatest gain that the model expects; if it is small, also which other settings can be varied."""
    if not found.expected or found.greatest_expected is None:
        return
    gain = found.greatest_expected / found.expected - 1
    varied = {*(axis.name for axis in found.axes)}
    names = ", ".join(axis.name for axis in found.axes)
    yield f"the model expects {found.expected:.4g} MB/s of the current configuration, and at most"
    yield f"  {100 * gain:.2g} % more from {names}"
    if gain < SMALL_GAIN:
        others = [name for name in (*found.left, *LARGER) if name not in varied]
        yield f"other settings to vary, as lists under [axes] in the plan: {', '.join(others)}"
    if found.not_modelled:
        yield f"no formula of the model has {', '.join(found.not_modelled)}: only a measurement shows their effect"


def _not_modelled(free: Free) -> Iterator[str]:
    """Yield the axes whose values do not change the expected speed of the current configuration by any formula."""
    usual = model_key(free.current)
    for axis in free.axes:
        others = [free.like(free.current, {axis.name: value}) for value in axis.values[1:]]
        if all(model_key(cell) == usual for cell in others if cell is not None):
            yield axis.name
