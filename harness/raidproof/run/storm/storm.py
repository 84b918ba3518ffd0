"""`raidproof storm`: crash tests with random schedules of faults; one that fails is repeated and shrunk."""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.log import progress, say, step
from raidproof.core.topology import Platform
from raidproof.core.waiting import Deadline, now_ns, wall_clock
from raidproof.fault.schedule import AfterRecovery, InRecovery, Moment, WhenServed
from raidproof.plan.cell import Matrix
from raidproof.provider.registry import prepare
from raidproof.record import CrashTestRecord, RunStore
from raidproof.record.outcome import Outcome
from raidproof.record.stored import read_record
from raidproof.record.storm import STORM, STORM_PAGE, STORM_SCHEMA, DrawnCase, ShrunkCase, StormRecord, StormRow
from raidproof.report.storm import render_storm
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.doctor import require_host
from raidproof.run.run import Run, command_line
from raidproof.run.storm.case import Case, draw
from raidproof.run.storm.reproducer import scenario_of
from raidproof.run.storm.shrinking import shrunk
from raidproof.storage.stack import StackSpec
from raidproof.verdict.storm import conclude_storm
from raidproof.workload.ledger import LedgerSpec

WHAT = "storm"
REPETITIONS = 3
"""Greatest number of repetitions of a failing crash test until it fails again."""
MOST_SMALLER = 24
"""Greatest number of smaller cases that are run to shrink one failure."""
NOT_RECOVERED = "recovery"


class Storm:
    """The crash tests of one storm in a run."""

    def __init__(self, matrix: Matrix, run: Run, record: StormRecord) -> None:
        self.plan = matrix.plan
        self.stacks = stacks_of(matrix)
        self.current_run = run
        self.record = record

    def run(self, seeds: Sequence[int], minutes: float | None = None) -> None:
        """Run the seeds that the record lacks, until the time is over."""
        deadline = None if minutes is None else Deadline.after(60 * minutes)
        done = {row.seed for row in self.record.rows}
        for number, seed in enumerate(seeds, 1):
            if seed in done:
                continue
            if deadline is not None and deadline.passed:
                say(f"the time is over after {len(self.record.rows):,} seeds")
                break
            case = draw(seed, self.stacks, self.record.kinds, beyond=self.record.beyond)
            step(f"seed {seed} ({number:,} of {len(seeds):,}): {in_words(case)}: {'; '.join(map(str, case.faults))}")
            self.record.rows.append(self._row(seed, case))
            self._save()
        else:
            self.record.ended = wall_clock()

    def finish(self) -> Path:
        """Store the record and its page; return the path of the page."""
        self._save()
        return self.current_run.store.write_text(STORM_PAGE, render_storm(self.record))

    def _save(self) -> None:
        record = self.record
        record.outcome, record.reason = conclude_storm(record.rows)
        self.current_run.store.write_text(STORM, record.model_dump_json(indent=1) + "\n")

    def _row(self, seed: int, case: Case) -> StormRow:
        begun = now_ns()
        cycles = [self._cycle(f"seed-{seed}", seed, case)]
        if cycles[0].outcome is Outcome.ERROR:
            cycles.append(self._cycle(f"seed-{seed}-again", seed, case))
        judged = cycles[-1]
        row = StormRow(
            seed=seed,
            drawn=drawn(case),
            cycles=[one.name for one in cycles],
            outcome=judged.outcome,
            reason=judged.reason,
            blamed=list(
                dict.fromkeys(
                    one.blame for one in judged.verdicts if one.outcome is Outcome.FAIL and one.blame is not None
                )
            ),
            seconds=0.0,
        )
        if judged.outcome is Outcome.FAIL:
            say(f"seed {seed}: FAIL: {judged.reason}")
            self._repeat(row, case, failures_of(judged))
        row.seconds = (now_ns() - begun) / 1e9
        return row

    def _repeat(self, row: StormRow, case: Case, failures: frozenset[str]) -> None:
        """Repeat a failing case; if it fails again, shrink it and write its scenario."""
        row.repeated = False
        for number in range(1, REPETITIONS + 1):
            again = self._cycle(f"seed-{row.seed}-repeated-{number}", row.seed, case)
            row.cycles.append(again.name)
            if failures & failures_of(again):
                row.repeated = True
                break
        if not row.repeated:
            say(f"seed {row.seed}: the failure did not occur again in {REPETITIONS} repetitions")
            return
        shown = again.name
        number = 0

        def fails(one: Case) -> bool:
            nonlocal shown, number
            number += 1
            step(f"seed {row.seed}: smaller case {number}: {in_words(one)}: {'; '.join(map(str, one.faults))}")
            try:
                made = self._cycle(f"seed-{row.seed}-smaller-{number}", row.seed, one)
            except RequestError:  # the smaller stack is not possible on these disks
                return False
            failed = bool(failures & failures_of(made))
            shown = made.name if failed else shown
            return failed

        smallest, tried = shrunk(case, fails, most=MOST_SMALLER, beyond=self.record.beyond)
        text = scenario_of(smallest, self.plan.hardware, row.seed, row.reason)
        name = f"test_seed_{row.seed}.py"
        self.current_run.store.write_text(name, text)
        row.shrunk = ShrunkCase(case=drawn(smallest), cycle=shown, tried=tried, scenario=name, text=text)
        say(f"seed {row.seed}: the smallest failing schedule is {'; '.join(map(str, smallest.faults))}; see {name}")

    def _cycle(self, name: str, seed: int, case: Case) -> CrashTestRecord:
        """Run the crash test of a case; a request that only the running lab can refuse is an error of the rig."""
        # A crash test of an interrupted storm may have left files under this name.
        names = chain([name], (f"{name}-attempt-{attempt}" for attempt in count(2)))
        name = next(one for one in names if not (self.current_run.store.path / one).exists())
        spec = spec_of(name, seed, case)
        try:
            made = self.current_run.cycle(spec)
        except RequestError as error:
            cycles = self.current_run.record.cycles
            if cycles and cycles[-1].name == name:
                return cycles[-1]
            raise RequestError(f"seed {seed}: {error}") from error
        if made.outcome is not Outcome.FAIL:
            self._drop_log(made)
        return made

    def _drop_log(self, cycle: CrashTestRecord) -> None:
        """Remove the write log of a crash test that did not fail, which has about a hundred MiB."""
        if cycle.files.write_log is not None:
            (self.current_run.store.path / cycle.files.write_log).unlink(missing_ok=True)
            cycle.files.write_log = None


