"""Verdicts on captured NFS traffic: the calls that promises need, and the protocol's rules for a server's restart."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

from raidproof.core.blame import Blame, Culprit
from raidproof.monitor.capture import OK, Exchange, Operation, operations_of, whole
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.contract import PROMISES

Calls = Mapping[str, Mapping[str, int]]
"""Number of NFS calls while the ledger ran, by client and by the call's name in /proc/self/mountstats."""

WRITE = frozenset({"WRITE"})
"""The NFS call that a kind of operation needs if the kind is not in ``_CALLS``."""
_CALLS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "pages": frozenset({"WRITE", "COMMIT"}),
        "unaligned": frozenset({"WRITE", "COMMIT"}),
        "o_append": frozenset({"WRITE", "LOCK"}),
        "mkdir": frozenset({"CREATE"}),
        "create": frozenset({"OPEN"}),
        "setattr": frozenset({"SETATTR"}),
        "setxattr": frozenset({"SETXATTR"}),
        **dict.fromkeys(("subdirectory", "mknod"), frozenset({"CREATE"})),
        **dict.fromkeys(("recreate", "long_name"), frozenset({"OPEN"})),
        **dict.fromkeys(("rename_into", "rename_directory", "rename_symlink"), frozenset({"RENAME"})),
        **dict.fromkeys(("chown", "utimes", "shrink", "grow"), frozenset({"SETATTR"})),
        "link_into": frozenset({"LINK"}),
        "link": frozenset({"LINK"}),
        "symlink": frozenset({"SYMLINK"}),
        "rename": frozenset({"RENAME"}),
        "replace": frozenset({"RENAME"}),
        "truncate": frozenset({"SETATTR"}),
        "remove": frozenset({"REMOVE"}),
        "unlink": frozenset({"REMOVE"}),
        "rmdir": frozenset({"REMOVE"}),
        "allocate": frozenset({"ALLOCATE"}),
        "punch": frozenset({"DEALLOCATE"}),
        "fragments": frozenset({"WRITE", "COMMIT"}),
        "zero_range": frozenset({"ZERO_RANGE"}),
        "copy": frozenset({"COPY"}),
        "clone": frozenset({"CLONE"}),
        # An application may also run on the server, and may do anything on a client.
        "application": frozenset(),
    }
)
"""The NFSv4 calls that each kind of operation needs, with the client's names (nfs4_procedures in fs/nfs/nfs4xdr.c)."""
_CALLS_3: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys(("mkdir", "subdirectory"), frozenset({"MKDIR"})),
        **dict.fromkeys(("create", "recreate", "long_name"), frozenset({"CREATE"})),
        "mknod": frozenset({"MKNOD"}),
        # A lock is a call of NLM, another protocol.
        "o_append": WRITE,
        "rmdir": frozenset({"RMDIR"}),
    }
)
"""The NFSv3 calls that differ from those of NFSv4."""

NFSD = Blame(culprit=Culprit.NFSD)
FORGOTTEN = ("NFS4ERR_BADSESSION", "NFS4ERR_STALE_CLIENTID", "NFS4ERR_STALE_STATEID")
"""Errors that a restarted server returns to a client whose state it has lost (RFC 8881, 15.1)."""
NOT_WRITTEN = ("NFS4ERR_IO", "NFS4ERR_NOSPC", "NFS3ERR_IO", "NFS3ERR_NOSPC")
"""Errors in the reply to a WRITE or COMMIT whose data the server could not store."""
UNSTABLE = 0
"""The value UNSTABLE of `stable_how` in NFSv3 and NFSv4: the server may hold the data in its memory only."""
CLAIM_PREVIOUS = 1
"""The claim type of an OPEN that reclaims a file after a restart of the server."""


