"""NFSv3 and NFSv4 as they went over the wire: what ``tshark -T json`` prints of a capture, as calls and their replies.

Numbers and names of operations and errors are those of RFC 7530, 8881 and 7862; of NFSv3 those of RFC 1813.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from raidproof.core.errors import RigError

NFS_PROGRAM = "100003"
OPERATIONS = {
    3: "ACCESS", 4: "CLOSE", 5: "COMMIT", 6: "CREATE", 8: "DELEGRETURN", 9: "GETATTR", 10: "GETFH", 12: "LOCK",
    13: "LOCKT", 14: "LOCKU", 15: "LOOKUP", 18: "OPEN", 22: "PUTFH", 24: "PUTROOTFH", 25: "READ", 26: "READDIR",
    28: "REMOVE", 29: "RENAME", 34: "SETATTR", 38: "WRITE", 42: "EXCHANGE_ID", 43: "CREATE_SESSION",
    44: "DESTROY_SESSION", 45: "FREE_STATEID", 53: "SEQUENCE", 55: "TEST_STATEID", 58: "RECLAIM_COMPLETE",
    68: "READ_PLUS",
}  # fmt: skip
"""Those that checks or readers ask for; others are called by their number."""
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
"""Of NFSv3; others are called by their number."""
STATUSES3 = {0: "OK", 5: "NFS3ERR_IO", 28: "NFS3ERR_NOSPC", 70: "NFS3ERR_STALE", 10008: "NFS3ERR_JUKEBOX"}
OK = "OK"
JUDGED = frozenset(
    {
        "nfs.count3", "nfs.count4", "nfs.lock.reclaim", "nfs.nfsstat4", "nfs.offset3", "nfs.offset4",
        "nfs.open.claim_type", "nfs.open.delegation_type", "nfs.stable_how4", "nfs.verifier", "nfs.verifier4",
        "nfs.write.committed",
    }
)  # fmt: skip
"""Fields that a check asks for."""

Pairs = list[tuple[str, Any]]
"""A JSON object whose keys repeat: tshark writes one key for each of several operations."""


@dataclass(frozen=True)
class Operation:
    """One operation of a COMPOUND, or all that a call of NFSv3 is: its fields, flat, under tshark's names."""

    name: str
    asked: dict[str, str] = field(default_factory=dict)
    """Of the call. Of a field that occurs more than once, the first."""
    told: dict[str, str] = field(default_factory=dict)
    """Of the reply."""
    status: str | None = None
    """``OK``, or the error's name in the RFC; None where no reply tells of it."""
    handle: str = ""
    """A hash of the file handle that the call had put before it."""

    def number(self, name: str) -> int:
        """Return a number of the call.

        Raises:
            RigError: it has none of that name.
        """
        return whole(self.asked, name, self.name)


@dataclass(frozen=True)
class Exchange:
    """A call and, if it was answered, its reply."""

    client: str
    """Its address."""
    xid: str
    called_s: float
    """When the call was complete, in seconds since the capture's first packet."""
    operations: tuple[Operation, ...]
    answered_s: float | None = None
    """The reply; None if there is none in the capture."""
    version: str = "4"
    """Of NFS: ``3`` or ``4``."""
    connection: str = ""
    """Which TCP connection of the capture it went over; empty if nobody said."""

    @property
    def answered(self) -> bool:
        """Whether the client was told anything."""
        return self.answered_s is not None


def whole(fields: dict[str, str], name: str, what: str) -> int:
    """Return a field as a number; tshark writes some in hexadecimal.

    Raises:
        RigError: it is not there, or is none.
    """
    try:
        return int(fields[name], 0)
    except (KeyError, ValueError) as error:
        raise RigError(f"tshark says no {name} of {what}: {fields}") from error


def operations_of(exchanges: Sequence[Exchange], name: str) -> Iterator[tuple[Exchange, Operation]]:
    """Yield all operations of that name with their exchanges, in the order of the calls."""
    for exchange in exchanges:
        for operation in exchange.operations:
            if operation.name == name:
                yield exchange, operation


