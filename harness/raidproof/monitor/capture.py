"""NFS on the wire: a packet capture on the lab's bridge, the decoded calls and replies, and the times of replies."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Any, cast

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
"""Names of NFSv4 operations by number; an operation that is not listed here gets its number as name."""
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
"""Names of NFSv3 procedures by number; a procedure that is not listed here gets its number as name."""
STATUSES3 = {0: "OK", 5: "NFS3ERR_IO", 28: "NFS3ERR_NOSPC", 70: "NFS3ERR_STALE", 10008: "NFS3ERR_JUKEBOX"}
OK = "OK"
JUDGED = frozenset(
    {
        "nfs.count3", "nfs.count4", "nfs.fh.hash", "nfs.lock.reclaim", "nfs.nfsstat4", "nfs.offset3", "nfs.offset4",
        "nfs.open.claim_type", "nfs.open.delegation_type", "nfs.open4.share_access", "nfs.pathname.component",
        "nfs.stable_how4", "nfs.stateid.other_hash", "nfs.verifier", "nfs.verifier4", "nfs.write.committed",
    }
)  # fmt: skip
"""The tshark fields that checks of NFS traffic read, and that `write_exchanges` stores."""

Pairs = list[tuple[str, Any]]
"""A JSON object with repeated keys: tshark writes the same key for each of several operations."""

NO_CONNECTIONS: Mapping[str, str] = MappingProxyType({})
START_DEADLINE_S = 15.0
STOP_DEADLINE_S = 15.0
DECODE_DEADLINE_S = 300.0
BUFFER_MIB = 32
"""Size of the kernel's capture buffer: it must hold a burst of writes while the host is busy."""
HANDED_OVER_S = 0.75
"""Seconds to wait before a capture ends: the kernel delivers packets in blocks, up to 250 ms late (dumpcap)."""


@dataclass(frozen=True)
class Operation:
    """One operation of an NFSv4 COMPOUND, or one NFSv3 call. Its fields have tshark's names, without nesting."""

    name: str
    asked: dict[str, str] = field(default_factory=dict)
    """Fields of the call; the first value of a repeated field."""
    told: dict[str, str] = field(default_factory=dict)
    """Fields of the reply; the first value of a repeated field."""
    status: str | None = None
    """``OK``, or the name of the error in the RFC; None if the reply has no result of this operation."""
    handle: str = ""
    """tshark's hash of the operation's current file handle."""

    def number(self, name: str) -> int:
        """Return a field of the call as a number.

        Raises:
            RigError: the call has no field of this name, or the field is not a number.
        """
        return whole(self.asked, name, self.name)


@dataclass(frozen=True)
class Exchange:
    """An RPC call to the NFS server with its operations, and its reply if the capture has one."""

    client: str
    """The client's address."""
    xid: str
    """RPC transaction identifier."""
    called_s: float
    """Time of the call's last packet, in seconds since the capture's first packet."""
    operations: tuple[Operation, ...]
    answered_s: float | None = None
    """Time of the reply's last packet; None if the capture has no reply."""
    version: str = "4"
    """NFS version: ``3`` or ``4``."""
    connection: str = ""
    """Number of the call's TCP connection in the capture; empty if unknown."""

    @property
    def answered(self) -> bool:
        """Whether the capture has a reply to the call."""
        return self.answered_s is not None


def whole(fields: dict[str, str], name: str, what: str) -> int:
    """Return a field of the message ``what`` as a number; tshark writes some numbers in hexadecimal.

    Raises:
        RigError: the field is missing, or not a number.
    """
    try:
        return int(fields[name], 0)
    except (KeyError, ValueError) as error:
        raise RigError(f"tshark printed no {name} of {what}: {fields}") from error


def operations_of(exchanges: Sequence[Exchange], name: str) -> Iterator[tuple[Exchange, Operation]]:
    """Yield all operations with this name and their exchanges, in the order of the calls."""
    for exchange in exchanges:
        for operation in exchange.operations:
            if operation.name == name:
                yield exchange, operation


def parse_connections(text: str) -> dict[str, str]:
    """Parse the output of `connections_command`: the number of the TCP connection, by packet number.

    Raises:
        RigError: the text has another format.
    """
    lines = [line.split("\t") for line in text.splitlines()]
    if wrong := [line for line in lines if len(line) != 2 or not all(map(str.isdecimal, line))]:
        raise RigError(
            f"unexpected tshark output, expected the numbers of a packet and of its TCP connection: {wrong[0]}"
        )
    return dict(lines)


