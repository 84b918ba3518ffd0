"""When the server's replies crossed a lab's bridge, and how stable the clients asked their WRITEs to be."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from raidproof.core.errors import RigError
from raidproof.core.waiting import realtime_ahead_ns
from raidproof.storage.server import NFS_PORT

CLOCK_SET_NS = 200_000
"""The real-time clock is slewed together with the monotonic one: what differs more than two readings do was set."""
_FIELDS = (
    "frame.time_epoch",
    "ip.src",
    "ip.dst",
    "tcp.stream",
    "rpc.xid",
    "rpc.msgtyp",
    "rpc.auth.gid",
    "nfs.write.stable",
    "nfs.stable_how4",
)
STABILITY = ("UNSTABLE", "DATA_SYNC", "FILE_SYNC")
"""stable_how of a WRITE by its number (RFC 1813, section 3.3.7) and stable_how4 (RFC 8881, section 18.32)."""
_EPOCH = re.compile(r"(\d+)\.(\d{9})")
_CALL = "0"


class Reply(NamedTuple):
    """One reply of the server. Instants are CLOCK_MONOTONIC in ns, when the message was complete on the bridge."""

    client: str
    """The client's address."""
    replied_ns: int
    called_ns: int | None
    """When its call crossed the bridge; None where that was not seen."""
    group: int | None
    """The first group of the caller's AUTH_SYS credentials; None where it is not known."""


class Clocks(NamedTuple):
    """By how much the real-time clock, which stamps packets, was ahead of the monotonic one, before and after."""

    before_ns: int
    after_ns: int

    @classmethod
    def since(cls, before_ns: int) -> "Clocks":
        """Return them at the end of something that began when the difference was ``before_ns``."""
        return cls(before_ns, realtime_ahead_ns())

    def monotonic_ns(self, real_ns: int) -> int:
        """Return a packet's stamp on the monotonic clock: of two possible instants the later one."""
        return real_ns - min(self)

    def require_unset(self) -> None:
        """Raise RigError if the real-time clock was set meanwhile."""
        if abs(self.after_ns - self.before_ns) > CLOCK_SET_NS:
            by_ms = (self.after_ns - self.before_ns) / 1e6
            raise RigError(f"this host's real-time clock was set by {by_ms:.1f} ms during the capture")


def replies_command(path: Path, port: int = NFS_PORT) -> list[str]:
    """Print one line for each packet in which an RPC message ends."""
    fields = [word for name in _FIELDS for word in ("-e", name)]
    rpcs = ["-d", f"tcp.port=={port},rpc", "-Y", "rpc"]
    return ["tshark", "-n", "-r", str(path), *rpcs, "-T", "fields", *fields]


def parse_replies(text: str, clocks: Clocks) -> list[Reply]:
    """Read the output of `replies_command`: all replies, in the order in which they crossed the bridge.

    Raises:
        RigError: it is not such output.
    """
    calls: dict[tuple[str, str, str], tuple[int, int | None]] = {}
    replies: list[Reply] = []
    for line in text.splitlines():
        packet = _packet(line)
        at_ns = clocks.monotonic_ns(packet.real_ns)
        groups_of = iter(_first_groups(packet.groups, sum(kind == _CALL for _, kind in packet.messages)))
        for xid, kind in packet.messages:
            if kind == _CALL:
                calls[packet.source, packet.stream, xid] = (at_ns, next(groups_of))
            else:
                called_ns, group = calls.pop((packet.target, packet.stream, xid), (None, None))
                replies.append(Reply(packet.target, at_ns, called_ns, group))
    return replies


def parse_writes(text: str) -> Counter[str]:
    """Read the output of `replies_command`: how many WRITEs the clients sent, by the stability that they asked for.

    A reply also has a field of that name, which says what the server did. No packet holds both: a packet goes one way.

    Raises:
        RigError: it is not such output.
    """
    counted: Counter[str] = Counter()
    for line in text.splitlines():
        packet = _packet(line)
        if packet.messages and all(kind == _CALL for _, kind in packet.messages):
            counted.update(STABILITY[number] for number in packet.stability)
    return counted


class _Packet(NamedTuple):
    """One line of tshark's."""

    real_ns: int
    source: str
    target: str
    stream: str
    messages: list[tuple[str, str]]
    """XID and type of each."""
    groups: list[str]
    stability: list[int]


def _packet(line: str) -> _Packet:
    fields = line.split("\t")
    epoch = _EPOCH.fullmatch(fields[0])
    if epoch is None or len(fields) != len(_FIELDS):
        raise RigError(f"not what tshark prints of RPCs: {line[:200]!r}")
    source, target, stream = fields[1:4]
    # A piece of a message that ends in a later packet has no type.
    xids, kinds, groups, stable3, stable4 = ([one for one in field.split(",") if one] for field in fields[4:])
    if len(xids) != len(kinds):
        raise RigError(f"tshark names {len(xids)} RPCs and the types of {len(kinds)}: {line[:200]!r}")
    stability = [*map(int, (*stable3, *stable4))]
    if any(number >= len(STABILITY) for number in stability):
        raise RigError(f"not the stability of a WRITE: {line[:200]!r}")
    real_ns = int(epoch[1]) * 1_000_000_000 + int(epoch[2])
    return _Packet(real_ns, source, target, stream, list(zip(xids, kinds, strict=True)), groups, stability)


def _first_groups(groups: Sequence[str], calls: int) -> Iterator[int | None]:
    """Yield the first group of each of a packet's calls; None for all where they cannot be divided among them."""
    each, rest = divmod(len(groups), calls) if calls else (0, 0)
    parts = [groups[at : at + each] for at in range(0, len(groups), each)] if each and not rest else []
    alike = len({tuple(part[1:]) for part in parts}) == 1
    for number in range(calls):
        yield int(parts[number][0]) if alike else None
