"""Prints how long raidproof takes to list many stored runs, to create their index, and whether killed writers harm it.

The program copies a recorded run under many names into a temporary directory, and times `raidproof ls` as a user runs
it. Then three processes write runs at a time, and one of them is killed with SIGKILL at a random instant, in several
rounds. Run it as `python -m benchmarks.store`.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from raidproof.core.waiting import now_ns, pause
from raidproof.record.index import INDEX, Index
from raidproof.record.names import RECORD, TIME

RECORDED = Path(__file__).resolve().parents[1] / "tests" / "data" / "run"
WRITER = """
import sys
from pathlib import Path
from raidproof.core.waiting import wall_clock
from raidproof.record.index import update
from raidproof.record.run import RunRecord
from raidproof.record.store import RunStore

results, name, record = Path(sys.argv[1]), sys.argv[2], RunStore(Path(sys.argv[3])).load()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[4])):
    store = RunStore.create(results, name)
    record.run, record.ended = store.path.name, None
    store.save(record)
    record.ended = wall_clock()
    store.save(record)
    print(store.path.name, flush=True)
    update(store.path)
"""
"""Program that writes runs, and prints the name of each run after its record is stored durably."""


class Round(NamedTuple):
    """The result of one round of three writers, of which one was killed."""

    announced: int
    """Number of runs whose names the writers had printed."""
    found: int
    """Number of directories of runs."""
    problems: list[str]
    """Differences between the directories, the names that the writers printed, and the index."""


def fill(results: Path, runs: int) -> None:
    """Copy the recorded run into a results directory ``runs`` times, each with another name and begin."""
    record = json.loads((RECORDED / RECORD).read_text())
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(runs):
        at = begun + timedelta(minutes=number)
        folder = results / f"{at:{TIME}}-demo"
        folder.mkdir(parents=True)
        changed = record | {"run": folder.name, "started": at.isoformat()}
        (folder / RECORD).write_text(json.dumps(changed, indent=1))


def timed(results: Path, *options: str) -> tuple[float, float, int]:
    """Run `raidproof ls`; return the seconds that it took, its seconds of CPU time, and the number of its lines."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), now_ns()
    command = [sys.executable, "-m", "raidproof", "ls", "--results", str(results), *options]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    took_s, after = (now_ns() - begun) / 1e9, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took_s, cpu_s, len(lines)


def round_of_writers(results: Path, seed: int, runs: int = 30) -> Round:
    """Let three processes write runs into a results directory; kill one of them at a random instant; compare."""
    Index.open(results).close()
    random_ = random.Random(seed)  # noqa: S311  no secret
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(results), f"writer{number}", str(RECORDED), str(runs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdout is not None  # noqa: S101
        writer.stdout.readline()
    for writer in writers:
        assert writer.stdin is not None  # noqa: S101
        writer.stdin.write("\n")
        writer.stdin.flush()
    pause(random_.uniform(0.0, 1.0))
    writers[random_.randrange(3)].kill()
    announced = {name for writer in writers for name in writer.communicate()[0].split()}
    return compared(results, announced)


def compared(results: Path, announced: set[str]) -> Round:
    """Compare the directories of runs with the names of runs that were stored, and with the index."""
    folders = {path.name for path in results.iterdir() if path.is_dir()}
    problems = [f"{name}: stored, and now missing" for name in sorted(announced - folders)]
    with Index.open(results) as index, Index.in_memory(results) as anew:
        anew.reconcile()
        listed, expected = (one.runs() for one in (index, anew))
        problems += [f"{run.folder}: the index differs from the directory" for run in {*listed} ^ {*expected}]
        tests = [one.crash_tests() for one in (index, anew)]
        problems += ["the crash tests of the index differ"] if {*tests[0]} != {*tests[1]} else []
    problems += [f"{name}: not in the index" for name in sorted(folders - {run.folder for run in listed})]
    by_name = {run.folder: run for run in listed}
    problems += [
        f"{name}: {by_name[name].state}: {by_name[name].reason}"
        for name in sorted(announced & by_name.keys())
        if by_name[name].ended is None
    ]
    return Round(len(announced), len(folders), problems)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="number of stored runs (default 10,000)")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of killed writers (default 50)")
    parser.add_argument("--folder", type=Path, default=None, help="directory for the temporary directory")
    asked = parser.parse_args()
    with TemporaryDirectory(dir=asked.folder) as folder:
        results = Path(folder) / "results"
        fill(results, asked.runs)
        print(f"{asked.runs:,} runs of {(RECORDED / RECORD).stat().st_size:,} bytes; wall time, CPU time, lines")
        for what, options in (
            ("index created", ["--limit", "1"]),
            ("ls", []),
            ("ls", []),
            ("ls --limit 0", ["--limit", "0"]),
            ("ls --json", ["--json"]),
            ("ls --outcome FAIL --since 2026-01-02", ["--outcome", "FAIL", "--since", "2026-01-02"]),
            ("ls --rebuild", ["--rebuild"]),
        ):
            took_s, cpu_s, lines = timed(results, *options)
            print(f"{what:40} {took_s:7.2f} s {cpu_s:7.2f} s {lines:7,}")
        print(f"size of the index: {(results / INDEX).stat().st_size / 1e6:.1f} MB")
        rounds = []
        for seed in range(asked.rounds):
            (results := Path(folder) / f"round{seed}").mkdir()
            rounds.append(round_of_writers(results, seed))
        for problem in (problem for one in rounds for problem in one.problems):
            print(problem)
        bad = sum(bool(one.problems) for one in rounds)
        runs = sum(one.found for one in rounds)
        print(f"{len(rounds)} rounds with a killed writer, {runs:,} runs: {bad} rounds with a difference")


if __name__ == "__main__":
    main()
