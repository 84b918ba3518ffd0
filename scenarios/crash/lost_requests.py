"""A count of crash states with few lost requests by brute force, which shares no code with the program's enumeration.

At each instant of a recording, each subset of at most K outstanding requests is taken as lost. What is durable is
computed from the requests alone.
"""

from bisect import bisect_left
from functools import reduce
from itertools import combinations
from operator import xor
from random import Random

from raidproof.crash.states import Recording
from raidproof.disk.writelog import CHANGES, Flag, Kind


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
