"""Plant a difference of the disks' speed between two sides, and print whether the comparison finds it.

python -m benchmarks.planted_speed [--comparisons 5] [--repetitions 10] [--share 0.1] [--results DIR]

Both sides have the same software. The disks of new transfer data more slowly than those of base by the share; 0 makes
equal sides.
"""

import argparse
import re
import tomllib
from contextlib import ExitStack
from pathlib import Path

from raidproof.plan.cell import Matrix, matrix_of
from raidproof.plan.plan import load_plan
from raidproof.provider.registry import prepare
from raidproof.record.comparison import BASE, NEW, ComparisonRecord
from raidproof.run.comparison import take_turns
from raidproof.run.plan_runner import PlanRunner, record_of
from raidproof.run.run import Run
from raidproof.verdict.change.comparison import compare

PROFILES = Path(__file__).resolve().parents[1] / "harness" / "raidproof" / "disk" / "profiles"
RATES = r"(?m)^(media_rate_\w+_mb_s|interface_mb_s) = ([0-9._]+)"


def slower(name: str, share: float, folder: Path) -> Path:
    """Write a profile whose transfer rates are lower by a share, and return its path."""
    text = re.sub(
        RATES, lambda found: f"{found[1]} = {(1 - share) * float(found[2])}", (PROFILES / f"{name}.toml").read_text()
    )
    tomllib.loads(text)
    path = folder / f"{name}-{share:g}-slower.toml"
    path.write_text(text)
    return path


def plan_of(profile: str, name: str, repetitions: int, cells: int, folder: Path) -> tuple[Matrix, Path]:
    """Write a plan whose disks have this profile, and return its cells and its path."""
    path = folder / f"{name}.toml"
    sizes = ["64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "32KiB"][:cells]
    path.write_text(
        f'hardware = {{ disks = {{ count = 2, profile = "{profile}", size = "1GiB" }}, slow_motion = 1 }}\n'
        f"axes = {{ wsize = {sizes} }}\n"
        "fixed = { level = 1 }\n"
        'workload = { tool = "dd", bs = "1MiB", count = 32 }\n'
        f"run = {{ repeats = {repetitions}, allow_cache = true }}\n"
    )
    return matrix_of(load_plan(path, {})), path


def compared(profiles: tuple[str, str], repetitions: int, cells: int, results: Path) -> ComparisonRecord:
    """Measure both sides in turn, and return their comparison."""
    plans = [plan_of(profile, name, repetitions, cells, results)
             for profile, name in zip(profiles, (BASE, NEW), strict=True)]  # fmt: skip
    with ExitStack() as undo:
        runners = {}
        for name, (matrix, path) in zip((BASE, NEW), plans, strict=True):
            topology = matrix.plan.hardware.topology(matrix.plan.run.platform)
            prepare(topology)
            side = Run(f"planted-{name}", results, topology)
            side.record.plan = record_of(matrix, path)
            undo.enter_context(side)
            runners[name] = PlanRunner(matrix, side)
        left, _ = [runner.begin() for runner in runners.values()]
        take_turns(runners, left)
    base, new = (runner.current_run.record for runner in runners.values())
    return compare(base, new, name="planted")


def main() -> None:
    """Print the findings of each comparison."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--comparisons", type=int, default=5)
    options.add_argument("--repetitions", type=int, default=10)
    options.add_argument("--cells", type=int, default=1)
    options.add_argument("--share", type=float, default=0.1)
    options.add_argument("--profile", default="ide-7200-4gb")
    options.add_argument("--results", type=Path, default=Path("results"))
    asked = options.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    new = str(slower(asked.profile, asked.share, asked.results)) if asked.share else asked.profile
    for number in range(1, asked.comparisons + 1):
        found = compared((asked.profile, new), asked.repetitions, asked.cells, asked.results)
        for pair in found.pairs:
            change = pair.change
            words = pair.why
            if change is not None:
                interval = "none" if change.low is None else f"{change.low:.3f}-{change.high:.3f}"
                words += f" ratio {change.ratio:.3f} ({interval}), p {change.p:.2g}, least {change.least}"
            print(f"{number}: {pair.name}: {pair.finding} {words}; {pair.base.values} {pair.new.values}", flush=True)


if __name__ == "__main__":
    main()
