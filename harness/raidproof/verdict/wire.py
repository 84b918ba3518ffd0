"""Verdicts on captured NFS traffic: the calls that promises need, and the rules for a server's restart."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

from raidproof.core.blame import Blame, Culprit
from raidproof.monitor.capture import OK, Exchange, Operation, operations_of, whole
from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.contract import PROMISES

Calls = Mapping[str, Mapping[str, int]]
"""Number of calls by client and NFS operation while the ledger ran, with the names of /proc/self/mountstats."""

WRITE = frozenset({"WRITE"})
_CALLS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "pages": frozenset({"WRITE", "COMMIT"}),
        "unaligned": frozenset({"WRITE", "COMMIT"}),
        "o_append": frozenset({"WRITE", "LOCK"}),
        "mkdir": frozenset({"CREATE"}),
        "create": frozenset({"OPEN"}),
        "setattr": frozenset({"SETATTR"}),
        "setxattr": frozenset({"SETXATTR"}),
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
        "copy": frozenset({"COPY"}),
        "clone": frozenset({"CLONE"}),
    }
)
"""NFSv4 calls by kind, with the client's names (nfs4_procedures in fs/nfs/nfs4xdr.c); other kinds need a WRITE."""
_CALLS_3: Mapping[str, frozenset[str]] = MappingProxyType(
    {"mkdir": frozenset({"MKDIR"}), "create": frozenset({"CREATE"}), "rmdir": frozenset({"RMDIR"})}
)

NFSD = Blame(culprit=Culprit.NFSD)
FORGOTTEN = ("NFS4ERR_BADSESSION", "NFS4ERR_STALE_CLIENTID", "NFS4ERR_STALE_STATEID")
"""Errors that a server returns to a client whose state it has lost."""
NOT_WRITTEN = ("NFS4ERR_IO", "NFS4ERR_NOSPC", "NFS3ERR_IO", "NFS3ERR_NOSPC")
UNSTABLE = 0
"""The value of `stable_how` in NFSv3 and NFSv4."""
CLAIM_PREVIOUS = 1
LENT = ("1", "2")
"""Read and write delegation."""


def calls_of(kind: str, mount: Mapping[str, Any]) -> frozenset[str]:
    """Return the calls that an operation of a kind needs; ``mount``: the specification of the mount in a record.

    On a ``sync`` mount each WRITE is stable and needs no COMMIT.
    """
    calls = (_CALLS_3 if mount.get("vers") == "3" else {}).get(kind) or _CALLS.get(kind, WRITE)
    return calls - {"COMMIT"} if mount.get("sync") or mount.get("noac") else calls


def total(calls: Calls) -> Counter[str]:
    """Return the number of calls of all clients, by call."""
    counted: Counter[str] = Counter()
    for mine in calls.values():
        counted.update(mine)
    return counted


def judge_calls(kinds: Iterable[str], calls: Calls, mount: Mapping[str, Any]) -> list[Verdict]:
    """Judge that clients sent the calls that each acknowledged kind needs; without them a kind proves nothing."""
    sent, verdicts = total(calls), []
    for kind in kinds:
        needed = calls_of(kind, mount)
        if missing := sorted(name for name in needed if not sent[name]):
            reason = f"no client sent a {' or a '.join(missing)}: the server was never asked to keep this promise"
            verdicts.append(
                Verdict(checker=f"{PROMISES[kind]}, on the wire", outcome=Outcome.INCONCLUSIVE, reason=reason)
            )
    if not verdicts:
        counted = ", ".join(f"{count:,} {name}" for name, count in sorted(sent.items()) if count)
        verdicts.append(Verdict(checker="calls on the wire", outcome=Outcome.PASS, reason=counted))
    return verdicts


class Fields(NamedTuple):
    """The tshark field names of one NFS version."""

    offset: str
    length: str
    stable: str
    """Stability in the reply."""
    verifier: str


FIELDS = {
    "3": Fields("nfs.offset3", "nfs.count3", "nfs.write.committed", "nfs.verifier"),
    "4": Fields("nfs.offset4", "nfs.count4", "nfs.stable_how4", "nfs.verifier4"),
}
"""Field names by NFS version."""


