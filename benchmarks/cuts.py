"""Cuts the power many times in one lab, and verifies the expected result of each cut, and that nothing leaks.

There are three kinds of crash tests: a sync export must lose nothing, lying disks must be found, and an async export
must lose operations. The program prints a line for each cut, then a summary, also if it is interrupted. Run it as
`python -m benchmarks.cuts --cuts 50`.
"""

import argparse
import io
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.figures import load, row
from raidproof.core.errors import RigError
from raidproof.core.log import shown_on
from raidproof.core.waiting import unwinding_on_signals
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.lab.lab import Lab
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.record import ControlSpec, CrashTestRecord
from raidproof.record.outcome import Outcome
from raidproof.run.crash_test import CrashTestSpec
from raidproof.run.demo import demo_stack, demo_topology
from raidproof.run.run import Run

BAR_S = 10.0
"""Greatest accepted number of seconds from a cut to the end of its verification."""
POLICIES = (CutPolicy.RANDOM, CutPolicy.TORN, CutPolicy.DROP)
KINDS = ("sync", "lying", "async")
"""Kinds of crash tests: a sync export, a sync export on lying disks, an async export."""
DAEMONS = 2
"""Number of processes of a lab in addition to its machines: the disk engine and the server's storage daemon."""


def spec_of(kind: str, seed: int, seconds: float) -> CrashTestSpec:
    """Return a crash test of this kind; the policy of the cut rotates with the seed."""
    lying = kind == "lying"
    return CrashTestSpec(
        name=f"{kind}-{seed}",
        title=f"{kind} {seed}",
        stack=demo_stack(sync=kind != "async"),
        cache_mode=CacheMode.LYING if lying else CacheMode.VOLATILE,
        policy=POLICIES[seed % len(POLICIES)],
        seed=seed,
        ledger_seconds=seconds,
        control=ControlSpec(expects_loss=True, expects_blame="the disks") if lying else None,
    )


def lost(record: CrashTestRecord) -> int:
    """Return the number of acknowledged operations that are lost, on the server or through a client."""
    return max((seen.lost_total for seen in (record.on_server, record.on_client) if seen is not None), default=0)


def as_expected(kind: str, record: CrashTestRecord) -> bool:
    """Return whether a crash test gave the expected result of its kind: no loss with sync, a loss otherwise."""
    if record.outcome is not Outcome.PASS:
        return False
    # A control that passes has found the lying disks, whether they lost operations or the whole array.
    return lost(record) > 0 if kind == "async" else kind == "lying" or lost(record) == 0


@dataclass
class ExplorationStats:
    """The results of all cuts of one kind of crash test."""

    kind: str
    ends: Counter[str] = field(default_factory=Counter)
    """Number of cuts by outcome."""
    verified_s: list[float] = field(default_factory=list)
    """Seconds from each cut to the end of its verification."""
    acknowledged: int = 0
    """Number of acknowledged operations."""
    lost: int = 0
    """Number of lost acknowledged operations."""
    cycles_with_loss: int = 0
    expected: int = 0
    """Number of cuts with the expected result."""
    leaks: int = 0
    """Number of surplus processes and leftovers."""

    def add(self, record: CrashTestRecord, leaks: int) -> None:
        """Add the record and the leaks of one cut."""
        self.ends[record.outcome.value] += 1
        self.verified_s += [] if record.verified_s is None else [record.verified_s]
        self.acknowledged += max(
            (seen.acknowledged_total for seen in (record.on_server, record.on_client) if seen), default=0
        )
        self.lost += lost(record)
        self.cycles_with_loss += lost(record) > 0 or record.not_recovered is not None
        self.expected += as_expected(self.kind, record)
        self.leaks += leaks

    @property
    def cuts(self) -> int:
        """Number of cuts."""
        return self.ends.total()

    def kept_bar(self) -> bool:
        """Return whether every cut gave the expected result in time and without leaks."""
        return self.expected == self.cuts and not self.leaks and max(self.verified_s, default=0) <= BAR_S

    def lines(self) -> Iterator[str]:
        """Yield the lines of the summary."""
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        bar = {"sync": "0 lost, 0 errors, 0 leaks", "lying": "all lying disks found", "async": "all lose"}[self.kind]
        yield f"{self.kind}: {self.cuts} cuts, {self.expected} as expected (bar: {bar}); outcomes: {ends or 'none'}"
        yield f"  {self.acknowledged:,} operations acknowledged, {self.lost:,} lost in {self.cycles_with_loss} cuts"
        yield f"  {self.ends['ERROR']} errors, {self.leaks} leaks"
        yield row("  cut to verified", self.verified_s, "s", f"bar: at most {BAR_S:.0f} s")


