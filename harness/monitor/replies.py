"""When the server's replies crossed a lab's bridge, from a capture: RPC's headers only, whatever NFS says in them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.errors import RigError
from harness.export import NFS_PORT
from harness.waiting import realtime_ahead_ns

CLOCK_SET_NS = 200_000
"""The real-time clock is slewed together with the monotonic one: what differs more than two readings do was set."""
_FIELDS = ("frame.time_epoch", "ip.src", "ip.dst", "tcp.stream", "rpc.xid", "rpc.msgtyp", "rpc.auth.gid")
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
    """Print one line for each packet in which an RPC message ends. NFS itself is not decoded: it costs most."""
    fields = [word for name in _FIELDS for word in ("-e", name)]
    rpcs = ["-d", f"tcp.port=={port},rpc", "-Y", "rpc"]
    return ["tshark", "-n", "-r", str(path), "--disable-protocol", "nfs", *rpcs, "-T", "fields", *fields]


def parse_replies(text: str, clocks: Clocks) -> list[Reply]:
    """Read the output of `replies_command`: all replies, in the order in which they crossed the bridge.

    Raises:
        RigError: it is not such output.
    """
    calls: dict[tuple[str, str, str], tuple[int, int | None]] = {}
    replies: list[Reply] = []
    for line in text.splitlines():
        at_ns, source, target, stream, messages, groups = _packet(line, clocks)
        groups_of = iter(_first_groups(groups, sum(kind == _CALL for _, kind in messages)))
        for xid, kind in messages:
            if kind == _CALL:
                calls[source, stream, xid] = (at_ns, next(groups_of))
            else:
                called_ns, group = calls.pop((target, stream, xid), (None, None))
                replies.append(Reply(target, at_ns, called_ns, group))
    return replies


def _packet(line: str, clocks: Clocks) -> tuple[int, str, str, str, list[tuple[str, str]], list[str]]:
    fields = line.split("\t")
    epoch = _EPOCH.fullmatch(fields[0])
    if epoch is None or len(fields) != len(_FIELDS):
        raise RigError(f"not what tshark prints of RPCs: {line[:200]!r}")
    at_ns = clocks.monotonic_ns(int(epoch[1]) * 1_000_000_000 + int(epoch[2]))
    source, target, stream = fields[1:4]
    # A piece of a message that ends in a later packet has no type.
    xids, kinds, groups = ([one for one in field.split(",") if one] for field in fields[4:])
    if len(xids) != len(kinds):
        raise RigError(f"tshark names {len(xids)} RPCs and the types of {len(kinds)}: {line[:200]!r}")
    return at_ns, source, target, stream, list(zip(xids, kinds, strict=True)), groups


def _first_groups(groups: Sequence[str], calls: int) -> Iterator[int | None]:
    """Yield the first group of each of a packet's calls; None for all where they cannot be divided among them."""
    each, rest = divmod(len(groups), calls) if calls else (0, 0)
    parts = [groups[at : at + each] for at in range(0, len(groups), each)] if each and not rest else []
    alike = len({tuple(part[1:]) for part in parts}) == 1
    for number in range(calls):
        yield int(parts[number][0]) if alike else None
