"""The choice of the crash states of an exploration: options, states, limits of the result, dry run."""

import math
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from raidproof.core.log import step
from raidproof.crash.directed import NONE_DIRECTED, Directed
from raidproof.crash.exhaustive import MOST_STATES, AllLosses
from raidproof.crash.exploration import FSCK_EVERY, NFSD_EVERY, Budget
from raidproof.crash.journal import Begun, begun_in
from raidproof.crash.recovery import journal_of
from raidproof.crash.sampler import Choices, Chosen, OnlyDirected
from raidproof.crash.shrink import EXPLAINED
from raidproof.record.exploration import AllLossesRecord, ExplorationDryRun, Possible
from raidproof.run.source import Source
from raidproof.verdict.checks.volatile import late_ns
from raidproof.verdict.sensitivity import missed_at
from raidproof.verdict.solo import solo_operations

SECOND_STATES = 10
"""Default number of states of a second power cut during each recorded recovery."""
EXACT_BELOW = 10**9
"""Number of possible states below which the record stores the exact number."""
SAMPLE = "Only a random sample (by the seed) of the possible subsets of surviving requests is checked."
ALL_LOSSES = (
    "States with more lost requests than the given number, and states with torn requests, are not checked.",
    "Each state is judged at the last instant at which it is possible; earlier instants promise less.",
)
WHOLE = "No request is torn: the stack encrypts, so that the host cannot read which blocks a torn request has."
ONE_CUT = "Each state is one power cut at one instant; a second power cut during the recovery is not tried."
TWO_CUTS = (
    "A second power cut is tried during the recovery of a few states only, each recovery executed once: another "
    "recovery of the same state may write in another order. A third power cut is not tried.",
    "During a recorded recovery no client works. The disks have the cache modes of the run, but not its disk faults.",
)
OF_ALL = (
    "Other orders or speeds of the clients' operations are not tried; another run has other orders and speeds.",
    "A disk keeps or loses unflushed requests, whole or torn at multiples of --tear bytes; it corrupts no content.",
    "States are read before any resync begins.",
    f"The file system's checker (fsck) runs on one in {FSCK_EVERY} distinct states, and on each broken state.",
)

SCANNED = f"One in {NFSD_EVERY} distinct states is also read through the NFS server."
NOT_SCANNED = "States are read from the file system on the server's machine, never through the NFS server."


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

    def limits(self, *, scans: bool, encrypts: bool = False) -> tuple[str, ...]:
        """Return what an exploration with these options cannot prove.

        ``scans``: whether states are also read through the NFS server (`ServerSpec.scans`). ``encrypts``: whether the
        stack encrypts.
        """
        cuts = TWO_CUTS if self.second_cuts else (ONE_CUT,)
        sample = (SAMPLE,) if self.all_losses is None else ALL_LOSSES
        whole = (WHOLE,) if encrypts and self.all_losses is None else ()
        return (*cuts, *sample, *whole, *OF_ALL, SCANNED if scans else NOT_SCANNED)


def begun_of(source: Source, options: Options, log_digest: str) -> Begun:
    """Return the first line of the journal of an exploration."""
    return Begun(
        cycle=source.cycle.name,
        log_digest=log_digest,
        seed=options.seed,
        tear=options.tear,
        starts_dirty=source.starts_dirty,
        lost_member=source.lost_member,
        scrub=source.scrub,
        all_losses=options.all_losses,
        epochs=options.epochs,
        uniform=options.uniform or options.all_losses is not None,
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
            replies=acknowledged_at(source),
            only_replies=options.at_replies,
            by_interest=not options.uniform,
            directed=directed,
        )
    states = exhaustive(source, options.all_losses, options.epochs)
    states.require_few()
    low, high = states.epochs
    step(f"{states.total:,} states have up to {states.most} lost requests in the flush epochs {low} to {high}")
    return states


def exhaustive(source: Source, most: int, epochs: tuple[int, int] | None) -> AllLosses:
    """Return all crash states with at most ``most`` lost requests; see `AllLosses`."""
    return AllLosses(source.recording, most, first=source.first, epochs=epochs)


def acknowledged_at(source: Source) -> dict[str, list[int]]:
    """Return the times of acknowledgements (ns) by kind of operation, up to the end of the write log."""
    instants: dict[str, list[int]] = {}
    for one in source.oracle.history.acknowledged(source.recording.end_ns):
        if one.promised_ns is not None:
            instants.setdefault(one.kind, []).append(one.promised_ns)
    return instants


def possible_of(states: Chosen) -> Possible:
    """Return the number of possible crash states as a record."""
    possible = states.possible
    # math.log10 accepts integers beyond the range of a float.
    log10 = math.log10(possible) if possible > 0 else 0.0
    return Possible(log10=log10, exact=possible if possible < EXACT_BELOW else None)


def all_losses_of(states: Chosen) -> AllLossesRecord | None:
    """Return the numbers of states of an exhaustive exploration as a record; None for a sample."""
    if not isinstance(states, AllLosses):
        return None
    low, high = states.epochs
    return AllLossesRecord(
        most=states.most, first_epoch=low, last_epoch=high, of_epochs=states.of_epochs, states=list(states.counts)
    )


def dry_run(source: Source, options: Options) -> ExplorationDryRun:
    """Return the numbers of the crash states that an exploration would check; checks no state.

    Raises:
        RequestError: the recording lacks the requested flush epochs.
    """
    refused = None
    if options.all_losses is None:
        states: Chosen = chosen(source, options)
        candidates = len(states.order)
    else:
        # More states than an exploration accepts are counted, too.
        states = every = exhaustive(source, options.all_losses, options.epochs)
        candidates = every.total
        refused = every.fewer if every.total > MOST_STATES else None
    return ExplorationDryRun(
        run=source.run.run,
        cycle=source.cycle.name,
        requests=len(source.recording.records),
        possible=possible_of(states),
        candidates=candidates,
        asked=options.budget.states,
        all_losses=all_losses_of(states),
        second_cuts=options.second_cuts,
        second_states=options.second_states if options.second_cuts else 0,
        refused=refused,
    )
