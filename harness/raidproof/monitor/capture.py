"""NFS on the wire: a packet capture on the lab's bridge, the decoded calls and replies, and the replies' instants."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from raidproof.core.command import WIRE, CommandFailed, install_list, run
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.waiting import Deadline, pause, realtime_ahead_ns, wait_until
from raidproof.lab.lab import Lab
from raidproof.namespace import Process
from raidproof.namespace.network import BRIDGE
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.storage.server import NFS_PORT

NFS_PROGRAM = "100003"
OPERATIONS = {
    3: "ACCESS", 4: "CLOSE", 5: "COMMIT", 6: "CREATE", 8: "DELEGRETURN", 9: "GETATTR", 10: "GETFH", 12: "LOCK",
    13: "LOCKT", 14: "LOCKU", 15: "LOOKUP", 18: "OPEN", 22: "PUTFH", 24: "PUTROOTFH", 25: "READ", 26: "READDIR",
    28: "REMOVE", 29: "RENAME", 34: "SETATTR", 38: "WRITE", 42: "EXCHANGE_ID", 43: "CREATE_SESSION",
    44: "DESTROY_SESSION", 45: "FREE_STATEID", 53: "SEQUENCE", 55: "TEST_STATEID", 58: "RECLAIM_COMPLETE",
    68: "READ_PLUS",
}  # fmt: skip
"""Names of the operations that checks and readers use; others are named by their number."""
STATUSES = {
    0: "OK", 5: "NFS4ERR_IO", 28: "NFS4ERR_NOSPC", 70: "NFS4ERR_STALE", 10008: "NFS4ERR_DELAY",
    10010: "NFS4ERR_DENIED", 10011: "NFS4ERR_EXPIRED", 10013: "NFS4ERR_GRACE", 10022: "NFS4ERR_STALE_CLIENTID",
    10023: "NFS4ERR_STALE_STATEID", 10025: "NFS4ERR_BAD_STATEID", 10033: "NFS4ERR_NO_GRACE",
    10034: "NFS4ERR_RECLAIM_BAD", 10035: "NFS4ERR_RECLAIM_CONFLICT", 10052: "NFS4ERR_BADSESSION",
    10087: "NFS4ERR_DELEG_REVOKED",
}  # fmt: skip
PROCEDURES = {
    0: "NULL", 1: "GETATTR", 2: "SETATTR", 3: "LOOKUP", 4: "ACCESS", 6: "READ", 7: "WRITE", 8: "CREATE", 9: "MKDIR",
    10: "SYMLINK", 12: "REMOVE", 13: "RMDIR", 14: "RENAME", 15: "LINK", 16: "READDIR", 17: "READDIRPLUS",
    18: "FSSTAT", 19: "FSINFO", 20: "PATHCONF", 21: "COMMIT",
}  # fmt: skip
"""Names of NFSv3 procedures; others are named by their number."""
STATUSES3 = {0: "OK", 5: "NFS3ERR_IO", 28: "NFS3ERR_NOSPC", 70: "NFS3ERR_STALE", 10008: "NFS3ERR_JUKEBOX"}
OK = "OK"
JUDGED = frozenset(
    {
        "nfs.count3", "nfs.count4", "nfs.lock.reclaim", "nfs.nfsstat4", "nfs.offset3", "nfs.offset4",
        "nfs.open.claim_type", "nfs.open.delegation_type", "nfs.stable_how4", "nfs.verifier", "nfs.verifier4",
        "nfs.write.committed",
    }
)  # fmt: skip
"""The tshark fields that checks use."""

Pairs = list[tuple[str, Any]]
"""A JSON object with repeated keys: tshark writes the same key for each of several operations."""

NOBODY_SAID: Mapping[str, str] = MappingProxyType({})
START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 15.0
DECODE_DEADLINE_S = 300.0
BUFFER_MIB = 32
"""Size of the kernel's capture buffer: it must hold a burst of writes while the host is busy."""
HANDED_OVER_S = 0.75
"""The kernel delivers packets in blocks, after dumpcap's timeout of 250 ms at the latest: wait longer at the end."""
CLOCK_SET_NS = 200_000
"""The real-time clock is slewed with the monotonic one: a larger difference between two readings means it was set."""
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