def parse_packets(text: str, connections: Mapping[str, str] = NO_CONNECTIONS) -> list[Exchange]:
    """Parse the output of `decode_command`: calls with their replies; NFS versions other than 3 and 4 are ignored.

    A retransmitted call gives one exchange per transmission; the last transmission gets the reply. ``connections``
    maps packet numbers to TCP connections.

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
                    asked = tuple(_operations(nfs)) if version == "4" else (_operation3(rpc, nfs),)
                    connection = connections.get(at.get("frame.number", ""), "")
                    exchanges.append(Exchange(source, xid, at_s, asked, version=version, connection=connection))
            elif (place := waiting.pop((target, xid), None)) is not None:
                call = exchanges[place]
                told = _with_results(call, nfs) if call.version == "4" else (_with_result3(call.operations[0], nfs),)
                exchanges[place] = replace(call, operations=told, answered_s=at_s)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RigError(f"unexpected tshark output about NFS: {error!r}") from error
    return exchanges


def _messages(packet: Pairs) -> Iterator[tuple[dict[str, str], str, str, dict[str, str], Pairs]]:
    """Yield each RPC message of a packet: frame, source and target address, RPC header, NFS fields."""
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
    """Return all fields of nested layers by name; of fields with the same name, the first."""
    found: dict[str, str] = {}
    for name, value in pairs if isinstance(pairs, list) else []:
        if isinstance(value, str):
            found.setdefault(name, value)
        else:
            for below, its in flat(value).items():
                found.setdefault(below, its)
    return found


def _compound(nfs: Pairs) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the fields of each operation of a COMPOUND."""
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


def _operations(nfs: Pairs) -> Iterator[Operation]:
    handle = ""
    for number, fields in _compound(nfs):
        # No check reads the file data, which takes three times its size as text.
        fields.pop("nfs.data", None)
        handle = fields.get("nfs.fh.hash", handle)
        yield Operation(OPERATIONS.get(number, str(number)), fields, handle=handle)


def _with_results(call: Exchange, nfs: Pairs) -> tuple[Operation, ...]:
    """Return a call's operations with their results; the server executes no operation after the first error."""
    results = list(_compound(nfs))
    operations = []
    for place, asked in enumerate(call.operations):
        told = results[place][1] if place < len(results) else {}
        told.pop("nfs.data", None)
        status = whole(told, "nfs.nfsstat4", asked.name) if told else None
        name = None if status is None else STATUSES.get(status, str(status))
        operations.append(replace(asked, told=told, status=name))
    return tuple(operations)


def _operation3(rpc: dict[str, str], nfs: Pairs) -> Operation:
    number, fields = whole(rpc, "rpc.procedure", "a call"), flat(nfs)
    fields.pop("nfs.data", None)
    return Operation(PROCEDURES.get(number, str(number)), fields, handle=fields.get("nfs.fh.hash", ""))


def _with_result3(asked: Operation, nfs: Pairs) -> Operation:
    told = flat(nfs)
    told.pop("nfs.data", None)
    # NULL has no status, nor has a call that the RPC layer rejected.
    status = int(told["nfs.status3"]) if "nfs.status3" in told else None
    return replace(asked, told=told, status=None if status is None else STATUSES3.get(status, str(status)))


def write_exchanges(exchanges: Sequence[Exchange]) -> str:
    """Return the parts of exchanges that checks read, as JSON; the capture file has all other fields."""
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
        raise RigError(f"the stored NFS exchanges cannot be parsed: {error!r}") from error


def capture_command(path: Path, port: int = NFS_PORT, interface: str = BRIDGE) -> list[str]:
    """Return the command that captures whole packets to and from the NFS server's TCP port on a network interface."""
    # -q: print no running packet count. dumpcap's default is promiscuous mode, in which a bridge delivers the traffic
    # between its ports.
    return ["dumpcap", "-q", "-B", str(BUFFER_MIB), "-i", interface, "-f", f"tcp port {port}", "-w", str(path)]


def decode_command(path: Path, port: int = NFS_PORT) -> list[str]:
    """Return the command that prints the RPC messages of a capture with all their fields, as JSON."""
    return [*_rpcs(path, port), "-T", "json", "-J", "frame ip rpc nfs"]


def connections_command(path: Path, port: int = NFS_PORT) -> list[str]:
    """Return the command that prints the number and the TCP connection of each packet with an RPC message.

    A separate command, because the TCP fields in the JSON of `decode_command` would repeat the whole payload.
    """
    return [*_rpcs(path, port), "-T", "fields", "-e", "frame.number", "-e", "tcp.stream"]


