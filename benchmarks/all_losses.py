"""Counts crash states with few lost requests by brute force, and compares the number with that of the program.

At each instant of a stored recording the program takes all outstanding requests, and each subset of at most K of them
as lost. It computes what is durable from the requests alone, without `raidproof.crash.exhaustive`, whose number it
prints beside its own. Run it as `python -m benchmarks.all_losses RUN:CYCLE --most 2`.
"""

import argparse
from bisect import bisect_left
from functools import reduce
from itertools import combinations
from operator import xor
from pathlib import Path
from random import Random

from raidproof.crash.exhaustive import AllLosses
from raidproof.crash.states import Recording
from raidproof.disk.writelog import CHANGES, Flag, Kind
from raidproof.record import RunStore
from raidproof.run.exploration import source_of


def durable_at(recording: Recording) -> dict[int, float]:
    """Return the instant at which each request becomes durable, in nanoseconds; infinity if it never does."""
    flushes: dict[int, list[tuple[int, int]]] = {}
    for one in recording.records:
        if one.kind is Kind.FLUSH and not one.flags & Flag.LIED:
            flushes.setdefault(one.member, []).append((one.issued_ns, one.completed_ns))
    ends: dict[int, list[float]] = {}
    for member, pairs in flushes.items():
        pairs.sort()
        least, lasting = float("inf"), list[float]()
        for _, completed in reversed(pairs):
            least = min(least, completed)
            lasting.append(least)
        ends[member] = lasting[::-1]
    found = {}
    for number in range(len(recording.records) + len(recording.caught)):
        one = recording.request(number)
        found[number] = float("inf")
        if one.kind not in CHANGES or number >= len(recording.records):
            continue
        if not recording.members[one.member].mode.loses or one.flags & Flag.FUA:
            found[number] = one.completed_ns
        else:
            place = bisect_left(flushes.get(one.member, []), (one.completed_ns, -1))
            if place < len(flushes.get(one.member, [])):
                found[number] = ends[one.member][place]
    return found


def count(recording: Recording, most: int, first: int) -> tuple[int, int]:
    """Return the number of (instant, subset) pairs, and the number of different sets of requests that they leave."""
    durable, begin, end = durable_at(recording), recording.instant_ns(first), recording.end_ns
    changes = [number for number in durable if recording.request(number).kind in CHANGES]
    # An event: a request becomes durable (0) before any is issued at this instant (1), and those in order of number.
    events: list[tuple[float, int, int]] = [(recording.request(one).issued_ns, 1, one) for one in changes]
    events += [(durable[one], 0, one) for one in changes if durable[one] <= end]
    events.sort()
    random = Random(1)  # noqa: S311  names of sets, no secret
    sign = {one: random.getrandbits(128) for one in changes}
    issued, loose, lasting = 0, set[int](), set[int]()
    moments: list[tuple[int, frozenset[int]]] = []
    for instant, kind, one in events:
        if instant > end:
            break
        if instant > begin and not moments:
            moments.append((issued, frozenset(loose)))
        if kind:
            issued ^= sign[one]
        if kind and one not in lasting:
            loose.add(one)
        elif not kind:
            lasting.add(one)
            loose.discard(one)
        if instant > begin:
            moments.append((issued, frozenset(loose)))
    return different(moments, sign, most)


def different(moments: list[tuple[int, frozenset[int]]], sign: dict[int, int], most: int) -> tuple[int, int]:
    """Return the number of subsets at all moments, and of the different sets of requests that they leave."""
    states, subsets = set[int](), 0
    for issued, loose in moments:
        for lost in range(most + 1):
            for absent in combinations(loose, lost):
                subsets += 1
                states.add(reduce(xor, (sign[one] for one in absent), issued))
    return subsets, len(states)


def main() -> None:
    """Count, print, and fail if the numbers differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN:CYCLE")
    parser.add_argument("--most", type=int, default=2)
    asked = parser.parse_args()
    for run in asked.runs:
        path, cycle = run.rsplit(":", 1)
        source = source_of(RunStore(Path(path)), cycle)
        pairs, states = count(source.recording, asked.most, source.first)
        program = AllLosses(source.recording, asked.most, first=source.first)
        by_lost = ", ".join(f"{one:,}" for one in program.counts)
        print(f"{cycle}: {pairs:,} subsets at all instants, {states:,} different states")
        print(f"{cycle}: the program's number is {program.total:,} ({by_lost}) in {program.of_epochs:,} flush epochs")
        if states != program.total:
            raise SystemExit(f"{cycle}: the numbers differ")


if __name__ == "__main__":
    main()