@dataclass(frozen=True)
class Operation:
    """One operation of a COMPOUND, or a whole call of NFSv3, with its fields, flat, under tshark's names."""

    name: str
    asked: dict[str, str] = field(default_factory=dict)
    """Fields of the call. Of a repeated field, the first."""
    told: dict[str, str] = field(default_factory=dict)
    """Fields of the reply."""
    status: str | None = None
    """``OK``, or the error's name in the RFC; None without a result in the reply."""
    handle: str = ""
    """Hash of the current file handle of the operation."""

    def number(self, name: str) -> int:
        """Return a field of the call as a number.

        Raises:
            RigError: the call has no such field.
        """
        return whole(self.asked, name, self.name)


@dataclass(frozen=True)
class Exchange:
    """A call and its reply, if there is one."""

    client: str
    """The client's address."""
    xid: str
    called_s: float
    """When the call was complete, in seconds since the capture's first packet."""
    operations: tuple[Operation, ...]
    answered_s: float | None = None
    """When the reply was complete; None if the capture has none."""
    version: str = "4"
    """NFS version: ``3`` or ``4``."""
    connection: str = ""
    """Number of the call's TCP connection in the capture; empty if unknown."""

    @property
    def answered(self) -> bool:
        """Whether the client received a reply."""
        return self.answered_s is not None


def whole(fields: dict[str, str], name: str, what: str) -> int:
    """Return a field as a number; tshark writes some in hexadecimal.

    Raises:
        RigError: the field is missing, or not a number.
    """
    try:
        return int(fields[name], 0)
    except (KeyError, ValueError) as error:
        raise RigError(f"tshark printed no {name} of {what}: {fields}") from error


def operations_of(exchanges: Sequence[Exchange], name: str) -> Iterator[tuple[Exchange, Operation]]:
    """Yield all operations of a name with their exchanges, in the order of the calls."""
    for exchange in exchanges:
        for operation in exchange.operations:
            if operation.name == name:
                yield exchange, operation


def parse_connections(text: str) -> dict[str, str]:
    """Parse the output of `raidproof.monitor.capture.connections_command`: TCP connection by packet number.

    Raises:
        RigError: the text has another format.
    """
    lines = [line.split("\t") for line in text.splitlines()]
    if wrong := [line for line in lines if len(line) != 2 or not all(map(str.isdecimal, line))]:
        raise RigError(f"not a packet's number and its connection: {wrong[0]}")
    return dict(lines)


def parse_packets(text: str, connections: Mapping[str, str] = NOBODY_SAID) -> list[Exchange]:
    """Parse the output of `raidproof.monitor.capture.decode_command`. Versions other than NFSv3 and 4 are ignored.

    A retransmitted call is one exchange per transmission; the reply belongs to the last. ``connections`` maps packet
    numbers to TCP connections.

    Raises:
        RigError: the text has another format.
    """
    try:
        packets = json.loads(text or "[]", object_pairs_hook=list)
        messages = [message for packet in packets for message in _messages(packet)]
        exchanges: list[Exchange] = []
        waiting: dict[tuple[str, str], int] = {}
        for at, source, target, rpc, nfs in messages:
            at_s, xid = float(at["frame.time_relative"]), rpc["rpc.xid"]
            if rpc["rpc.msgtyp"] == "0":
                version = rpc.get("rpc.programversion", "")
                if rpc.get("rpc.program") == NFS_PROGRAM and version in {"3", "4"}:
                    waiting[source, xid] = len(exchanges)
                    asked = tuple(_asked(nfs)) if version == "4" else (_asked3(rpc, nfs),)
                    connection = connections.get(at.get("frame.number", ""), "")
                    exchanges.append(Exchange(source, xid, at_s, asked, version=version, connection=connection))
            elif (place := waiting.pop((target, xid), None)) is not None:
                call = exchanges[place]
                told = _told(call, nfs) if call.version == "4" else (_told3(call.operations[0], nfs),)
                exchanges[place] = replace(call, operations=told, answered_s=at_s)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RigError(f"unexpected tshark output about NFS: {error!r}") from error
    return exchanges


