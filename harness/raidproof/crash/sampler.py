"""The choice of crash states: every cut with every policy, in an order of which each prefix is a fair sample."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from random import Random
from typing import NamedTuple

from raidproof.crash.states import Caches, CrashState, Recording, Survivor
from raidproof.disk.cache import SECTOR, tear

MOST_SINGLES = 32
"""Limit of requests of one cut that are left out or kept one by one; of more requests this number is drawn."""
MOST_CUTS = 10_000
"""Limit of cuts with proposed states; of more cuts this number is drawn. Each write to lossless disks is a cut."""
RANDOMS = 8
"""Random subsets per cut, and as many torn ones."""


class Policy(StrEnum):
    """Which open requests survive."""

    DROP_ALL = "drop-all"
    AT_REPLY = "at-reply"
    """No open request, at the instant of an acknowledgement: before a later request can make up for the loss."""
    KEEP_ALL = "keep-all"
    ONE_MISSING = "one-missing"
    ONE_KEPT = "one-kept"
    MEMBER_MISSING = "member-missing"
    """One member keeps no open request, the others all: parity and data differ."""
    MEMBER_KEPT = "member-kept"
    RANDOM = "random"
    TORN = "torn"
    """A random subset, half of its requests of several sectors torn."""


class Choice(NamedTuple):
    """One state to check, without its survivors."""

    cut: int
    policy: Policy
    number: int = 0
    """Index among the policy's states at this cut; for ``one-...`` the index of the open request."""


class Choices:
    """The states of a recording from one cut on, in an order drawn from a seed.

    ``cuts`` are all cuts, including those without proposed states (`MOST_CUTS`).
    ``unit`` is the number of bytes that a disk writes atomically: requests are torn at its multiples. ``replies`` are
    the instants of acknowledgements in ns, by kind of operation; the kinds alternate, so that cuts at a rare kind are
    as frequent as at a common one. With ``only_replies`` only these instants are cuts.
    """

    def __init__(
        self,
        recording: Recording,
        seed: int,
        *,
        first: int = 0,
        unit: int = SECTOR,
        replies: Mapping[str, Sequence[int]] | None = None,
        only_replies: bool = False,
    ) -> None:
        self.recording = recording
        self.seed = seed
        self.unit = unit
        self.cuts = tuple(cut for cut in recording.cuts if cut >= first)
        self.possible = 0
        """Number of states if every subset of the open requests is one; torn ones are not counted."""
        total = len(recording.records) + len(recording.caught)
        self._long = {number for number in range(total) if recording.request(number).length > unit}
        groups: dict[Policy, list[Choice]] = {policy: [] for policy in Policy}
        caches = Caches(recording)
        many = len(self.cuts) > MOST_CUTS
        drawn = frozenset(self._random("cuts").sample(self.cuts, MOST_CUTS) if many else self.cuts)
        for cut in self.cuts:
            for _ in caches.roll(cut):
                pass
            self.possible += 1 << caches.count
            if cut in drawn and not only_replies:
                for choice in self._at(cut, caches.open, caches.members):
                    groups[choice.policy].append(choice)
        for policy, group in groups.items():
            self._random(policy).shuffle(group)
        groups[Policy.AT_REPLY] = [Choice(cut, Policy.AT_REPLY) for cut in self._at_replies(replies or {}, first)]
        # Round-robin over the policies, so that each prefix of the list has states of all policies.
        turns = zip_longest(*groups.values())
        self.order: tuple[Choice, ...] = tuple(choice for turn in turns for choice in turn if choice is not None)

    def _at_replies(self, replies: Mapping[str, Sequence[int]], first: int) -> list[int]:
        """Return the cuts at replies without duplicates, round-robin over the kinds of operation, in random order."""
        by_kind = []
        for kind, instants in sorted(replies.items()):
            # A reply binds if it precedes the latest instant of a cut: 1 ns before the next request takes effect.
            places = {self.recording.place(at_ns + 2) for at_ns in instants if at_ns < self.recording.end_ns}
            cuts = sorted(cut for cut in places if cut >= first)
            self._random(Policy.AT_REPLY, kind).shuffle(cuts)
            by_kind.append(cuts)
        return list(dict.fromkeys(cut for turn in zip_longest(*by_kind) for cut in turn if cut is not None))

    def _random(self, *what: object) -> Random:
        return Random("/".join(map(str, (self.seed, *what))))  # noqa: S311  a seeded choice, no secret

    def _at(self, cut: int, requests: Sequence[int], members: Sequence[int]) -> Iterator[Choice]:
        yield Choice(cut, Policy.DROP_ALL)
        if not requests:
            return
        yield Choice(cut, Policy.KEEP_ALL)
        if any(map(self._long.__contains__, requests)):
            yield from (Choice(cut, Policy.TORN, number) for number in range(RANDOMS))
        if len(requests) == 1:
            return
        singles = list(range(len(requests)))
        if len(singles) > MOST_SINGLES:
            singles = self._random(cut, "singles").sample(singles, MOST_SINGLES)
        for policy in (Policy.ONE_MISSING, Policy.ONE_KEPT):
            yield from (Choice(cut, policy, place) for place in singles)
        if len(members) > 1:
            for policy in (Policy.MEMBER_MISSING, Policy.MEMBER_KEPT):
                yield from (Choice(cut, policy, member) for member in members)
        if len(requests) > 2:
            yield from (Choice(cut, Policy.RANDOM, number) for number in range(RANDOMS))

    def state(self, choice: Choice, requests: Sequence[int]) -> CrashState:
        """Return the state of a choice, given the open requests at its cut."""
        return CrashState(choice.cut, tuple(self._survivors(choice, requests)))

    def _survivors(self, choice: Choice, requests: Sequence[int]) -> Iterator[Survivor]:
        number = choice.number
        match choice.policy:
            case Policy.DROP_ALL | Policy.AT_REPLY:
                kept: Sequence[int] = ()
            case Policy.KEEP_ALL:
                kept = requests
            case Policy.ONE_MISSING:
                kept = [*requests[:number], *requests[number + 1 :]]
            case Policy.ONE_KEPT:
                kept = [requests[number]]
            case Policy.MEMBER_MISSING:
                kept = [one for one in requests if self.recording.request(one).member != number]
            case Policy.MEMBER_KEPT:
                kept = [one for one in requests if self.recording.request(one).member == number]
            case Policy.RANDOM | Policy.TORN:
                yield from self._drawn(choice, requests)
                return
        yield from map(Survivor, kept)

    def _drawn(self, choice: Choice, requests: Sequence[int]) -> Iterator[Survivor]:
        draw = self._random(*choice)
        share = draw.random()
        for number in requests:
            if draw.random() >= share:
                continue
            record = self.recording.request(number)
            if choice.policy is Policy.TORN and record.length > self.unit and draw.random() < 0.5:
                yield Survivor(number, tear(record.offset, record.offset + record.length, draw, self.unit))
            else:
                yield Survivor(number)
