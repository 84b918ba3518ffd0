"""The core: scenarios that together exercise every row of the table that a short scenario exercises.

`./raidproof test core` runs the core, and `./raidproof test rest` the other scenarios. The file `coverage.json` has
the duration and the rows of each scenario; `./raidproof scenarios --record-coverage` measures them again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scenarios.coverage import Axis, Row, required

RECORDED = Path(__file__).with_name("coverage.json")
SHORT_S = 60.0
"""Greatest duration in seconds of a scenario of the core."""


EXHAUSTIVE = "only scenarios with the marker exhaustive have it"
LONG = "only scenarios that take longer have it: the part rest runs them"
UNIT = "unit tests run the command, with the same code below it as the fixtures of scenarios"
ELSEWHERE: Mapping[Axis, Mapping[str, str]] = {
    Axis.ARRAY: {"lvm": EXHAUSTIVE, "zfs": EXHAUSTIVE},
    Axis.LEVEL: {"z1": EXHAUSTIVE, "z2": EXHAUSTIVE, "z3": EXHAUSTIVE},
    Axis.MEMBER: {"crypt": EXHAUSTIVE, "integrity": LONG, "integrity-bitmap": EXHAUSTIVE},
    Axis.VOLUME: dict.fromkeys(("bcache", "cache", "crypt", "writecache"), EXHAUSTIVE),
    Axis.FILESYSTEM: {"zfs": EXHAUSTIVE},
    Axis.SERVER: {"ganesha": "crash/test_checker.py starts it; only scenarios with the marker exhaustive mount it"},
    Axis.NFS: {"4.0": EXHAUSTIVE},
    Axis.FAULT: dict.fromkeys(
        ("client-network-cut", "inodes-exhausted", "server-restart", "slow-member", "switchover"), EXHAUSTIVE
    ),
    Axis.PROMISE: {
        "setxattr": "left out by default: nfsd acknowledges it before it is durable (docs/findings.md)",
        "zero_range": "needs a client with Linux 6.16, and the default kernel is older",
    },
    Axis.PROVIDER: {"qemu": LONG, "vagrant": EXHAUSTIVE},
    Axis.EXECUTION: {"suite of another project": LONG, "advice": LONG},
    Axis.COMMAND: {
        **dict.fromkeys(("demo", "advise", "hosts", "gc", "selftest"), LONG),
        **dict.fromkeys(("bisect", "explore", "recover", "findings", "judge", "doctor"), UNIT),
        **dict.fromkeys(("worker", "cluster", "scenarios"), EXHAUSTIVE),
    },
    Axis.PLANT: dict.fromkeys(
        ("test_each_planted_defect_of_the_disks_is_found", "test_the_first_slow_link_is_found"), LONG
    ),
}
"""The rows of the table that no short scenario has, each with the reason."""


@dataclass(frozen=True)
class Recorded:
    """What one run of a scenario exercised, and how long it took."""

    seconds: float
    """Duration with set-up and teardown, on a machine that ran two scenarios at a time."""
    rows: frozenset[Row]


def choose(recorded: Mapping[str, Recorded], short_s: float = SHORT_S) -> frozenset[str]:
    """Return the names of the scenarios of the core.

    This is the greedy algorithm for the weighted set cover (Chvatal 1979): as long as a short scenario has a row that
    no chosen one has, it chooses the one with the most new rows for each second. Of scenarios that are as good, it
    chooses the first by name. At the end, it leaves out each scenario whose rows the others have, the longest first.
    """
    short = {name: one for name, one in recorded.items() if one.seconds <= short_s}
    missing = {row for one in short.values() for row in one.rows}
    chosen: set[str] = set()
    while missing:
        name = max(sorted(short), key=lambda name: len(short[name].rows & missing) / max(short[name].seconds, 0.1))
        chosen.add(name)
        missing -= short[name].rows
    for name in sorted(chosen, key=lambda name: (-short[name].seconds, name)):
        others = {row for other in chosen - {name} for row in short[other].rows}
        if short[name].rows <= others:
            chosen.remove(name)
    return frozenset(chosen)


def rows_of(names: Iterable[str], recorded: Mapping[str, Recorded]) -> frozenset[Row]:
    """Return the rows that at least one of the named scenarios exercises."""
    return frozenset(row for name in names for row in recorded[name].rows)


def only_long(recorded: Mapping[str, Recorded], short_s: float = SHORT_S) -> dict[Row, list[str]]:
    """Return the rows that no short scenario exercises, each with the names of the scenarios that exercise it."""
    short = rows_of((name for name, one in recorded.items() if one.seconds <= short_s), recorded)
    rows = sorted(rows_of(recorded, recorded) - short)
    return {row: sorted(name for name, one in recorded.items() if row in one.rows) for row in rows}


@cache
def load(path: Path = RECORDED) -> Mapping[str, Recorded]:
    """Read what earlier runs of the scenarios recorded, by the name of the scenario (pytest's node id)."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    return {name: Recorded(one["seconds"], frozenset(map(Row.parse, one["rows"]))) for name, one in stored.items()}


def store(recorded: Mapping[str, Recorded], path: Path = RECORDED) -> None:
    """Write what runs of the scenarios recorded."""
    content = {
        name: {"seconds": round(one.seconds, 1), "rows": sorted(map(str, one.rows))}
        for name, one in sorted(recorded.items())
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def is_core(name: str) -> bool:
    """Return whether a scenario belongs to the core. A scenario that was never recorded does: it is new."""
    recorded = load()
    return name not in recorded or name in _chosen()


@cache
def _chosen() -> frozenset[str]:
    return choose(load())


def file_of(name: str) -> str:
    """Return the file of a scenario."""
    return name.partition("::")[0]


def longest_first(names: Iterable[str], recorded: Mapping[str, Recorded]) -> list[str]:
    """Return the files of the named scenarios, the one with the most recorded seconds first.

    Workers that take a file each, in this order, end at nearly the same time (longest processing time first, Graham
    1969). A scenario that was never recorded counts with `SHORT_S`.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for name in names:
        seconds[file_of(name)] += recorded[name].seconds if name in recorded else SHORT_S
    return sorted(seconds, key=lambda file: (-seconds[file], file))


def elsewhere() -> dict[Row, str]:
    """Return `ELSEWHERE` by row."""
    return {Row(axis, value): why for axis, values in ELSEWHERE.items() for value, why in values.items()}


def plants(recorded: Mapping[str, Recorded]) -> frozenset[str]:
    """Return the names of the planted defects that scenarios plant."""
    return frozenset(row.value for row in rows_of(recorded, recorded) if row.axis is Axis.PLANT)


def table(recorded: Mapping[str, Recorded]) -> Table:
    """Return the table of all rows, each with the scenarios of the core that have it, or why none has it."""
    chosen = choose(recorded)
    seconds = sum(recorded[name].seconds for name in chosen)
    drawn = Table(title=f"core: {len(chosen)} of {len(recorded)} scenarios, {seconds:.0f} s on one worker")
    for title in ("row", "scenarios of the core"):
        drawn.add_column(title)
    for row, names in _with_row(chosen, recorded):
        drawn.add_row(str(row), "\n".join(names) or f"none: {elsewhere().get(row, 'not listed')}")
    return drawn


def _with_row(chosen: Iterable[str], recorded: Mapping[str, Recorded]) -> Iterator[tuple[Row, list[str]]]:
    for row in required(plants(recorded)):
        yield row, sorted(name for name in chosen if row in recorded[name].rows)


if __name__ == "__main__":
    Console().print(table(load()))