def parse_connections(text: str) -> dict[str, str]:
    """Read the output of `raidproof.monitor.capture.connections_command`: the TCP connection of each packet's number.

    Raises:
        RigError: it is not such output.
    """
    lines = [line.split("\t") for line in text.splitlines()]
    if wrong := [line for line in lines if len(line) != 2 or not all(map(str.isdecimal, line))]:
        raise RigError(f"not a packet's number and its connection: {wrong[0]}")
    return dict(lines)


NOBODY_SAID: Mapping[str, str] = MappingProxyType({})


def parse_packets(text: str, connections: Mapping[str, str] = NOBODY_SAID) -> list[Exchange]:
    """Read the output of `raidproof.monitor.capture.decode_command`. Other versions than NFSv3 and 4 are passed over.

    A call that was sent again is one exchange for each time; the reply is that of the last. ``connections`` are those
    of the packets, by their numbers.

    Raises:
        RigError: it is not such output.
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
        raise RigError(f"not what tshark prints of NFS: {error!r}") from error
    return exchanges


def _messages(packet: Pairs) -> Iterator[tuple[dict[str, str], str, str, dict[str, str], Pairs]]:
    """Yield the RPCs of a packet, which may hold several: frame, source, target, RPC header, NFS."""
    layers: Pairs = dict(dict(packet)["_source"])["layers"]
    first = dict(reversed(layers))
    at, ip = flat(first["frame"]), flat(first["ip"])
    header: dict[str, str] | None = None
    for name, content in layers:
        if name == "rpc":
            if header:
                yield at, ip["ip.src"], ip["ip.dst"], header, []
            header = flat(content)
            # What a fragment carries that is no whole message has no type.
            header = header if "rpc.msgtyp" in header else None
        elif name == "nfs" and header:
            yield at, ip["ip.src"], ip["ip.dst"], header, content
            header = None
    if header:
        yield at, ip["ip.src"], ip["ip.dst"], header, []


def flat(pairs: Any) -> dict[str, str]:
    """Return all fields below, by name; of several of the same name the first."""
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
                yield number, {}  # one without fields
            number = int(value)
        elif name == "nfs.opcode_tree" and number is not None:
            yield number, flat(value)
            number = None
    if number is not None:
        yield number, {}


def _asked(nfs: Pairs) -> Iterator[Operation]:
    handle = ""
    for number, fields in _compound(nfs):
        # The data itself is of no use, and as text it is three times as long.
        fields.pop("nfs.data", None)
        handle = fields.get("nfs.fh.hash", handle)
        yield Operation(OPERATIONS.get(number, str(number)), fields, handle=handle)


def _told(call: Exchange, nfs: Pairs) -> tuple[Operation, ...]:
    """Give each operation its result; what follows the first error was not carried out."""
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
    # NULL has no result, and a call that RPC refused none either.
    status = int(told["nfs.status3"]) if "nfs.status3" in told else None
    return replace(asked, told=told, status=None if status is None else STATUSES3.get(status, str(status)))


def write_exchanges(exchanges: Sequence[Exchange]) -> str:
    """Write what checks need of them, JSON; the capture itself has the rest."""
    return json.dumps([asdict(one) | {"operations": [_brief(each) for each in one.operations]} for one in exchanges])


def _brief(operation: Operation) -> dict[str, Any]:
    fields = {name: {key: value for key, value in getattr(operation, name).items() if key in JUDGED}
              for name in ("asked", "told")}  # fmt: skip
    return {"name": operation.name, "status": operation.status, "handle": operation.handle, **fields}


def read_exchanges(text: str) -> list[Exchange]:
    """Read what `write_exchanges` wrote.

    Raises:
        RigError: it is something else.
    """
    try:
        return [
            Exchange(**one | {"operations": tuple(Operation(**each) for each in one["operations"])})
            for one in json.loads(text)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RigError(f"not what is kept of a capture: {error!r}") from error