def surplus(lab: Lab) -> int:
    """Return the number of surplus processes of a running lab; orphans become children of the namespace's process."""
    assert isinstance(lab, NamespaceLab)  # noqa: S101  the demo's lab is one
    return max(0, len(psutil.Process(lab.namespace.pid).children()) - len(lab.machines) - DAEMONS)


def left(labs: set[Path]) -> list[str]:
    """Return the leftovers of ended labs: directories, processes that name a directory, and child processes."""
    found = [f"directory {path}" for path in labs if path.exists()]
    ours = {process.pid for process in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if process.pid in ours or any(str(path) in words for path in labs):
            found.append(f"process {process.pid} {words[:60]}")
    return found


@contextmanager
def results(chosen: Path | None) -> Iterator[Path]:
    """Yield a folder for the records: ``chosen``, or a temporary folder."""
    if chosen is not None:
        yield chosen
        return
    with TemporaryDirectory(prefix="raidproof-cuts-") as folder:
        yield Path(folder)


def descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  only the number of entries is needed


def run(tally: ExplorationStats, folder: Path, cuts: int, first_seed: int, seconds: float) -> None:
    """Cut the power ``cuts`` times in one lab, print a line for each cut, and count the results in ``tally``."""
    labs: set[Path] = set()
    before = 0
    try:
        with Run(f"cuts-{tally.kind}", folder, demo_topology()) as current_run:
            for seed in range(first_seed, first_seed + cuts):
                lab = current_run.lab
                assert isinstance(lab, NamespaceLab)  # noqa: S101  the demo's lab is one
                labs.add(lab.directory.path)
                spec = spec_of(tally.kind, seed, seconds)
                with shown_on(io.StringIO(), 80):
                    record = current_run.cycle(spec)
                # After an error the run has ended the lab, whose leftovers `left` counts.
                ended = record.rig_error or record.not_recovered or record.not_effective
                tally.add(record, 0 if ended else surplus(current_run.lab))
                before = before or descriptors()
                first = record.reason.partition("\n")[0]
                gone = "everything" if record.not_recovered else f"{lost(record):,}"
                print(
                    f"{tally.kind} {tally.cuts}/{cuts} {spec.policy.value} seed {seed}: {record.outcome} "
                    f"lost {gone}, verified {record.verified_s or 0:.1f} s: {first}",
                    flush=True,
                )
                if as_expected(tally.kind, record):
                    shutil.rmtree(current_run.store.path / spec.name)  # its files take about 10 MB and are not needed
    except RigError as error:
        # The lab does not boot, so that no further cut is possible.
        tally.ends[Outcome.ERROR.value] += 1
        print(f"{tally.kind}: {error}")
    finally:
        remains = left(labs)
        tally.leaks += len(remains)
        for one in remains:
            print(f"left behind: {one}")
        if before:
            print(
                f"{tally.kind}: {len(labs)} labs; open descriptors {before} after the first cut, {descriptors()} now"
            )


def main() -> int:
    """Print a line for each cut and the summary; return status 1 if a bar is missed, 130 if interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=50, help="number of cuts of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first cut")
    parser.add_argument("--ledger-seconds", type=float, default=3.0, help="seconds that the clients work before a cut")
    parser.add_argument("--results", type=Path, help="folder that keeps the records of unexpected results")
    options = parser.parse_args()
    tallies: list[ExplorationStats] = []
    status = 0
    print(f"before: {load()}", flush=True)
    try:
        with unwinding_on_signals(), results(options.results) as folder:
            for kind in options.kinds:
                tallies.append(ExplorationStats(kind))
                run(tallies[-1], folder, options.cuts, options.seed, options.ledger_seconds)
    except KeyboardInterrupt as signal:
        print(f"interrupted: {signal}")
        status = 130
    finally:
        print(f"after: {load()}\n")
        for tally in tallies:
            print("\n".join(tally.lines()))
    return status or int(not all(tally.kept_bar() for tally in tallies))


if __name__ == "__main__":
    sys.exit(main())