def _messages(packet: Pairs) -> Iterator[tuple[dict[str, str], str, str, dict[str, str], Pairs]]:
    """Yield the RPC messages of a packet: frame, source, target, RPC header, NFS fields."""
    layers: Pairs = dict(dict(packet)["_source"])["layers"]
    first = dict(reversed(layers))
    at, ip = flat(first["frame"]), flat(first["ip"])
    header: dict[str, str] | None = None
    for name, content in layers:
        if name == "rpc":
            if header:
                yield at, ip["ip.src"], ip["ip.dst"], header, []
            header = flat(content)
            # A fragment without a whole message has no type.
            header = header if "rpc.msgtyp" in header else None
        elif name == "nfs" and header:
            yield at, ip["ip.src"], ip["ip.dst"], header, content
            header = None
    if header:
        yield at, ip["ip.src"], ip["ip.dst"], header, []


def flat(pairs: Any) -> dict[str, str]:
    """Return all fields of nested layers by name; of several with the same name the first."""
    found: dict[str, str] = {}
    for name, value in pairs if isinstance(pairs, list) else []:
        if isinstance(value, str):
            found.setdefault(name, value)
        else:
            for below, its in flat(value).items():
                found.setdefault(below, its)
    return found


def _compound(nfs: Pairs) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each operation's number and fields."""
    number: int | None = None
    for name, value in next((value for name, value in nfs if name == "nfs.ops.count_tree"), []):
        if name == "nfs.opcode":
            if number is not None:
                yield number, {}  # an operation without fields
            number = int(value)
        elif name == "nfs.opcode_tree" and number is not None:
            yield number, flat(value)
            number = None
    if number is not None:
        yield number, {}


def _asked(nfs: Pairs) -> Iterator[Operation]:
    handle = ""
    for number, fields in _compound(nfs):
        # The file data is not used, and as text it is three times as long.
        fields.pop("nfs.data", None)
        handle = fields.get("nfs.fh.hash", handle)
        yield Operation(OPERATIONS.get(number, str(number)), fields, handle=handle)


def _told(call: Exchange, nfs: Pairs) -> tuple[Operation, ...]:
    """Add each operation's result; operations after the first error were not executed and have none."""
    results = list(_compound(nfs))
    operations = []
    for place, asked in enumerate(call.operations):
        told = results[place][1] if place < len(results) else {}
        told.pop("nfs.data", None)
        status = whole(told, "nfs.nfsstat4", asked.name) if told else None
        name = None if status is None else STATUSES.get(status, str(status))
        operations.append(replace(asked, told=told, status=name))
    return tuple(operations)


def _asked3(rpc: dict[str, str], nfs: Pairs) -> Operation:
    number, fields = whole(rpc, "rpc.procedure", "a call"), flat(nfs)
    fields.pop("nfs.data", None)
    return Operation(PROCEDURES.get(number, str(number)), fields, handle=fields.get("nfs.fh.hash", ""))


def _told3(asked: Operation, nfs: Pairs) -> Operation:
    told = flat(nfs)
    told.pop("nfs.data", None)
    # NULL has no result, nor has a call that RPC rejected.
    status = int(told["nfs.status3"]) if "nfs.status3" in told else None
    return replace(asked, told=told, status=None if status is None else STATUSES3.get(status, str(status)))


def write_exchanges(exchanges: Sequence[Exchange]) -> str:
    """Return as JSON the parts of exchanges that checks need; the capture itself has the rest."""
    return json.dumps([asdict(one) | {"operations": [_brief(each) for each in one.operations]} for one in exchanges])


def _brief(operation: Operation) -> dict[str, Any]:
    fields = {name: {key: value for key, value in getattr(operation, name).items() if key in JUDGED}
              for name in ("asked", "told")}  # fmt: skip
    return {"name": operation.name, "status": operation.status, "handle": operation.handle, **fields}


def read_exchanges(text: str) -> list[Exchange]:
    """Parse the output of `write_exchanges`.

    Raises:
        RigError: the text has another format.
    """
    try:
        return [
            Exchange(**one | {"operations": tuple(Operation(**each) for each in one["operations"])})
            for one in json.loads(text)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"not stored exchanges of a capture: {error!r}") from error


def capture_command(path: Path, port: int = NFS_PORT, interface: str = BRIDGE) -> list[str]:
    """Return the command that captures all packets of a server's port, in full: truncated calls cannot be decoded."""
    # -q: no running count.  A bridge shows traffic between its ports only in promiscuous mode, dumpcap's default.
    return ["dumpcap", "-q", "-B", str(BUFFER_MIB), "-i", interface, "-f", f"tcp port {port}", "-w", str(path)]


