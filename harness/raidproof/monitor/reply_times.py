"""The times of the server's replies and the clients' WRITEs in a packet capture, from one line per packet."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from raidproof.core.errors import RigError
from raidproof.core.waiting import realtime_ahead_ns
from raidproof.storage.server import NFS_PORT

CLOCK_SET_NS = 200_000
"""Change in ns of CLOCK_REALTIME minus CLOCK_MONOTONIC from which the real-time clock counts as set: slewing
(adjtime(3)) changes both clocks alike."""
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
    "nfs.count3",
    "nfs.write.data_length",
)
STABILITY = ("UNSTABLE", "DATA_SYNC", "FILE_SYNC")
"""stable_how of a WRITE by its number (RFC 1813, section 3.3.7) and stable_how4 (RFC 8881, section 18.32)."""
_EPOCH = re.compile(r"(\d+)\.(\d{9})")
_CALL = "0"


class Reply(NamedTuple):
    """One reply of the server. A time (CLOCK_MONOTONIC, ns) is that of the message's last packet on the bridge."""

    client: str
    """The client's address."""
    replied_ns: int
    called_ns: int | None
    """Time of the call; None if the capture does not contain the call."""
    group: int | None
    """The first group of the caller's AUTH_SYS credentials; None if unknown."""


class Clocks(NamedTuple):
    """The difference between CLOCK_REALTIME, which stamps packets, and CLOCK_MONOTONIC before and after a capture."""

    before_ns: int
    """Nanoseconds by which CLOCK_REALTIME was ahead of CLOCK_MONOTONIC before the capture."""
    after_ns: int
    """Nanoseconds by which CLOCK_REALTIME was ahead of CLOCK_MONOTONIC after the capture."""

    @classmethod
    def since(cls, before_ns: int) -> "Clocks":
        """Return the differences for a capture that ends now and began with the difference ``before_ns``."""
        return cls(before_ns, realtime_ahead_ns())

    def monotonic_ns(self, real_ns: int) -> int:
        """Return a packet's CLOCK_MONOTONIC time: the later one by the differences before and after the capture."""
        return real_ns - min(self)

    def require_unset(self) -> None:
        """Verify that this host's real-time clock was not set during the capture.

        Raises:
            RigError: the clock was set by more than CLOCK_SET_NS.
        """
        if abs(self.after_ns - self.before_ns) > CLOCK_SET_NS:
            by_ms = (self.after_ns - self.before_ns) / 1e6
            raise RigError(f"this host's real-time clock was set by {by_ms:.1f} ms during the capture")


def replies_command(path: Path, port: int = NFS_PORT) -> list[str]:
    """Return the command that prints one line for each packet in which an RPC message ends.

    The fields are custom columns (all occurrences, unresolved): ``-T fields`` prints the same text and takes twice as
    long, because it makes tshark build the whole tree of each packet.
    """
    columns = ",".join(f'"{name}","%Cus:{name}:0:U"' for name in _FIELDS)
    rpcs = ["-d", f"tcp.port=={port},rpc", "-Y", "rpc"]
    return ["tshark", "-n", "-r", str(path), *rpcs, "-o", f"gui.column.format:{columns}", "-T", "tabs"]


def parse_replies(text: str, clocks: Clocks) -> list[Reply]:
    """Parse the output of `replies_command` into all replies, in the order in which they crossed the bridge.

    Raises:
        RigError: the text has another format.
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


def parse_writes(text: str) -> Counter[tuple[str, int | None]]:
    """Parse the output of `replies_command`; return the clients' WRITEs by requested stability and size in bytes.

    The size is None if tshark does not print a size for each WRITE of a packet: READs of NFSv3 have the same field.
    tshark prints the effective stability of a reply in the same field, so that only packets of calls are counted.

    Raises:
        RigError: the text has another format.
    """
    counted: Counter[tuple[str, int | None]] = Counter()
    for line in text.splitlines():
        packet = _packet(line)
        if packet.messages and all(kind == _CALL for _, kind in packet.messages):
            whole = len(packet.sizes) == len(packet.stability)
            sizes = packet.sizes if whole else [None] * len(packet.stability)
            counted.update(zip((STABILITY[number] for number in packet.stability), sizes, strict=True))
    return counted


class _Packet(NamedTuple):
    """One line of the output of `replies_command`: a packet in which RPC messages end."""

    real_ns: int
    source: str
    target: str
    stream: str
    messages: list[tuple[str, str]]
    """XID and type of each message."""
    groups: list[str]
    """Groups in the AUTH_SYS credentials of all calls in the packet."""
    stability: list[int]
    """Indices into `STABILITY`, one for each WRITE."""
    sizes: list[int]
    """Bytes of each WRITE; of other calls, too, if the packet has NFSv3 calls."""


def _packet(line: str) -> _Packet:
    fields = line.split("\t")
    epoch = _EPOCH.fullmatch(fields[0])
    if epoch is None or len(fields) != len(_FIELDS):
        raise RigError(f"unexpected tshark output about RPCs: {line[:200]!r}")
    source, target, stream = fields[1:4]
    # The fragment of a message that ends in a later packet has no type.
    lists = ([one for one in field.split(",") if one] for field in fields[4:])
    xids, kinds, groups, stable3, stable4, sizes3, sizes4 = lists
    if len(xids) != len(kinds):
        raise RigError(f"tshark printed {len(xids)} XIDs and {len(kinds)} message types for a packet: {line[:200]!r}")
    stability = [*map(int, (*stable3, *stable4))]
    if any(number >= len(STABILITY) for number in stability):
        raise RigError(f"tshark printed an unknown stability of a WRITE: {line[:200]!r}")
    real_ns = int(epoch[1]) * 1_000_000_000 + int(epoch[2])
    sizes = [*map(int, (*sizes3, *sizes4))]
    return _Packet(real_ns, source, target, stream, list(zip(xids, kinds, strict=True)), groups, stability, sizes)


def _first_groups(groups: Sequence[str], calls: int) -> Iterator[int | None]:
    """Yield the first group of each call in a packet; None for every call if groups cannot be assigned to calls."""
    each, rest = divmod(len(groups), calls) if calls else (0, 0)
    parts = [groups[at : at + each] for at in range(0, len(groups), each)] if each and not rest else []
    alike = len({tuple(part[1:]) for part in parts}) == 1
    for number in range(calls):
        yield int(parts[number][0]) if alike else None