class Range(NamedTuple):
    """The bytes of a file from ``begin`` up to, but without, ``end``."""

    begin: int
    end: int

    @property
    def length(self) -> int:
        """Length in bytes."""
        return self.end - self.begin

    def without(self, other: "Range") -> list["Range"]:
        """Return the parts of this range that are not in the other."""
        parts = (Range(self.begin, min(self.end, other.begin)), Range(max(self.begin, other.end), self.end))
        return [part for part in parts if part.begin < part.end]


class Answered(NamedTuple):
    """A WRITE or COMMIT that succeeded."""

    at_s: float
    client: str
    handle: str
    span: Range
    verifier: str
    """Write verifier: unchanged as long as the server holds all unstable writes."""
    name: str
    unstable: bool


def by_client(name: str) -> Blame:
    """Return a blame of one client."""
    return Blame(culprit=Culprit.CLIENT, members=(name,), detail=name)


def _of(name: str, reason: str, outcome: Outcome, blame: Blame | None = None) -> Verdict:
    return Verdict(checker=name, outcome=outcome, reason=reason, blame=blame)


def restarted_s(exchanges: Sequence[Exchange]) -> float | None:
    """Return the time of the first reply of a restarted server, in seconds; None if no restart is visible.

    NFSv4: the first reply with an error of `FORGOTTEN`; a restarted server sends no other reply before.
    NFSv3 has no client state: the first reply after all clients reconnected, which is a restart only if the caller
    knows that there was one.
    """
    told = [
        one.answered_s
        for one in exchanges
        if one.answered_s is not None and any(operation.status in FORGOTTEN for operation in one.operations)
    ]
    return min(told, default=None) if told else reconnected_s([one for one in exchanges if one.version == "3"])


def reconnected_s(exchanges: Sequence[Exchange]) -> float | None:
    """Return the time of the first reply over a new connection after which no old connection gets a reply.

    In seconds; None if there is no such time.
    """
    spans: dict[tuple[str, str], tuple[float, float]] = {}
    for one in exchanges:
        # mount.nfs sends NULL over a separate connection to probe the server.
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
    """Return the successful WRITEs and COMMITs in the order of the replies."""
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
        # A COMMIT with a count of 0 covers everything up to the end of the file.
        length, unstable = operation.number(fields.length) or 1 << 64, False
    # tshark prints the eight bytes of a verifier as one number or byte by byte.
    verifier = operation.told.get(fields.verifier, "").removeprefix("0x").replace(":", "")
    return Answered(
        at_s, one.client, operation.handle, Range(begin, begin + length), verifier, operation.name, unstable
    )


def judge_verifier(exchanges: Sequence[Exchange], *, after_s: float | None = None) -> Verdict:
    """Judge that the write verifier changed at a restart, so that clients retransmit lost unstable writes.

    ``after_s``: the time of the change in seconds, if different from `restarted_s`.
    """
    name, told = "write verifier", answered(exchanges)
    at_s = restarted_s(exchanges) if after_s is None else after_s
    if at_s is None:
        return _of(name, "no restart was seen on the wire", Outcome.INCONCLUSIVE)
    before = {one.verifier for one in told if one.at_s < at_s}
    after = {one.verifier for one in told if one.at_s >= at_s}
    if not before or not after:
        when = "before" if not before else "after"
        return _of(name, f"no WRITE or COMMIT was answered {when} the restart", Outcome.INCONCLUSIVE)
    if same := before & after:
        return _of(name, f"still {min(same)} after the restart", Outcome.FAIL, NFSD)
    if len(after) > 1 and after_s is None:
        return _of(name, f"one restart, and {len(after)} verifiers after it", Outcome.FAIL, NFSD)
    return _of(name, f"{min(before)} before, {min(after)} after", Outcome.PASS)


