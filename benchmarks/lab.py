"""Measures the time from the start of a command until both clients have mounted NFS, with the demo's lab, warm caches.

Each repetition is a separate process, so that the start of Python and its imports count. Run it as
`python -m benchmarks.lab`.
"""

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import load, row
from raidproof.core import command
from raidproof.core.log import progress
from raidproof.core.waiting import now_ns
from raidproof.provider.registry import lab_of, prepare
from raidproof.run.demo import demo_stack, demo_topology
from raidproof.run.doctor import require_host
from raidproof.storage.stack import Stack

BAR_S = 8.0
"""Greatest accepted median in seconds."""
DEADLINE_S = 180.0
STAGES = ("start", "boot", "create", "activate")
"""Start of Python and checks of the host; boot of the machines; creation of the stack; its activation."""


def once() -> list[int]:
    """Start a lab, build the stack, and return the end of each stage (CLOCK_MONOTONIC, ns)."""
    require_host()
    ends = [now_ns()]
    with TemporaryDirectory() as logs, lab_of(demo_topology(), logs=Path(logs)) as lab:
        ends.append(now_ns())
        stack = Stack(demo_stack(sync=True), lab.server, lab.clients)
        stack.create()
        ends.append(now_ns())
        stack.activate()
        ends.append(now_ns())
    return ends


def measure() -> dict[str, float]:
    """Start a lab in a new process; return the seconds of each stage and of all stages together."""
    begun = now_ns()
    output = command.succeed([sys.executable, "-m", "benchmarks.lab", "--once"], deadline_s=DEADLINE_S)
    stamps = [begun, *json.loads(output)]
    seconds = [(end - begin) / 1e9 for begin, end in pairwise(stamps)]
    return {**dict(zip(STAGES, seconds, strict=True)), "command to mounted": sum(seconds)}


def main() -> int:
    """Print the table; return status 1 if the median is above the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--once", action="store_true", help="make one repetition and print the ends of its stages")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once()))
        return 0
    with progress("preparing kernel and image"):
        prepare(demo_topology())
    print(f"before: {load()}", flush=True)
    measured = []
    for turn in range(options.repeats):
        measured.append(measure())
        print(f"{turn + 1}: " + ", ".join(f"{what} {value:.2f} s" for what, value in measured[-1].items()), flush=True)
    print(f"after: {load()}\n")
    for what in measured[0]:
        print(row(what, [one[what] for one in measured], "s", f"bar: at most {BAR_S:.0f} s" if " " in what else ""))
    # The median decides, as a shared host may be slow for a minute.
    return int(sorted(one["command to mounted"] for one in measured)[len(measured) // 2] > BAR_S)


if __name__ == "__main__":
    sys.exit(main())