def decode_command(path: Path, port: int = NFS_PORT) -> list[str]:
    """Return the command that prints the RPCs of a capture with all their fields, without the packets around them."""
    return [*_rpcs(path, port), "-T", "json", "-J", "frame ip rpc nfs"]


def connections_command(path: Path, port: int = NFS_PORT) -> list[str]:
    """Return the command that prints packet number and TCP connection of each packet with an RPC.

    Separate from `decode_command`: in JSON, TCP's fields include the whole payload once more.
    """
    return [*_rpcs(path, port), "-T", "fields", "-e", "frame.number", "-e", "tcp.stream"]


def _rpcs(path: Path, port: int) -> list[str]:
    # Without -d, tshark guesses the protocol of a connection whose beginning is not in the capture, often wrongly.
    return ["tshark", "-n", "-d", f"tcp.port=={port},rpc", "-r", str(path), "-Y", "rpc"]


def dropped(said: str) -> int:
    """Return the number of lost packets from dumpcap's final message.

    Raises:
        RigError: the message has no such number.
    """
    found = re.search(r"received/dropped on interface '[^']*': \d+/(\d+) ", said)
    if found is None:
        raise RigError(f"dumpcap ended without a count of its packets: {said[-200:]!r}")
    return int(found[1])


def printed(command: list[str]) -> str:
    """Return the output of a decoder.

    Raises:
        CommandFailed: the decoder cannot read the capture.
    """
    ended = run(command, environment={"LC_ALL": "C"}, deadline_s=DECODE_DEADLINE_S)
    if not ended.ok:
        raise CommandFailed(ended)
    return ended.stdout


def why_no_capture(lab: Lab) -> RequirementMissing | None:
    """Return why NFS in a lab cannot be captured and decoded; None if it can."""
    if not isinstance(lab, NamespaceLab):
        return RequirementMissing(
            "the harness does not control the machines' network", remedy="use provider uml or qemu"
        )
    missing = [program for program in ("dumpcap", "tshark") if which(program) is None]
    return RequirementMissing(f"host tool not found: {missing[0]}", remedy=install_list(WIRE)) if missing else None


@dataclass(frozen=True)
class Capture:
    """A capture file."""

    path: Path

    def exchanges(self) -> list[Exchange]:
        """Decode the capture: each call with its reply, in the order of the calls.

        Raises:
            RequirementMissing: this host has no tshark.
            RigError: tshark cannot read the capture.
        """
        if which("tshark") is None:
            raise RequirementMissing("host tool not found: tshark", remedy=install_list(WIRE))
        connections = parse_connections(printed(connections_command(self.path)))
        return parse_packets(printed(decode_command(self.path)), connections)


class Tap:
    """A running capture on a lab's bridge."""

    def __init__(self, path: Path, process: Process, said: Path) -> None:
        self.path = path
        self.ahead_ns = realtime_ahead_ns()
        """Nanoseconds by which the real-time clock, which stamps packets, was ahead of CLOCK_MONOTONIC at first."""
        self._process = process
        self._said = said

    def wait_begun(self) -> None:
        """Wait until the capture has begun, so that no packet is missed.

        Raises:
            RigError: the capture has ended.
            DeadlineExceeded: the capture does not begin in time.
        """
        wait_until(self._begun, Deadline.after(START_DEADLINE_S), "the capture to begin")

    def _begun(self) -> bool:
        self._process.require_running()
        # dumpcap prints this once the kernel's buffer is open, and only then writes the file's header.
        return self.path.exists() and b"File:" in self._said.read_bytes()

    def end(self) -> None:
        """End the capture after the kernel has delivered all packets.

        Raises:
            RigError: the capture ended early, or lost packets.
        """
        try:
            self._process.require_running()
            pause(HANDED_OVER_S)
        finally:
            self.stop()
        if lost := dropped(self._said.read_text(errors="replace")):
            raise RigError(f"the capture lost {lost} packets: this host was too busy", remedy=f"see {self.path}")

    def stop(self) -> None:
        """End the capture at once."""
        if self._process.status is None:
            self._process.terminate(Deadline.after(STOP_DEADLINE_S))

    def discard(self) -> None:
        """End the capture, and remove its files."""
        self.stop()
        self.path.unlink(missing_ok=True)
        self._said.unlink(missing_ok=True)