def calls_of(kind: str, mount: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the NFS calls that an operation of a kind needs.

    ``mount``: the specification of the mount in a record. On a ``sync`` or ``noac`` mount every WRITE is stable, so
    that no COMMIT is needed (nfs(5)).
    """
    calls = (_CALLS_3 if mount.get("vers") == "3" else {}).get(kind) or _CALLS.get(kind, WRITE)
    return calls - {"COMMIT"} if mount.get("sync") or mount.get("noac") else calls


def total(calls: Calls) -> Counter[str]:
    """Return the number of calls of all clients together, by name of the call."""
    counted: Counter[str] = Counter()
    for mine in calls.values():
        counted.update(mine)
    return counted


def judge_calls(
    kinds: Iterable[str], calls: Calls, mount: Mapping[str, Any], *, stable_writes: bool = False
) -> list[Verdict]:
    """Judge that clients sent the calls that each acknowledged kind of operation needs.

    Without these calls the client completed the operations alone, and their survival proves nothing about the server.
    ``stable_writes``: the server commits each WRITE before it replies, so that no COMMIT is needed.
    """
    sent, verdicts = total(calls), []
    for kind in kinds:
        needed = calls_of(kind, mount) - ({"COMMIT"} if stable_writes else set())
        if missing := sorted(name for name in needed if not sent[name]):
            reason = f"no client sent a {' or a '.join(missing)} call, which this promise needs"
            verdicts.append(
                Verdict(checker=f"{PROMISES[kind]}, on the wire", outcome=Outcome.INCONCLUSIVE, reason=reason)
            )
    if not verdicts:
        counted = ", ".join(f"{count:,} {name}" for name, count in sorted(sent.items()) if count)
        verdicts.append(Verdict(checker="calls on the wire", outcome=Outcome.PASS, reason=counted))
    return verdicts


class Fields(NamedTuple):
    """The names of tshark's fields for WRITE and COMMIT in one NFS version."""

    offset: str
    length: str
    stable: str
    """Name of the field with the stability (``stable_how``) in the reply to a WRITE."""
    verifier: str
    """Name of the field with the write verifier."""


FIELDS = {
    "3": Fields("nfs.offset3", "nfs.count3", "nfs.write.committed", "nfs.verifier"),
    "4": Fields("nfs.offset4", "nfs.count4", "nfs.stable_how4", "nfs.verifier4"),
}
"""The names of tshark's fields by NFS version."""


class Range(NamedTuple):
    """The bytes of a file from ``begin`` up to, but without, ``end``."""

    begin: int
    end: int

    @property
    def length(self) -> int:
        """Length in bytes."""
        return self.end - self.begin

    def without(self, other: "Range") -> list["Range"]:
        """Return the parts of this range that are outside the range ``other``."""
        parts = (Range(self.begin, min(self.end, other.begin)), Range(max(self.begin, other.end), self.end))
        return [part for part in parts if part.begin < part.end]


class Answered(NamedTuple):
    """A successful WRITE or COMMIT, from its call and its reply."""

    at_s: float
    """Time of the reply, in seconds since the beginning of the capture."""
    client: str
    handle: str
    """File handle."""
    span: Range
    """The bytes that were written or committed."""
    verifier: str
    """Write verifier: it changes if the server may have lost unstable writes."""
    name: str
    """``WRITE`` or ``COMMIT``."""
    unstable: bool
    """Whether the reply to a WRITE has the stability UNSTABLE."""


def by_client(name: str) -> Blame:
    """Return a blame on the client of this name."""
    return Blame(culprit=Culprit.CLIENT, members=(name,), detail=name)


def _of(name: str, reason: str, outcome: Outcome, blame: Blame | None = None) -> Verdict:
    return Verdict(checker=name, outcome=outcome, reason=reason, blame=blame)


def restarted_s(exchanges: Sequence[Exchange]) -> float | None:
    """Return the time of the first reply of a restarted server, in seconds; None if the capture shows no restart.

    NFSv4: the time of the first reply with an error in `FORGOTTEN`, which is the first reply of a restarted server.
    NFSv3 has no client state: the time of the first reply after all clients reconnected. Clients also reconnect
    without a restart, so the caller must know that the server restarted.
    """
    forgotten = [
        one.answered_s
        for one in exchanges
        if one.answered_s is not None and any(operation.status in FORGOTTEN for operation in one.operations)
    ]
    return min(forgotten) if forgotten else reconnected_s([one for one in exchanges if one.version == "3"])


def reconnected_s(exchanges: Sequence[Exchange]) -> float | None:
    """Return the time in seconds from which all replies use new connections of the clients.

    This is the first reply over a new connection after the last reply over an old one; None if clients kept their
    first connections.
    """
    spans: dict[tuple[str, str], tuple[float, float]] = {}
    for one in exchanges:
        # mount.nfs probes the server with a NULL call over a separate connection.
        if one.answered_s is not None and one.operations[0].name != "NULL":
            key = (one.client, one.connection)
            begin, end = spans.get(key, (one.answered_s, one.answered_s))
            spans[key] = min(begin, one.answered_s), max(end, one.answered_s)
    first = {client: min(begin for (other, _), (begin, _) in spans.items() if other == client) for client, _ in spans}
    begun = sorted(begin for (client, _), (begin, _) in spans.items() if begin > first[client])
    return next((at_s for at_s in begun if all(end < at_s for begin, end in spans.values() if begin < at_s)), None)


def failed_s(exchanges: Sequence[Exchange]) -> float | None:
    """Return the time of the first WRITE or COMMIT reply with a storage error, in seconds; None without one."""
    failed = [
        one.answered_s
        for name in ("WRITE", "COMMIT")
        for one, operation in operations_of(exchanges, name)
        if one.answered_s is not None and operation.status in NOT_WRITTEN
    ]
    return min(failed, default=None)


def answered(exchanges: Sequence[Exchange]) -> list[Answered]:
    """Return the successful WRITEs and COMMITs in the order of their replies."""
    found = []
    for name in ("WRITE", "COMMIT"):
        for one, operation in operations_of(exchanges, name):
            if one.answered_s is not None and operation.status == OK:
                found.append(_answered(one, one.answered_s, operation))
    return sorted(found, key=lambda each: each.at_s)


def _answered(one: Exchange, at_s: float, operation: Operation) -> Answered:
    fields = FIELDS[one.version]
    begin = operation.number(fields.offset)
    if operation.name == "WRITE":
        length = whole(operation.told, fields.length, "WRITE")
        unstable = whole(operation.told, fields.stable, "WRITE") == UNSTABLE
    else:
        # A COMMIT with a count of 0 covers all bytes up to the end of the file.
        length, unstable = operation.number(fields.length) or 1 << 64, False
    # tshark prints the eight bytes of a verifier as one number or byte by byte.
    verifier = operation.told.get(fields.verifier, "").removeprefix("0x").replace(":", "")
    return Answered(
        at_s, one.client, operation.handle, Range(begin, begin + length), verifier, operation.name, unstable
    )


def judge_verifier(exchanges: Sequence[Exchange], *, after_s: float | None = None) -> Verdict:
    """Judge that the server's write verifier changed at its restart, so that clients retransmit lost unstable writes.

    ``after_s``: the time in seconds at which the verifier had to change; None: the time of the restart.
    """
    name, replies = "write verifier", answered(exchanges)
    at_s = restarted_s(exchanges) if after_s is None else after_s
    if at_s is None:
        return _of(name, "the capture shows no restart of the server", Outcome.INCONCLUSIVE)
    before = {one.verifier for one in replies if one.at_s < at_s}
    after = {one.verifier for one in replies if one.at_s >= at_s}
    if not before or not after:
        when = "before" if not before else "after"
        return _of(name, f"no WRITE or COMMIT succeeded {when} the restart", Outcome.INCONCLUSIVE)
    if same := before & after:
        return _of(name, f"the server kept the write verifier {min(same)} after its restart", Outcome.FAIL, NFSD)
    if len(after) > 1 and after_s is None:
        return _of(
            name, f"the server sent {len(after)} different write verifiers after one restart", Outcome.FAIL, NFSD
        )
    return _of(name, f"{min(before)} before the restart, {min(after)} after the restart", Outcome.PASS)


def judge_resent(exchanges: Sequence[Exchange]) -> Verdict:
    """Judge that clients retransmitted all data that was unstable on the server when its write verifier changed.

    The check does not apply to traffic in which files are truncated or removed: clients need not retransmit their
    data.
    """
    name = "unstable writes"
    held: dict[tuple[str, str], list[tuple[Range, str]]] = defaultdict(list)
    lost: dict[tuple[str, str], list[Range]] = defaultdict(list)
    resent = 0
    current: str | None = None
    for one in answered(exchanges):
        if one.verifier != current:
            for file, pieces in held.items():
                lost[file] += [span for span, verifier in pieces if verifier != one.verifier]
                held[file] = [piece for piece in pieces if piece[1] == one.verifier]
            current = one.verifier
        key = (one.client, one.handle)
        held[key] = [(part, verifier) for span, verifier in held[key] for part in span.without(one.span)]
        if one.name == "WRITE":
            before = sum(span.length for span in lost[key])
            lost[key] = [part for span in lost[key] for part in span.without(one.span)]
            resent += before - sum(span.length for span in lost[key])
            if one.unstable:
                held[key].append((one.span, one.verifier))
    missing = {key: ranges for key, ranges in lost.items() if ranges}
    if missing:
        (client, handle), ranges = next(iter(missing.items()))
        others = sum(map(len, missing.values())) - 1
        first = (
            f"{client} did not retransmit bytes {ranges[0].begin} to {ranges[0].end} of the file with handle {handle}"
        )
        reason = f"{first} after the write verifier changed{f', nor {others} other ranges' if others else ''}"
        return _of(name, reason, Outcome.FAIL, by_client(client))
    if not resent:
        return _of(name, "no data was unstable when the write verifier changed", Outcome.INCONCLUSIVE)
    reason = f"clients retransmitted {resent:,} bytes, all data that was unstable when the write verifier changed"
    return _of(name, reason, Outcome.PASS)


def judge_restart(exchanges: Sequence[Exchange], *, restarted: bool = False) -> list[Verdict]:
    """Return the conclusive verdicts on a restart of the server in a crash test; an empty list without a restart.

    ``restarted``: whether the fault restarted the server; NFSv3 traffic alone does not prove a restart.
    """
    if restarted_s([one for one in exchanges if restarted or one.version == "4"]) is None:
        return []
    verdicts = (judge_verifier(exchanges), judge_resent(exchanges))
    # An INCONCLUSIVE verdict is usual: most writes of the ledger are small, and the client requests them stable.
    return [verdict for verdict in verdicts if verdict.outcome is not Outcome.INCONCLUSIVE]


class Claim(NamedTuple):
    """A LOCK, LOCKU or OPEN call with the status of its reply."""

    at_s: float
    """Time of the reply, in seconds since the beginning of the capture."""
    client: str
    handle: str
    """File handle."""
    name: str
    """``LOCK``, ``LOCKU`` or ``OPEN``."""
    reclaim: bool
    """Whether the client reclaims a lock or an open file after a restart of the server."""
    status: str | None
    """NFS status, such as ``NFS4_OK``."""


def claims(exchanges: Sequence[Exchange]) -> list[Claim]:
    """Return all LOCK and LOCKU calls, and the OPEN calls that reclaim a file, in the order of their replies."""
    found = []
    for name in ("LOCK", "OPEN", "LOCKU"):
        for one, operation in operations_of(exchanges, name):
            if one.answered_s is None or operation.status is None:
                continue
            if name == "OPEN":
                reclaim = operation.number("nfs.open.claim_type") == CLAIM_PREVIOUS
                if not reclaim:
                    continue
            else:
                reclaim = operation.asked.get("nfs.lock.reclaim", "0") != "0"
            found.append(Claim(one.answered_s, one.client, operation.handle, name, reclaim, operation.status))
    return sorted(found, key=lambda claim: claim.at_s)


def judge_locks_kept(exchanges: Sequence[Exchange]) -> Verdict:
    """Judge that no client got a lock on a file before the client that held one at the restart reclaimed its lock.

    A server that skips its grace period refuses the reclaim, or grants the lock to another client. The check ignores
    byte ranges: it takes all locks on a file as one.
    """
    name, at_s = "locks in grace", restarted_s(exchanges)
    if at_s is None:
        return _of(name, "the capture shows no restart of the server", Outcome.INCONCLUSIVE)
    holders: dict[str, set[str]] = defaultdict(set)
    for one in claims(exchanges):
        if one.at_s < at_s and one.status == OK and one.name != "OPEN":
            (holders[one.handle].discard if one.name == "LOCKU" else holders[one.handle].add)(one.client)
    waiting = {(client, handle) for handle, clients in holders.items() for client in clients}
    if not waiting:
        return _of(name, "no client held a lock when the server restarted", Outcome.INCONCLUSIVE)
    count, put_off = len(waiting), 0
    for one in claims(exchanges):
        if one.at_s < at_s:
            continue
        if wrong := _wrong_with(one, waiting):
            return _of(name, wrong, Outcome.FAIL, NFSD)
        if one.name == "LOCK" and one.reclaim:
            waiting.discard((one.client, one.handle))
        put_off += one.status == "NFS4ERR_GRACE"
    if waiting:
        client, handle = min(waiting)
        return _of(name, f"{client} did not reclaim its lock on the file with handle {handle}", Outcome.INCONCLUSIVE)
    reason = f"reclaimed locks: {count}; requests for new locks that got NFS4ERR_GRACE: {put_off}"
    return _of(name, reason, Outcome.PASS)


def _wrong_with(claim: Claim, waiting: Set[tuple[str, str]]) -> str | None:
    """Return a description of the server's error in its reply to a claim; None if the reply is correct.

    ``waiting``: pairs of a client and a file handle whose locks the clients have not yet reclaimed.
    """
    client, handle = claim.client, claim.handle
    if claim.reclaim and (client, handle) in waiting and claim.status != OK:
        held = f"{client} held a lock on the file with handle {handle}"
        return f"{held}, but its {claim.name} call to reclaim it got {claim.status}"
    if claim.name == "LOCK" and not claim.reclaim and claim.status == OK:
        robbed = min((holder for holder, held in waiting if held == handle), default=None)
        if robbed is not None:
            first = f"{client} got a lock on the file with handle {handle}"
            return f"{first} before {robbed}, which held a lock at the restart, reclaimed it"
    return None


def judge_late_reclaim(exchanges: Sequence[Exchange], client: str) -> Verdict:
    """Judge that the server refused every reclaim of a client after the grace period."""
    name = "locks after grace"
    tried = [one for one in claims(exchanges) if one.client == client and one.reclaim]
    if not tried:
        return _of(name, f"{client} sent no request to reclaim a lock or a file", Outcome.INCONCLUSIVE)
    if granted := [one for one in tried if one.status == OK]:
        first = granted[0]
        reason = f"the server granted a reclaim of {client} after the grace period: {first.name} of {first.handle}"
        return _of(name, reason, Outcome.FAIL, NFSD)
    statuses = sorted({str(one.status) for one in tried})
    reason = f"the server refused {len(tried)} reclaims of {client} with {', '.join(statuses)}"
    return _of(name, reason, Outcome.PASS)
