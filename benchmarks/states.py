"""Measures how many crash states are checked per minute, for a ledger of 1,000 operations on RAID5 of 4 disks and XFS.

One in five states is also read through nfsd, as in an exploration.

The program records a run. Then one checker, and after that two checkers at the same time, check its crash states. Run
it as `python -m benchmarks.states --states 200`.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import load, row
from raidproof.core.log import progress
from raidproof.core.topology import Platform, SoftwareSpec, Topology
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.crash.checker import Checker
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.exploration import NFSD_EVERY
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.writelog import WriteLog
from raidproof.provider.registry import lab_of, prepare
from raidproof.run.demo import demo_stack, demo_topology
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.stack import Stack
from raidproof.workload.ledger import Ledger, LedgerSpec

BAR = 300
"""Least accepted number of crash states per minute."""
OPERATIONS = 1000
"""Number of operations of all workers together."""
FOLDER = "ledger"
LEDGER_DEADLINE_S = 120.0


def record_run(topology: Topology, folder: Path) -> tuple[Recording, dict[str, Any], int]:
    """Run the clients until all operations are done; return recording, arguments of checkers, begin of work (ns)."""
    path = folder / "write.log"
    with lab_of(topology, logs=folder / "run") as lab:
        lab.disks.reset()
        lab.disks.log_start(path)
        stack = Stack(demo_stack(sync=True), lab.server, lab.clients)
        stack.create()
        stack.activate()
        root = f"{stack.mounts[lab.clients[0].name].directory}/{FOLDER}"
        lab.clients[0].succeed(["mkdir", root])
        ledger = Ledger(LedgerSpec(), lab.clients, lab, root, folder / "history")
        each = -(-OPERATIONS // len(ledger.workers))
        ledger.workers = [worker.model_copy(update={"operations": each}) for worker in ledger.workers]
        begun = now_ns()
        with ledger.running():
            done = Deadline.after(LEDGER_DEADLINE_S)
            wait_until(lambda: all(one.ended for one in ledger._commands.values()), done, "the ledger")
        stack.deactivate()
        lab.disks.log_stop()
    print(f"{len(list(ledger.history().acknowledged()))} operations acknowledged")
    workers = [worker.model_dump() for worker in ledger.workers]
    orders = {"root": f"{DIRECTORY}/{FOLDER}", "seed": ledger.spec.seed, "workers": workers}
    return Recording(WriteLog(path)), orders, begun


def cuts_of(recording: Recording, since_ns: int, count: int) -> list[int]:
    """Return ``count`` cuts, evenly spread over the time of the clients' work."""
    cuts = [cut for cut in recording.cuts if recording.instant_ns(cut) >= since_ns]
    return [cuts[place * len(cuts) // count] for place in range(count)]


def state_at(window: DiskStates) -> CrashState:
    """Return one crash state of a window's cut, in which a random half of the unflushed requests survive."""
    rng = Random(window.cut)  # noqa: S311  a seeded choice, no secret
    return CrashState(window.cut, tuple(Survivor(number) for number in window.open if rng.random() < 0.5))


@dataclass
class Seat:
    """A checker, its position in the recording, and the results of its checks."""

    checker: Checker
    window: DiskStates
    ms: dict[str, list[float]] = field(default_factory=dict)
    """Durations of each check by stage."""
    ends: Counter[str] = field(default_factory=Counter)
    """Number of checks by their end."""
    alarms: Counter[str] = field(default_factory=Counter)
    """Number of checks by alarm on the console."""

    def look(self, cuts: Sequence[int]) -> None:
        """Check one state of each cut."""
        for number, cut in enumerate(cuts):
            begun = now_ns()
            self.checker.advance(self.window.move(cut))
            patch = self.window.patch(state_at(self.window))
            prepared = (now_ns() - begun) / 1e6
            observation = self.checker.check(patch, nfsd=number % NFSD_EVERY == 0)
            stages = {"prepare": prepared, **observation.ms}
            for stage, ms in {**stages, "all": sum(stages.values())}.items():
                self.ms.setdefault(stage, []).append(ms)
            self.ends[observation.end.value] += 1
            self.alarms.update(observation.console)


def measure(topology: Topology, recording: Recording, orders: dict[str, Any], cuts: list[int], checkers: int) -> float:
    """Check all cuts with ``checkers`` checkers, print the durations, and return the states checked per minute."""
    with TemporaryDirectory() as logs, ExitStack() as undo:
        stack, seats = demo_stack(sync=True), []
        for number in range(checkers):
            folder = Path(logs) / str(number)
            checker = Checker(topology, stack, orders, folder, content=recording.most_content)
            seats.append(Seat(undo.enter_context(checker), DiskStates(recording)))
            # Move to the first cut before the measurement begins.
            checker.advance(seats[-1].window.move(cuts[0]))
        begun = now_ns()
        with ThreadPoolExecutor(checkers) as pool:
            # Each checker gets every n-th cut.
            for done in [pool.submit(seat.look, cuts[number::checkers]) for number, seat in enumerate(seats)]:
                done.result()
        minutes = (now_ns() - begun) / 6e10
    print(f"\n{checkers} checker{'s' * (checkers > 1)}, {len(cuts)} states:")
    for stage in seats[0].ms:
        print(row(stage, [ms for seat in seats for ms in seat.ms[stage]], "ms"))
    print(f"checks by their end: {dict(sum((seat.ends for seat in seats), Counter()))}")
    if alarms := sum((seat.alarms for seat in seats), Counter()):
        print(f"alarms: {dict(alarms)}")
    rate = len(cuts) / minutes
    print(f"{rate:,.0f} states per minute (bar: at least {BAR})", flush=True)
    return rate


def main() -> int:
    """Print the tables; return status 1 if the rate is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=200)
    parser.add_argument("--kernel", help="kernel of all machines, for example debian/sid")
    parser.add_argument("--checkers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    software = SoftwareSpec(kernel=options.kernel)
    topology = demo_topology(Platform(server=software, clients=software))
    with progress("preparing kernel and image"):
        prepare(topology)
    with TemporaryDirectory() as folder:
        recording, orders, since = record_run(topology, Path(folder))
        cuts = cuts_of(recording, since, options.states)
        print(f"{len(recording.records)} records, {len(recording.cuts)} cuts; {load()}")
        best = max(measure(topology, recording, orders, cuts, checkers) for checkers in options.checkers)
    print(f"after: {load()}")
    return int(best < BAR)


if __name__ == "__main__":
    sys.exit(main())
