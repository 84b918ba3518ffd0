"""Measures how many acknowledged 4 KiB fsyncs per second the ledger records.

The lab has two clients, an async export and disks without latency.
In the last row each client writes to its own memory, without NFS: this is the limit of the ledger itself.
Run it as `python -m benchmarks.ledger`.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import load, row
from raidproof.core.waiting import Deadline, now_ns, pause
from raidproof.lab.lab import Lab
from raidproof.provider.registry import lab_of
from raidproof.run.demo import demo_stack, demo_topology
from raidproof.storage.stack import Stack
from raidproof.workload.ledger import Ledger, LedgerSpec

BAR = 2000.0
"""Least accepted number of acknowledged fsyncs per second of both clients together."""
STOP_DEADLINE_S = 60.0
IN_MEMORY = "/run/ledger"
"""Directory in the memory of a client."""


def rate(lab: Lab, workers: int, seconds: float, root: str, folder: Path) -> float:
    """Run ``workers`` workers on each client; return the acknowledgements per second of both clients together."""
    ledger = Ledger(LedgerSpec(kinds=("fsync",) * workers), lab.clients, lab, root, folder / "history")
    with ledger.running():
        begun = now_ns()
        pause(seconds)
        ended = now_ns()
        ledger.stop(Deadline.after(STOP_DEADLINE_S))
    ends = [one.ended_ns for one in ledger.history().acknowledged(ended) if one.kind == "fsync"]
    return sum(stamp is not None and stamp >= begun for stamp in ends) / (ended - begun) * 1e9


def main() -> int:
    """Print the table; return status 1 if the rate is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 3, 6], help="numbers of workers on each client")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    print(f"before: {load()}", flush=True)
    with TemporaryDirectory() as name, lab_of(demo_topology(), logs=Path(name)) as lab:
        stack = Stack(demo_stack(sync=False), lab.server, lab.clients)
        stack.create()
        stack.activate()
        exported = f"{stack.mounts[lab.clients[0].name].directory}/ledger"
        for turn in range(options.repeats):
            places = [
                (f"async export, {workers} workers per client", workers, exported) for workers in options.workers
            ]
            places.append(("no storage, 1 worker per client", 1, IN_MEMORY))
            for what, workers, root in places:
                for client in lab.clients:
                    client.succeed(["mkdir", "-p", root])
                rates.setdefault(what, []).append(rate(lab, workers, options.seconds, root, Path(name)))
                lab.clients[0].succeed(["rm", "-r", root])
                if root == IN_MEMORY:
                    lab.clients[1].succeed(["rm", "-r", root])
            print(
                f"{turn + 1}: " + ", ".join(f"{what} {values[-1]:,.0f}/s" for what, values in rates.items()),
                flush=True,
            )
    print(f"after: {load()}\n")
    for what, values in rates.items():
        print(row(what, values, "/s", f"bar: at least {BAR:,.0f}" if what.startswith("async") else ""))
    best = max(sorted(values)[len(values) // 2] for what, values in rates.items() if what.startswith("async"))
    return int(best < BAR)


if __name__ == "__main__":
    sys.exit(main())