def _rpcs(path: Path, port: int) -> list[str]:
    # Without -d, tshark guesses the protocol of a connection whose beginning is not in the capture, often wrongly.
    return ["tshark", "-n", "-d", f"tcp.port=={port},rpc", "-r", str(path), "-Y", "rpc"]


def dropped(message: str) -> int:
    """Return the number of lost packets from dumpcap's final message.

    Raises:
        RigError: the message has no number of lost packets.
    """
    found = re.search(r"received/dropped on interface '[^']*': \d+/(\d+) ", message)
    if found is None:
        raise RigError(f"dumpcap ended without a count of lost packets; its output ends with {message[-200:]!r}")
    return int(found[1])


def printed(command: list[str]) -> str:
    """Run a tshark command and return its standard output.

    Raises:
        CommandFailed: tshark cannot read the capture.
    """
    ended = run(command, environment={"LC_ALL": "C"}, deadline_s=DECODE_DEADLINE_S)
    if not ended.ok:
        raise CommandFailed(ended)
    return ended.stdout


def why_no_capture(lab: Lab) -> RequirementMissing | None:
    """Return why NFS traffic in a lab cannot be captured and decoded; None if it can be."""
    if not isinstance(lab, NamespaceLab):
        return RequirementMissing(
            "NFS cannot be captured: the harness does not control the machines' network",
            remedy="use provider uml or qemu",
        )
    missing = [program for program in ("dumpcap", "tshark") if which(program) is None]
    return RequirementMissing(f"host tool not found: {missing[0]}", remedy=install_list(WIRE)) if missing else None


@dataclass(frozen=True)
class Capture:
    """A file with captured NFS traffic."""

    path: Path

    def exchanges(self) -> list[Exchange]:
        """Decode the capture; return each call with its reply, in the order of the calls.

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

    def __init__(self, path: Path, process: Process, log: Path) -> None:
        self.path = path
        self.ahead_ns = realtime_ahead_ns()
        """CLOCK_REALTIME, which stamps packets, minus CLOCK_MONOTONIC, in ns, before the capture."""
        self._process = process
        self._log = log

    def wait_begun(self) -> None:
        """Wait until dumpcap captures, so that no later packet is missed.

        Raises:
            RigError: dumpcap has ended.
            DeadlineExceeded: dumpcap has not begun to capture within START_DEADLINE_S.
        """
        wait_until(self._begun, Deadline.after(START_DEADLINE_S), "the capture to begin")

    def _begun(self) -> bool:
        self._process.require_running()
        # dumpcap prints the line "File:" after it has opened the kernel's buffer, before it writes the file's header.
        return self.path.exists() and b"File:" in self._log.read_bytes()

    def end(self) -> None:
        """End the capture after the kernel has delivered all packets.

        Raises:
            RigError: dumpcap ended early, or lost packets.
        """
        try:
            self._process.require_running()
            pause(HANDED_OVER_S)
        finally:
            self.stop()
        if lost := dropped(self._log.read_text(errors="replace")):
            raise RigError(
                f"dumpcap lost {lost} packets of the capture: this host was too busy", remedy=f"see {self.path}"
            )

    def stop(self) -> None:
        """End the capture at once; the last packets may be missing."""
        if self._process.status is None:
            self._process.terminate(Deadline.after(STOP_DEADLINE_S))

    def discard(self) -> None:
        """End the capture, and remove its files."""
        self.stop()
        self.path.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)


def tapping(lab: Lab, path: Path) -> Tap:
    """Start dumpcap on a lab's bridge, which writes NFS traffic to a file; return the running capture.

    Raises:
        RequirementMissing: the harness does not control the lab's network, or a host program is missing.
    """
    if (why := why_no_capture(lab)) is not None:
        raise why
    namespace = cast("NamespaceLab", lab).namespace
    log = path.with_suffix(".log")
    return Tap(path, namespace.spawn(capture_command(path.absolute()), output=log), log)


@contextmanager
def capturing(lab: Lab, path: Path) -> Iterator[Capture]:
    """Capture NFS on a lab's bridge into a file during the ``with`` statement; at its end the file is complete.

    Raises:
        RequirementMissing: the harness does not control the lab's network, or a host program is missing.
        RigError: dumpcap does not start, ended early, or lost packets.
    """
    tap = tapping(lab, path)
    try:
        tap.wait_begun()
        yield Capture(path)
        tap.end()
    finally:
        tap.stop()