def tapping(lab: Lab, path: Path) -> Tap:
    """Begin to capture NFS on a lab's bridge, into a file.

    Raises:
        RequirementMissing: the harness does not control the lab's network, or a host program is missing.
    """
    if (why := why_no_capture(lab)) is not None:
        raise why
    namespace = cast("NamespaceLab", lab).namespace
    said = path.with_suffix(".log")
    return Tap(path, namespace.spawn(capture_command(path.absolute()), output=said), said)


@contextmanager
def capturing(lab: Lab, path: Path) -> Iterator[Capture]:
    """Capture NFS on a lab's bridge into a file while the body runs; the file is complete when the context is left.

    Raises:
        RequirementMissing: the harness does not control the lab's network, or a host program is missing.
        RigError: the capture does not run, or ended early.
    """
    tap = tapping(lab, path)
    try:
        tap.wait_begun()
        yield Capture(path)
        tap.end()
    finally:
        tap.stop()


class Reply(NamedTuple):
    """One reply of the server. Instants (CLOCK_MONOTONIC, ns) are when the message was complete on the bridge."""

    client: str
    """The client's address."""
    replied_ns: int
    called_ns: int | None
    """When the call was complete on the bridge; None if the capture does not have it."""
    group: int | None
    """The first group of the caller's AUTH_SYS credentials; None if unknown."""


class Clocks(NamedTuple):
    """Nanoseconds by which the real-time clock, which stamps packets, is ahead of CLOCK_MONOTONIC: before, after."""

    before_ns: int
    after_ns: int

    @classmethod
    def since(cls, before_ns: int) -> "Clocks":
        """Return the differences for a capture that ends now and began with the difference ``before_ns``."""
        return cls(before_ns, realtime_ahead_ns())

    def monotonic_ns(self, real_ns: int) -> int:
        """Return the monotonic instant of a packet's time stamp: the later one of two possible instants."""
        return real_ns - min(self)

    def require_unset(self) -> None:
        """Raise RigError if the real-time clock was set during the capture."""
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
    """Parse the output of `replies_command`: all replies, in the order in which they crossed the bridge.

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


def parse_writes(text: str) -> Counter[str]:
    """Parse the output of `replies_command`: the number of the clients' WRITEs by requested stability.

    A reply also has a field of that name, the effective stability. No packet has both: a packet has one direction.

    Raises:
        RigError: the text has another format.
    """
    counted: Counter[str] = Counter()
    for line in text.splitlines():
        packet = _packet(line)
        if packet.messages and all(kind == _CALL for _, kind in packet.messages):
            counted.update(STABILITY[number] for number in packet.stability)
    return counted


class _Packet(NamedTuple):
    """One line of tshark's output."""

    real_ns: int
    source: str
    target: str
    stream: str
    messages: list[tuple[str, str]]
    """XID and type of each message."""
    groups: list[str]
    stability: list[int]


def _packet(line: str) -> _Packet:
    fields = line.split("\t")
    epoch = _EPOCH.fullmatch(fields[0])
    if epoch is None or len(fields) != len(_FIELDS):
        raise RigError(f"unexpected tshark output about RPCs: {line[:200]!r}")
    source, target, stream = fields[1:4]
    # A fragment whose message ends in a later packet has no type.
    xids, kinds, groups, stable3, stable4 = ([one for one in field.split(",") if one] for field in fields[4:])
    if len(xids) != len(kinds):
        raise RigError(f"tshark names {len(xids)} RPCs and the types of {len(kinds)}: {line[:200]!r}")
    stability = [*map(int, (*stable3, *stable4))]
    if any(number >= len(STABILITY) for number in stability):
        raise RigError(f"not the stability of a WRITE: {line[:200]!r}")
    real_ns = int(epoch[1]) * 1_000_000_000 + int(epoch[2])
    return _Packet(real_ns, source, target, stream, list(zip(xids, kinds, strict=True)), groups, stability)


def _first_groups(groups: Sequence[str], calls: int) -> Iterator[int | None]:
    """Yield the first group of each of a packet's calls; None for all if they cannot be assigned to the calls."""
    each, rest = divmod(len(groups), calls) if calls else (0, 0)
    parts = [groups[at : at + each] for at in range(0, len(groups), each)] if each and not rest else []
    alike = len({tuple(part[1:]) for part in parts}) == 1
    for number in range(calls):
        yield int(parts[number][0]) if alike else None
