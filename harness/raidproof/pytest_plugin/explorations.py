"""The fixture that takes a cycle through the crashes that it could have had."""

from pathlib import Path
from typing import Self

import pytest

from raidproof.core.blame import Cause, Culprit, blamed_as
from raidproof.core.errors import Inconclusive, ProductError, RaidproofError, RequirementMissing
from raidproof.crash.checker.provider import SHOW, not_shown
from raidproof.crash.exploration import Budget
from raidproof.crash.journal import read
from raidproof.crash.judge import Judgement
from raidproof.crash.states.state import CrashState
from raidproof.pytest_plugin.fixtures import ERRORS, Ended
from raidproof.record import CycleRecord
from raidproof.record.exploration import ExplorationRecord, FailureRecord
from raidproof.record.outcome import Outcome
from raidproof.run.campaign import Campaign
from raidproof.run.exploration import STATES, STEM, Options, explore_cycle
from raidproof.run.replay import replay
from raidproof.run.source import Source, source_of

DEFAULT_STATES = 150


class Explored:
    """A cycle that was explored, and what a scenario may claim about it."""

    def __init__(self, record: ExplorationRecord, source: Source, page: Path) -> None:
        self.record = record
        self.source = source
        self.page = page

    def must_keep_every_promise(self) -> Self:
        """Claim that in every state that was looked at all that had been acknowledged was there.

        Raises:
            ProductError: in one something was missing, whatever excuses it.
            RigError: the rig failed, or reuse of a machine has hidden something.
            Inconclusive: no state was looked at, or a failure did not come again.
        """
        __tracebackhide__ = True
        if self.record.outcome is not Outcome.PASS:
            raise self._as(ERRORS[self.record.outcome])
        # A control that breaks as it must passes, and has kept nothing.
        if self.record.loss is not None or self.record.failures:
            raise self._as(ProductError)
        return self

    def must_find(self, kind: str, blame: Culprit | Cause | None = None) -> FailureRecord:
        """Claim that a failure of this kind was found, that it came again, and who was to blame.

        Of several the first is returned whose shrinking came to its end, if there is one.
        ``kind`` is a part of the promise or of the damage; ``blame`` is the part of the
        system that must be to blame, or what it did.

        Raises:
            RigError: the rig failed, or reuse of a machine has hidden something.
            ProductError: somebody else is blamed.
            Inconclusive: there was no such failure.
        """
        __tracebackhide__ = True
        if self.record.outcome not in (Outcome.FAIL, Outcome.PASS):
            raise self._as(ERRORS[self.record.outcome])
        alike = (one for one in self.record.failures if kind in one.promise or kind in one.damage)
        found = [one for one in alike if one.confirmed]
        if not found:
            raise self._as(Inconclusive, f"nothing like {kind!r} was found, and found again; ")
        first = next((one for one in found if one.shrunk is not None and one.shrunk.whole), found[0])
        if not blamed_as(first.blame, blame):
            raise self._as(ProductError, f"{first.promise} is blamed on {first.blame}; ")
        return first

    def broken(self) -> list[CrashState]:
        """Return every state that was found broken, in the order in which they were looked at."""
        names = {mark.name for mark in self.record.marks if mark.broken}
        _, lines, _ = read(self.page.with_suffix("") / STATES)
        return [line.crash for line in lines if line.crash.name in names]

    def replay(self, failure: FailureRecord, times: int = 1) -> tuple[Judgement, ...]:
        """Show the smallest state of a failure again, so many times."""
        dump = failure.shrunk.dump if failure.shrunk is not None else failure.dump
        logs = self.source.store.directory(f"{STEM}{self.record.cycle}")
        return replay(self.source, CrashState.load(dump), logs, times=times).judgements

    def _as(self, kind: type[RaidproofError], why: str = "") -> RaidproofError:
        return kind(f"{self.record.title}: {why}{self.record.reason}", remedy=f"see {self.page}")


class Explore:
    """Explores cycles of a session's run."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign

    def __call__(
        self,
        cycle: Ended | CycleRecord,
        states: int | None = DEFAULT_STATES,
        seed: int = 1,
        *,
        minutes: float | None = None,
        tear: int = 512,
        checkers: int = 2,
        at_replies: bool = False,
        starts_dirty: bool = False,
    ) -> Explored:
        """Look at so many crash states of a cycle, or for so long.

        ``at_replies``: the power goes only at the instants of acknowledgements, and the disks' caches keep nothing.
        ``starts_dirty``: md is to start an array that is dirty and degraded, which it refuses by itself.

        Raises:
            RequirementMissing: its disks cannot show a crash state.
        """
        record = cycle.record if isinstance(cycle, Ended) else cycle
        if (provider := self._campaign.topology.provider) not in SHOW:
            raise RequirementMissing(str(not_shown(provider)))
        source = source_of(self._campaign.store, record.name, starts_dirty=starts_dirty)
        options = Options(Budget(states, minutes), seed=seed, tear=tear, checkers=checkers, at_replies=at_replies)
        explored, page = explore_cycle(source, options)
        return Explored(explored, source, page)


@pytest.fixture
def explore(campaign: Campaign) -> Explore:
    """Takes a cycle through the crashes that it could have had: ``explore(cycle(stack_of()), states=150)``."""
    return Explore(campaign)