def spec_of(name: str, seed: int, case: Case) -> CrashTestSpec:
    """Return the crash test of a case."""
    return CrashTestSpec(
        name=name,
        title=name.replace("-", " "),
        stack=case.stack,
        cache_mode=case.cache_mode,
        faults=case.faults,
        seed=seed,
        ledger=LedgerSpec(kinds=case.kinds),
    )


def failures_of(cycle: CrashTestRecord) -> frozenset[str]:
    """Return what failed in a crash test: the names of its verdicts; a smaller case must share one of them."""
    failed = {one.checker for one in cycle.verdicts if one.outcome is Outcome.FAIL}
    return frozenset(failed or ({NOT_RECOVERED} if cycle.outcome is Outcome.FAIL else ()))


def stacks_of(matrix: Matrix) -> list[StackSpec]:
    """Return the different stacks of a plan's cells, in the order of the cells."""
    return list({cell.stack.model_dump_json(): cell.stack for cell in matrix.cells}.values())


def in_words(case: Case) -> str:
    """Return the array, the file system and the caches of a case as text."""
    array = case.stack.array
    policy = f", {array.policy}" if array.kind.redundant else ""
    return (
        f"{array.type} RAID{array.level} of {len(array.members)}{policy}, {case.stack.filesystem.type}, NFS "
        f"{case.stack.mount.vers}, caches {case.cache_mode.value}"
    )


def drawn(case: Case) -> DrawnCase:
    """Return the record of a case."""
    return DrawnCase(
        array=in_words(case),
        members=len(case.stack.array.members),
        cache_mode=case.cache_mode.value,
        kinds=list(case.kinds),
        faults=[str(one) for one in case.faults],
        names=[one.fault.name for one in case.faults],
        phases=[phase_of(one.moment) for one in case.faults],
        tables=case.tables(),
    )


def phase_of(moment: Moment) -> str:
    """Return the name of the phase in which a fault is injected."""
    match moment:
        case InRecovery(stage):
            return stage.value
        case WhenServed():
            return "grace"
        case AfterRecovery():
            return "recovery"
    return "work"


def digest_of(matrix: Matrix, kinds: Iterable[str], *, beyond: bool) -> str:
    """Return the digest of what determines the case of each seed."""
    text = "\n".join([matrix.digest, *sorted(kinds), str(beyond)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def newest_of(digest: str, results: Path) -> RunStore:
    """Return the newest stored storm of a request.

    Raises:
        RequestError: the directory has none.
    """
    for path in sorted(results.glob(f"*-{WHAT}*/{STORM}"), reverse=True):
        if read_record(path, StormRecord, STORM_SCHEMA, "a storm").digest == digest:
            return RunStore(path.parent)
    raise RequestError(f"{results.absolute()} has no storm of this request that could be resumed")


def run_storm(
    matrix: Matrix,
    results: Path,
    seeds: Sequence[int],
    *,
    platform: Platform | None = None,
    minutes: float | None = None,
    kinds: Sequence[str] = (),
    beyond: bool = False,
    resume: bool = False,
) -> tuple[StormRecord, Path]:
    """Run the crash tests of all seeds in one lab; return the record and the path of its page.

    Raises:
        RequestError: no schedule is legal for the plan's stacks, or no storm can be resumed.
        RequirementMissing: this host cannot run a lab.
    """
    require_host()
    digest = digest_of(matrix, kinds, beyond=beyond)
    for stack in stacks_of(matrix):
        draw(seeds[0], [stack], kinds, beyond=beyond)
    resumed = newest_of(digest, results) if resume else None
    with progress("preparing kernel and image"):
        topology = matrix.plan.hardware.topology(platform or matrix.plan.run.platform)
        prepare(topology)
    with Run(WHAT, results, topology, resumed=resumed) as run:
        if resumed is None:
            record = StormRecord(
                run=run.record.run,
                plan=matrix.plan.name,
                started=run.record.started,
                command=command_line(sys.argv),
                digest=digest,
                first=seeds[0],
                last=seeds[-1],
                kinds=list(kinds),
                beyond=beyond,
            )
        else:
            record = read_record(resumed.path / STORM, StormRecord, STORM_SCHEMA, "a storm")
            record.ended, record.first, record.last = None, min(record.first, seeds[0]), max(record.last, seeds[-1])
            # Errors of the rig and interruptions prove nothing.
            record.rows = [row for row in record.rows if row.outcome is not Outcome.ERROR]
            run.record.cycles = [one for one in run.record.cycles if one.outcome is not Outcome.ERROR]
        storm = Storm(matrix, run, record)
        try:
            storm.run(seeds, minutes)
        except KeyboardInterrupt:
            say(f"interrupted; the same command with --resume continues the storm in {run.store.path}")
            raise
        finally:
            page = storm.finish()
    return record, page
