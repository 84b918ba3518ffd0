"""The choice of crash states to check: all cuts and policies, in a random order.

Each prefix of the order is a fair sample of cuts and policies. The factors of the interest of a cut were chosen by the
stored explorations of planted defects (`benchmarks/interest.py`).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, zip_longest
from random import Random
from typing import NamedTuple, Protocol, TypeVar, overload

from raidproof.crash.directed import NONE_DIRECTED, Directed
from raidproof.crash.states import Caches, CrashState, Recording, Survivor
from raidproof.disk.cache import SECTOR, tear
from raidproof.disk.writelog import Flag, Kind
from raidproof.workload.ledger_blocks import blocks_in

T = TypeVar("T")
MOST_SINGLES = 32
"""Limit of the non-durable requests of one cut for which ONE_MISSING and ONE_KEPT give states.

If the cut has more non-durable requests, this number is drawn at random."""
MOST_CUTS = 25_000
"""Limit of the cuts for which states are proposed; if there are more cuts, this number is drawn at random.

On disks without a volatile cache each write gives a cut."""
RANDOMS = 8
"""Number of states that each of the policies RANDOM and TORN gives at one cut."""


AT_RISK = 8
"""Factor if an operation was acknowledged after the completion of a request that is still not durable."""
FRESH = 2
"""Factor if an operation was acknowledged and nothing became durable since then."""
SEVERAL_MEMBERS = 2
"""Factor if requests to more than one member are not durable: copies and parity may differ from the data."""
METADATA = 2
"""Factor if a request without content of a file is not durable: metadata of the file system, superblock, bitmap, or
parity."""
BEFORE_DURABLE = 2
"""Factor if the next request is a flush or a FUA write."""


class Policy(StrEnum):
    """The rule that selects the requests that survive in a crash state, among the non-durable ones at the cut."""

    DROP_ALL = "drop-all"
    """No non-durable request survives."""
    AT_REPLY = "at-reply"
    """No non-durable request survives, and the cut is at the instant of an acknowledgement.

    A later flush therefore cannot make the acknowledged data durable."""
    KEEP_ALL = "keep-all"
    """All non-durable requests survive."""
    ONE_MISSING = "one-missing"
    """All non-durable requests survive except one."""
    ONE_KEPT = "one-kept"
    """Exactly one non-durable request survives."""
    MEMBER_MISSING = "member-missing"
    """On one member no non-durable request survives, on the other members all; so parity and data differ."""
    MEMBER_KEPT = "member-kept"
    """On one member all non-durable requests survive, on the other members none."""
    RANDOM = "random"
    """A random subset of the non-durable requests survives."""
    TORN = "torn"
    """A random subset of the non-durable requests survives; of its requests of several sectors, half are torn."""
    DIRECTED = "directed"
    """No non-durable request survives, and the cut is at the instant of the reply to a solo operation; see `Directed`.
    """
    FEW_LOST = "few-lost"
    """At most a given number of the requests are lost that were issued before the last survivor; see `AllLosses`."""


NOTHING_SURVIVES = frozenset({Policy.DROP_ALL, Policy.AT_REPLY, Policy.DIRECTED})
"""Policies by which no non-durable request survives."""


class Choice(NamedTuple):
    """The choice of one crash state: its cut and policy. `Choices.state` computes the surviving requests."""

    cut: int
    policy: Policy
    number: int = 0
    """Index among the policy's states at this cut.

    ``one-...``: index of the non-durable request. ``member-...``: index of the member."""


_POLICIES = tuple(Policy)
_NUMBERS = {policy: number for number, policy in enumerate(_POLICIES)}


class Order(Sequence[Choice]):
    """Choices in order, as columns of 9 bytes for each choice: a recording may have millions."""

    def __init__(self, choices: Iterable[Choice] = ()) -> None:
        self._cuts, self._policies, self._numbers = array("I"), bytearray(), array("I")
        for choice in choices:
            self.append(choice)

    def append(self, choice: Choice) -> None:
        """Append a choice."""
        self._cuts.append(choice.cut)
        self._policies.append(_NUMBERS[choice.policy])
        self._numbers.append(choice.number)

    @property
    def cuts(self) -> Sequence[int]:
        """The cut of each choice."""
        return self._cuts

    def __len__(self) -> int:
        return len(self._cuts)

    @overload
    def __getitem__(self, index: int) -> Choice: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Choice, ...]: ...

    def __getitem__(self, index: int | slice) -> Choice | tuple[Choice, ...]:
        if isinstance(index, slice):
            return tuple(self[one] for one in range(*index.indices(len(self))))
        return Choice(self._cuts[index], _POLICIES[self._policies[index]], self._numbers[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Order):
            return NotImplemented
        mine, theirs = ((one._cuts, one._policies, one._numbers) for one in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]


def _directed_choices(directed: Directed) -> list[Choice]:
    return [Choice(cut, Policy.DIRECTED) for cut in directed.cuts]


def in_turns(*groups: Iterable[T]) -> Iterator[T]:
    """Yield the first item of each group, then the second of each, and so on; no item is None."""
    for turn in zip_longest(*groups):
        yield from (item for item in turn if item is not None)


class Chosen(Protocol):
    """Crash states of a recording, in the order in which they are checked."""

    @property
    def recording(self) -> Recording:
        """The recording."""

    @property
    def order(self) -> Sequence[Choice]:
        """The states."""

    @property
    def cuts(self) -> Sequence[int]:
        """The cuts that the exploration considers."""

    @property
    def possible(self) -> int:
        """Number of possible crash states without torn ones; see `Choices.possible`."""

    @property
    def directed(self) -> Directed:
        """The directed states among them."""

    def state(self, choice: Choice, requests: Sequence[int]) -> CrashState:
        """Return the crash state of a choice; ``requests`` are the non-durable requests at the cut."""


class OnlyDirected:
    """The directed states of a recording, and no others."""

    def __init__(self, recording: Recording, directed: Directed) -> None:
        self.recording = recording
        self.directed = directed
        self.order = _directed_choices(directed)
        self.cuts = sorted(directed.cuts)
        self.possible = len(self.cuts)

    def state(self, choice: Choice, requests: Sequence[int]) -> CrashState:  # noqa: ARG002  nothing volatile survives
        """Return the crash state of a choice."""
        return CrashState(choice.cut)


class Interest:
    """Weights cuts of a recording; ``replies``: instants of acknowledgements in ns."""

    def __init__(self, recording: Recording, replies: Iterable[int]) -> None:
        self.recording = recording
        self._replies = sorted(replies)
        self._changes = recording.durability_changes
        self._metadata: dict[int, bool] = {}

    def weights(self, cuts: Iterable[int]) -> dict[int, int]:
        """Return the weight of each cut."""
        caches, weights = Caches(self.recording), {}
        for cut in sorted(set(cuts)):
            caches.go(cut)
            weights[cut] = self._weight(cut, caches.open, len(caches.members))
        return weights

    def _weight(self, cut: int, requests: Sequence[int], members: int) -> int:
        weight, instant, records = 1, self.recording.instant_ns(cut), self.recording.records
        # Requests that have completed have smaller numbers than those in flight, in the order of their completion.
        if requests and requests[0] < cut and self._acknowledged(records.completed_ns[requests[0]], instant):
            weight *= AT_RISK
        changes = bisect_left(self._changes, cut)
        if self._acknowledged(records.completed_ns[self._changes[changes - 1]] if changes else 0, instant):
            weight *= FRESH
        if members > 1:
            weight *= SEVERAL_MEMBERS
        if any(map(self._is_metadata, requests)):
            weight *= METADATA
        if cut < len(records) and (records.kinds[cut] == Kind.FLUSH or records.flags[cut] & Flag.FUA):
            weight *= BEFORE_DURABLE
        return weight

    def _acknowledged(self, since_ns: int, instant_ns: int) -> bool:
        return bisect_left(self._replies, since_ns) < bisect_right(self._replies, instant_ns)

    def _is_metadata(self, number: int) -> bool:
        if number not in self._metadata:
            record = self.recording.request(number)
            content = record.kind is Kind.WRITE and next(blocks_in(record.data), None) is not None
            self._metadata[number] = record.kind is Kind.WRITE and not content
        return self._metadata[number]


class Choices:
    """The crash states of a recording, in an order that depends on a seed.

    ``first``: first cut for which states are proposed. ``unit``: number of bytes that a disk writes atomically;
    requests are torn at multiples of this number. ``replies``: instants of acknowledgements in ns, by kind of
    operation; the kinds alternate, so that rare kinds get as many cuts as frequent kinds. ``only_replies``: propose
    only states with policy AT_REPLY or DIRECTED. ``by_interest``: put the states of a policy into an order in which
    the cuts of greater interest (`Interest`) tend to come first; otherwise all orders are equally likely.
    ``directed``: the states with policy DIRECTED. These states and the others alternate.
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
        by_interest: bool = False,
        directed: Directed = NONE_DIRECTED,
    ) -> None:
        self.recording = recording
        self.directed = directed
        self.seed = seed
        self.unit = unit
        self.cuts = tuple(cut for cut in recording.cuts if cut >= first)
        """All cuts from ``first`` on, including cuts without proposed states (see `MOST_CUTS`)."""
        self.possible = 0
        """Number of possible crash states without torn ones: subsets of non-durable requests, summed over the cuts."""
        groups: dict[Policy, Order] = {policy: Order() for policy in Policy}
        caches = Caches(recording)
        many = len(self.cuts) > MOST_CUTS
        drawn = frozenset(self._random("cuts").sample(self.cuts, MOST_CUTS) if many else self.cuts)
        for cut in self.cuts:
            caches.go(cut)
            self.possible += 1 << caches.count
            if cut in drawn and not only_replies:
                for choice in self._at(cut, caches.open, caches.members):
                    groups[choice.policy].append(choice)
        at_replies = self._cuts_of(replies or {}, first)
        self._weights: dict[int, int] = {}
        if by_interest:
            cuts = chain(() if only_replies else drawn, *at_replies.values())
            self._weights = Interest(recording, chain(*(replies or {}).values())).weights(cuts)
        for policy, group in groups.items():
            groups[policy] = Order(group[turn] for turn in self._turns(group.cuts, policy))
        as_directed = frozenset(directed.cuts)
        replied = (cut for cut in self._at_replies(at_replies) if cut not in as_directed)
        groups[Policy.AT_REPLY] = Order(Choice(cut, Policy.AT_REPLY) for cut in replied)
        # Round-robin over the policies: each prefix of the list has states of all policies.
        sample = in_turns(*groups.values())
        self.order = Order(in_turns(_directed_choices(directed), sample))

    def _cuts_of(self, replies: Mapping[str, Sequence[int]], first: int) -> dict[str, list[int]]:
        """Return the cuts at the instants of replies, in order, by kind of operation."""
        by_kind = {}
        for kind, instants in sorted(replies.items()):
            places = {self.recording.place_of_reply(at_ns) for at_ns in instants if at_ns < self.recording.end_ns}
            by_kind[kind] = sorted(cut for cut in places if cut >= first)
        return by_kind

    def _at_replies(self, by_kind: Mapping[str, Sequence[int]]) -> list[int]:
        """Return the cuts at the instants of replies, without duplicates.

        The kinds of operation alternate; the cuts of each kind are in random order.
        """
        mixed = [[cuts[turn] for turn in self._turns(cuts, Policy.AT_REPLY, kind)] for kind, cuts in by_kind.items()]
        return list(dict.fromkeys(in_turns(*mixed)))

    def _turns(self, cuts: Sequence[int], *key: object) -> list[int]:
        """Return a random order of the indices of ``cuts``, in which cuts of greater interest tend to come first."""
        draw, places = self._random(*key), list(range(len(cuts)))
        if not self._weights:
            draw.shuffle(places)
            return places
        # Sorting by exponential variates is weighted sampling without replacement (Efraimidis and Spirakis, 2006).
        turns = array("d", (draw.expovariate(self._weights[cut]) for cut in cuts))
        return sorted(places, key=turns.__getitem__)

    def _random(self, *what: object) -> Random:
        return Random("/".join(map(str, (self.seed, *what))))  # noqa: S311  a seeded choice, no secret

    def _at(self, cut: int, requests: Sequence[int], members: Sequence[int]) -> Iterator[Choice]:
        yield Choice(cut, Policy.DROP_ALL)
        if not requests:
            return
        yield Choice(cut, Policy.KEEP_ALL)
        if any(self.recording.length(one) > self.unit for one in requests):
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
        """Return the crash state of a choice; ``requests`` are the non-durable requests at the cut."""
        return CrashState(choice.cut, tuple(self._survivors(choice, requests)))

    def _survivors(self, choice: Choice, requests: Sequence[int]) -> Iterator[Survivor]:
        number = choice.number
        match choice.policy:
            case Policy.KEEP_ALL:
                kept: Sequence[int] = requests
            case Policy.ONE_MISSING:
                kept = [*requests[:number], *requests[number + 1 :]]
            case Policy.ONE_KEPT:
                kept = [requests[number]]
            case Policy.MEMBER_MISSING:
                kept = [one for one in requests if self.recording.member(one) != number]
            case Policy.MEMBER_KEPT:
                kept = [one for one in requests if self.recording.member(one) == number]
            case Policy.RANDOM | Policy.TORN:
                yield from self._drawn(choice, requests)
                return
            case _:  # NOTHING_SURVIVES
                kept = ()
        yield from map(Survivor, kept)

    def _drawn(self, choice: Choice, requests: Sequence[int]) -> Iterator[Survivor]:
        draw = self._random(*choice)
        share = draw.random()
        for number in requests:
            if draw.random() >= share:
                continue
            record = self.recording.request(number)
            if choice.policy is Policy.TORN and record.length > self.unit and draw.random() < 0.5:
                # A torn request may have no surviving sector: then it is lost.
                if spans := tear(record.offset, record.offset + record.length, draw, self.unit):
                    yield Survivor(number, spans)
            else:
                yield Survivor(number)