def judge_resent(exchanges: Sequence[Exchange]) -> Verdict:
    """Judge that clients retransmitted all data that was unstable on the server when its verifier changed.

    Not for files that were truncated or removed meanwhile.
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
        said = f"{client} did not send bytes {ranges[0].begin} to {ranges[0].end} of file {handle} again"
        return _of(
            name, f"{said}, nor {sum(map(len, missing.values())) - 1} other ranges", Outcome.FAIL, by_client(client)
        )
    if not resent:
        return _of(name, "nothing was unstable when the verifier changed", Outcome.INCONCLUSIVE)
    return _of(name, f"{resent:,} bytes that were unstable when the verifier changed were sent again", Outcome.PASS)


def judge_restart(exchanges: Sequence[Exchange], *, restarted: bool = False) -> list[Verdict]:
    """Return the conclusive verdicts on a restart of the server in a crash test; none without a restart.

    ``restarted``: whether the fault restarted the server, which NFSv3 traffic does not show.
    """
    if restarted_s([one for one in exchanges if restarted or one.version == "4"]) is None:
        return []
    verdicts = (judge_verifier(exchanges), judge_resent(exchanges))
    # Most writes of the ledger are small, and the client requests them stable.
    return [verdict for verdict in verdicts if verdict.outcome is not Outcome.INCONCLUSIVE]


class Claim(NamedTuple):
    """A lock or open request with its result."""

    at_s: float
    client: str
    handle: str
    name: str
    reclaim: bool
    status: str | None


def claims(exchanges: Sequence[Exchange]) -> list[Claim]:
    """Return all LOCKs and LOCKUs, and the OPENs that reclaim, in the order of the replies."""
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
    """Judge that each holder of a lock at the restart reclaimed the lock before another client got one on the file.

    A server that skips its grace period refuses the reclaim, or grants the lock to another client. Byte ranges are
    ignored: locks are compared by file.
    """
    name, at_s = "locks in grace", restarted_s(exchanges)
    if at_s is None:
        return _of(name, "no restart was seen on the wire", Outcome.INCONCLUSIVE)
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
        return _of(name, f"{client} did not reclaim its lock on file {handle} after the restart", Outcome.INCONCLUSIVE)
    return _of(name, f"{count} reclaimed; {put_off} new requests got NFS4ERR_GRACE", Outcome.PASS)


def _wrong_with(claim: Claim, waiting: Set[tuple[str, str]]) -> str | None:
    """Return what is wrong with the result of a claim while these (client, file) locks are not yet reclaimed."""
    client, handle = claim.client, claim.handle
    if claim.reclaim and (client, handle) in waiting and claim.status != OK:
        return f"{client} held file {handle} locked, and its {claim.name} to reclaim it got {claim.status}"
    if claim.name == "LOCK" and not claim.reclaim and claim.status == OK:
        robbed = min((holder for holder, held in waiting if held == handle), default=None)
        if robbed is not None:
            return f"{client} got a lock on file {handle} before {robbed}, which held one, could reclaim it"
    return None


def judge_late_reclaim(exchanges: Sequence[Exchange], client: str) -> Verdict:
    """Judge that the server refused every reclaim of a client after the grace period."""
    name = "locks after grace"
    tried = [one for one in claims(exchanges) if one.client == client and one.reclaim]
    if not tried:
        return _of(name, f"{client} tried to reclaim nothing", Outcome.INCONCLUSIVE)
    if granted := [one for one in tried if one.status == OK]:
        said = f"{client} reclaimed file {granted[0].handle} by {granted[0].name} after the grace period"
        return _of(name, said, Outcome.FAIL, NFSD)
    statuses = sorted({str(one.status) for one in tried})
    return _of(name, f"{len(tried)} reclaims refused: {', '.join(statuses)}", Outcome.PASS)


def judge_recall(exchanges: Sequence[Exchange], holder: str, other: str) -> Verdict:
    """Judge that a client opened a file delegated to another client only after the delegation was recalled."""
    name = "delegation"
    lent = [
        one
        for one, operation in operations_of(exchanges, "OPEN")
        if one.client == holder and operation.told.get("nfs.open.delegation_type") in LENT
    ]
    if not lent:
        return _of(name, f"{holder} got no delegation", Outcome.INCONCLUSIVE)
    asked = [operation.status for one, operation in operations_of(exchanges, "OPEN") if one.client == other]
    if OK not in asked:
        return _of(name, f"{other} could not open the file: {', '.join(map(str, asked))}", Outcome.FAIL, NFSD)
    if asked.index(OK) == 0:
        return _of(name, f"{other} opened the file at once, while {holder} held its delegation", Outcome.FAIL, NFSD)
    return _of(name, f"{other} opened the file after {asked.index(OK)} times NFS4ERR_DELAY", Outcome.PASS)
