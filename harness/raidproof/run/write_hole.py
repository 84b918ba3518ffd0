"""The write hole of a plan's configurations: their crash states are explored with all members, and without one."""

from collections.abc import Callable
from random import Random

from raidproof.core.errors import RequestError
from raidproof.core.log import say, step
from raidproof.crash.exploration import Budget
from raidproof.crash.shrink import EXPLAINED
from raidproof.fault.array import Degraded
from raidproof.plan.members import Members
from raidproof.plan.plan import Plan
from raidproof.record.outcome import Outcome
from raidproof.record.write_hole import HoleRecord
from raidproof.run.crash_states import Options
from raidproof.run.crash_test import NO_FAULT, CrashTestSpec
from raidproof.run.exploration import exploration_of
from raidproof.run.run import Run
from raidproof.run.source import source_of
from raidproof.storage.array import ArraySpec


class WriteHole:
    """Explores the crash states of power cuts for the table of the write hole, as a plan requests.

    ``free_name`` returns an unused name for a crash test, with the given beginning.
    """

    def __init__(self, plan: Plan, current_run: Run, free_name: Callable[[str], str]) -> None:
        self.plan = plan
        self.current_run = current_run
        self._free_name = free_name

    def measure(self, cut: CrashTestSpec) -> list[HoleRecord]:
        """Return a record for each choice of members; ``cut``: the power cut of the configuration, already made."""
        return [self._measured(members, cut) for members in dict.fromkeys(self.plan.run.explore_members)]

    def _measured(self, members: Members, cut: CrashTestSpec) -> HoleRecord:
        serial = None if members is Members.WHOLE else drawn_member(cut.stack.array, self.plan.run.seed)
        found = HoleRecord(members=members, serial=serial, cycle=cut.name)
        try:
            if serial is not None:
                cut.stack.array.refuse_loss(serial)
            if members is Members.MISSING and serial is not None:
                found.cycle = self._without(cut, serial)
            self._explore(found, cut.stack.array)
        except RequestError as error:
            found.why_not = str(error)
        say(f"write hole of {cut.title}, {members}: {in_words(found)}")
        return found

    def _without(self, cut: CrashTestSpec, serial: str) -> str:
        """Record clients that write while a member is missing, without a power cut; return the crash test's name.

        A crash test that the run already has is used again.

        Raises:
            RequestError: the crash test did not take place; the message has the reason.
        """
        title = f"{cut.title}, {serial} missing"
        cycles = self.current_run.record.cycles
        made = next((one for one in cycles if one.title == title and one.outcome is not Outcome.ERROR), None)
        if made is None:
            name = self._free_name(f"missing-{cut.name}")
            update = {"name": name, "title": title, "during": (Degraded(serial),), "fault": NO_FAULT}
            step(f"clients work without {serial}: {cut.title}")
            made = self.current_run.cycle(cut.model_copy(update=update))
        if made.outcome in {Outcome.SKIP, Outcome.ERROR}:
            raise RequestError(f"without {serial} no client worked: {made.reason}")
        return made.name

    def _explore(self, found: HoleRecord, array: ArraySpec) -> None:
        whole = found.members is Members.WHOLE
        # Where an assembly might take the disk of the missing member in again, the checker starts without this disk.
        lost = found.serial if found.members is Members.LOST or not array.keeps_out else None
        source = source_of(self.current_run.store, found.cycle, starts_dirty=not whole, lost_member=lost, scrub=whole)
        step(f"crash states of {found.cycle}: members {found.members}")
        run = self.plan.run
        options = Options(Budget(run.explore_states), seed=run.seed, explained=EXPLAINED if whole else 0, counts=whole)
        record, page = exploration_of(source, options)
        found.file = page.with_suffix(".json").name
        found.judged, found.distinct = record.judged, record.distinct
        found.losing, found.otherwise = record.losing, record.broken - record.losing
        found.refused, found.silent, found.why_not = record.refused, record.silent, record.ended_early
        if record.scrub is not None:
            found.scrubbed, found.differing = record.scrub.states, record.scrub.differing
            found.sectors = record.scrub.most_sectors


def drawn_member(array: ArraySpec, seed: int) -> str:
    """Return the serial of a member, drawn by a seed."""
    return Random(seed).choice(array.members)  # noqa: S311  a reproducible choice, not a secret


def in_words(found: HoleRecord) -> str:
    """Return the numbers of an exploration as text."""
    if not found.judged:
        return found.why_not or "no state was judged"
    return (
        f"{found.judged:,} states; refused {found.refused:,}; acknowledged data lost in {found.losing:,}, in "
        f"{found.silent:,} without an error; another failure in {found.otherwise:,}; "
        f"{found.differing:,} of {found.scrubbed:,} scrubbed states differ after the resync"
    )
