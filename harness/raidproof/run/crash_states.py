"""The choice of the crash states of an exploration, by its options."""

import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from raidproof.core.log import step
from raidproof.core.waiting import Deadline
from raidproof.crash.directed import NONE_DIRECTED, Directed
from raidproof.crash.exhaustive import AllLosses
from raidproof.crash.exploration import Budget
from raidproof.crash.journal import Begun, begun_in
from raidproof.crash.recovery import journal_of
from raidproof.crash.sampler import Choices, Chosen, OnlyDirected
from raidproof.crash.shrink import EXPLAINED
from raidproof.run.source import Source
from raidproof.verdict.checks.volatile import late_ns
from raidproof.verdict.sensitivity import missed_at
from raidproof.verdict.solo import solo_operations

SECOND_STATES = 10
"""Default number of states of a second power cut during each recorded recovery."""


@dataclass(frozen=True)
class Options:
    """Options of an exploration."""

    budget: Budget = field(default_factory=Budget)
    seed: int = 1
    tear: int = 512
    """Unit in bytes that a disk writes atomically."""
    checkers: int = 2
    """Number of checkers that work at the same time."""
    resume: bool = False
    """Whether to continue the newest exploration of the crash test."""
    explained: int = EXPLAINED
    """Greatest number of broken states that are checked again, with a search for the smallest state that fails so."""
    at_replies: bool = False
    """Whether to cut only at instants of acknowledgements, with the content of all volatile caches lost."""
    all_losses: int | None = None
    """Greatest number of lost requests, if all states with so few lost requests are checked; None: a sample."""
    uniform: bool = False
    """Whether a sample takes all cuts with equal chance: no directed states, no cuts of greater interest first."""
    only_directed: bool = False
    """Whether only directed states are checked; see `Directed`."""
    epochs: tuple[int, int] | None = None
    """With ``all_losses``: first and last flush epoch; None: all epochs."""

    counts: bool = True
    """Whether a broken promise counts for the outcome of the run."""
    second_cuts: int = 0
    """Number of crash states during whose recovery the power is cut a second time."""
    second_states: int = SECOND_STATES
    """Number of states of a second cut that are checked for each recovery."""
    smallest: bool = True
    """Whether the smallest state of each failure is searched, which takes up to a minute for each broken state."""
    cold: bool = True
    """Whether newly booted machines check some of the states, too: at least one, which takes the boot of a machine."""
    crash_page: bool = True
    """Whether to write the crash page, which takes seconds; `raidproof show RUN --crash` writes it later."""

    @property
    def first_budget(self) -> Budget:
        """The limits of the exploration without second cuts, for which half of a limited time is reserved."""
        if not self.second_cuts or self.budget.minutes is None:
            return self.budget
        return replace(self.budget, minutes=self.budget.minutes / 2)

    def second_deadline(self) -> Deadline | None:
        """Return the end of the second cuts if they begin now; None without a limit of time."""
        return None if self.budget.minutes is None else Deadline.after(self.budget.minutes * 60 / 2)


def begun_of(source: Source, options: Options) -> Begun:
    """Return the first line of the journal of an exploration."""
    return Begun(
        cycle=source.cycle.name,
        log_digest=source.log_digest,
        seed=options.seed,
        tear=options.tear,
        starts_dirty=source.starts_dirty,
        lost_member=source.lost_member,
        scrub=source.scrub,
        all_losses=options.all_losses,
        epochs=options.epochs,
        uniform=options.uniform or options.all_losses is not None,
        recovery=source.recovery,
    )


def resumed(options: Options, journal: Path) -> Options:
    """Return the options with the order of the journal that is resumed, if the journal has the uniform order.

    The second cuts that the exploration has tried before are part of its result, even if no more are requested.
    """
    before = begun_in(journal) if options.resume else None
    if before is None:
        return options
    tried = len(list(journal.parent.glob(journal_of("*"))))
    return replace(options, uniform=options.uniform or before.uniform, second_cuts=max(options.second_cuts, tried))


def directed_of(source: Source, options: Options) -> Directed:
    """Return the directed states of an exploration; none with ``uniform``, and none of a measured write hole."""
    if options.uniform or source.lost_member is not None:
        return NONE_DIRECTED
    history, data = source.oracle.history, source.data
    solo = solo_operations(history, source.cycle.observed.solo)
    if not solo:
        return NONE_DIRECTED
    alone = frozenset(solo)
    others = [one for one in history.acknowledged(source.recording.end_ns) if one not in alone]
    late = late_ns(data.needed, data.requests)
    return Directed.of(
        source.recording,
        solo,
        others,
        sorted(late, key=late.__getitem__, reverse=True),
        first=source.first,
        missed_at=partial(missed_at, data.requests, data.blocks),
    )


def chosen(source: Source, options: Options) -> Chosen:
    """Return the crash states to check, in their order.

    Raises:
        RequestError: the recording lacks the requested flush epochs; or there are too many states for an exhaustive
            exploration.
    """
    step(f"{source.cycle.title}: reading {len(source.recording.records):,} requests and choosing states")
    if options.all_losses is None:
        directed = directed_of(source, options)
        if options.only_directed:
            return OnlyDirected(source.recording, directed)
        return Choices(
            source.recording,
            options.seed,
            first=source.first,
            unit=sys.maxsize if source.stack.encrypts else options.tear,
            replies=source.acknowledged_ns,
            only_replies=options.at_replies,
            by_interest=not options.uniform,
            directed=directed,
        )
    states = AllLosses(source.recording, options.all_losses, first=source.first, epochs=options.epochs)
    states.require_few()
    low, high = states.epochs
    step(f"{states.total:,} states have up to {states.most} lost requests in the flush epochs {low} to {high}")
    return states
