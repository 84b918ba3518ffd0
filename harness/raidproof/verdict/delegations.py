"""The verdict on delegations in captured NFSv4 traffic: what no client gets while another one holds a delegation.

A client certainly holds a delegation from the reply that grants it until it calls DELEGRETURN. While one client holds
a write delegation, no other client may open the file; while it holds a read delegation, no other client may open the
file for writing (RFC 8881, 10.4). A server may revoke a delegation, but only of a client that did not renew its lease,
or that did not answer the recall for the time of a lease. A restart of the server ends no delegation: the server must
wait in its grace period until the holder has reclaimed it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from raidproof.core.blame import Blame, Culprit
from raidproof.monitor.capture import OK, Exchange, Operation
from raidproof.record.outcome import Outcome, Verdict

NAME = "delegation"
"""Name of the check that no client opens a file while another client holds a conflicting delegation."""
KINDS = {"1": "read", "2": "write", "4": "read", "5": "write"}
"""The kinds of delegations by ``nfs.open.delegation_type`` (open_delegation_type4; 4 and 5: RFC 9754, Linux 7.2)."""
FORGOTTEN = frozenset({"NFS4ERR_BADSESSION", "NFS4ERR_STALE_CLIENTID"})
"""Errors in the reply to a client whose state the server does not have, after a restart or the end of its lease."""
PREVIOUS = "1"
"""``nfs.open.claim_type`` of an OPEN that reclaims a file after a restart of the server (CLAIM_PREVIOUS)."""
BY_HANDLE = frozenset({PREVIOUS, "4", "5", "6"})
"""The claim types whose file is the current file handle; with the others, it is the directory of the file."""
STATE = "nfs.stateid.other_hash"
"""tshark's hash of the part of a stateid that stays the same while a file is open."""
USING = frozenset({"CLOSE", "READ", "WRITE", "SETATTR", "LOCK"})
"""Calls with the stateid of an open."""
WRITING = 2
"""The bit of writing in ``share_access`` of an OPEN (OPEN4_SHARE_ACCESS_WRITE)."""
EARLIER = 0.9
"""The part of the server's patience that must have passed on the clock of the capture: two clocks may differ."""


class Opened(NamedTuple):
    """An OPEN that succeeded."""

    client: str
    handle: str
    """tshark's hash of the file handle; empty if the compound did not request it."""
    called_s: float
    at_s: float
    """Time of the reply."""
    writing: bool
    reclaim: bool
    granted: str | None
    """The kind of the granted delegation."""


Target = tuple[str, str, str]
"""Client, handle and name in an OPEN; the name is empty if the handle is that of the file."""


def target_of(client: str, opening: Operation) -> Target:
    """Return what a client opens."""
    return client, opening.handle, opening.asked.get("nfs.pathname.component", "")


@dataclass
class Held:
    """A delegation that a client holds."""

    client: str
    handle: str
    kind: str
    since_s: float
    """Time of the reply that granted it, in seconds since the beginning of the capture."""
    forgotten: bool = False
    """Whether the client has learned that the server restarted, and has not reclaimed the delegation yet."""


class Delegations:
    """Follows the delegations of all clients in the order of the packets, and collects what must not happen."""

    def __init__(self, patience_s: float) -> None:
        self.wrong: list[str] = []
        """Descriptions of conflicting opens that the server granted."""
        self.counted: Counter[str] = Counter()
        """Number of delegations that were granted, recalled, reclaimed, ..."""
        self._patience_s = EARLIER * patience_s
        self._held: list[Held] = []
        self._returned: list[Held] = []
        self._heard_s: dict[str, float] = {}
        self._delayed_s: dict[Target, float] = {}

    def called(self, exchange: Exchange, operation: Operation) -> None:
        """Note what a client's call ends; the server cannot have carried it out before."""
        client = exchange.client
        if operation.name == "DELEGRETURN":
            self._end(client, operation.handle, returned=True)
        elif operation.name == "RECLAIM_COMPLETE":
            self._end_forgotten(client)
        elif operation.name == "EXCHANGE_ID" and not any(one.forgotten for one in self._of(client)):
            # The client has started again; its earlier state ends without a return.
            self._held = [one for one in self._held if one.client != client]

    def answered(self, exchange: Exchange, operation: Operation, opened: Opened | None) -> None:
        """Note the server's reply to an operation; ``opened``: of an OPEN that succeeded."""
        client, at_s = exchange.client, exchange.answered_s or 0.0
        if operation.status in FORGOTTEN:
            for one in self._of(client):
                one.forgotten = True
        elif operation.name == "OPEN" and operation.status == "NFS4ERR_DELAY":
            self._delayed_s.setdefault(target_of(client, operation), at_s)
        elif operation.name == "OPEN" and operation.asked.get("nfs.open.claim_type") == PREVIOUS and opened is None:
            self._end(client, operation.handle, counted="with a refused reclaim")
        if opened is not None and opened.handle:
            self._judge(opened, self._delayed_s.pop(target_of(client, operation), at_s))
            self._grant(opened)

    def replied(self, exchange: Exchange) -> None:
        """Note that the server has replied to a client, which thus renewed its lease."""
        self._heard_s[exchange.client] = max(exchange.answered_s or 0.0, self._heard_s.get(exchange.client, 0.0))

    def _judge(self, opened: Opened, tried_s: float) -> None:
        """Judge an OPEN that got its first reply, which may have been NFS4ERR_DELAY, at ``tried_s``."""
        for one in [one for one in self._held if self._conflicts(one, opened)]:
            heard_s = self._heard_s.get(one.client, one.since_s)
            if opened.at_s - min(heard_s, max(tried_s, one.since_s)) >= self._patience_s:
                self.counted["revoked"] += 1
                self._held.remove(one)
                continue
            self.wrong.append(
                f"{opened.client} opened the file with handle {opened.handle} "
                f"{'for writing ' if opened.writing else ''}at {opened.at_s:.3f} s, while {one.client} held a "
                f"{one.kind} delegation of it, granted at {one.since_s:.3f} s and not returned"
            )
        for one in [one for one in self._returned if self._conflicts(one, opened)]:
            self.counted["recalled"] += one.since_s < tried_s < opened.at_s
            self._returned.remove(one)

    def _grant(self, opened: Opened) -> None:
        mine = [one for one in self._of(opened.client) if one.handle == opened.handle]
        if opened.reclaim and mine:
            self.counted["reclaimed" if opened.granted else "not reclaimed"] += 1
        elif opened.granted:
            self.counted[f"{opened.granted} delegations granted"] += 1
        if mine and (opened.reclaim or opened.granted):
            self._held = [one for one in self._held if one not in mine]
        if opened.granted:
            self._held.append(Held(opened.client, opened.handle, opened.granted, opened.at_s))

    def _conflicts(self, held: Held, opened: Opened) -> bool:
        """Return whether an OPEN of another client, called after the grant, is against a delegation."""
        return (
            held.client != opened.client
            and held.handle == opened.handle
            and held.since_s < opened.called_s
            and (held.kind == "write" or opened.writing)
        )

    def _of(self, client: str) -> list[Held]:
        return [one for one in self._held if one.client == client]

    def _end(self, client: str, handle: str, *, returned: bool = False, counted: str = "") -> None:
        ended = [one for one in self._of(client) if one.handle == handle]
        self._held = [one for one in self._held if one not in ended]
        self._returned += ended if returned else []
        if counted:
            self.counted[counted] += len(ended)

    def _end_forgotten(self, client: str) -> None:
        for one in self._of(client):
            if one.forgotten:
                self._end(client, one.handle, counted="not reclaimed")


def files_by_state(exchanges: Sequence[Exchange]) -> dict[tuple[str, str], str]:
    """Return the handle of the file of each open by client and stateid, from the calls that use the stateid.

    tshark prints nothing of a reply after an OPEN without a delegation for a stated reason (Linux 7.2), so that the
    file handle in this reply is not known. At the latest, a CLOSE uses the stateid.
    """
    return {
        (one.client, operation.asked[STATE]): operation.handle
        for one in exchanges
        for operation in one.operations
        if operation.name in USING and operation.handle and STATE in operation.asked
    }


def opened_by(exchange: Exchange, files: Mapping[tuple[str, str], str]) -> Opened | None:
    """Return the OPEN of an exchange if it succeeded; None if there is none.

    ``files``: the handles by client and stateid, as `files_by_state` returns them.
    """
    if exchange.answered_s is None:
        return None
    for place, one in enumerate(exchange.operations):
        if one.name == "OPEN" and one.status == OK:
            claim = one.asked.get("nfs.open.claim_type", "")
            got = (each.told.get("nfs.fh.hash", "") for each in exchange.operations[place:] if each.name == "GETFH")
            of_state = files.get((exchange.client, one.told.get(STATE, "")), "")
            handle = one.handle if claim in BY_HANDLE else next(got, "") or of_state
            access = int(one.asked.get("nfs.open4.share_access", "0"), 0)
            granted = KINDS.get(one.told.get("nfs.open.delegation_type", ""))
            called_s, at_s = exchange.called_s, exchange.answered_s
            return Opened(exchange.client, handle, called_s, at_s, bool(access & WRITING), claim == PREVIOUS, granted)
    return None


def followed(exchanges: Sequence[Exchange], patience_s: float) -> Delegations:
    """Return what happened to the delegations in captured traffic.

    ``patience_s``: the shorter of lease time and grace period of the server, in seconds.
    """
    found, files = Delegations(patience_s), files_by_state(exchanges)
    calls = [(one.called_s, 0, one) for one in exchanges]
    replies = [(one.answered_s, 1, one) for one in exchanges if one.answered_s is not None]
    for _, reply, exchange in sorted([*calls, *replies], key=lambda event: event[:2]):
        opened = opened_by(exchange, files) if reply else None
        for operation in exchange.operations:
            if reply:
                found.answered(exchange, operation, opened if operation.name == "OPEN" else None)
            else:
                found.called(exchange, operation)
        if reply:
            found.replied(exchange)
    return found


def judge_delegations(exchanges: Sequence[Exchange], patience_s: float) -> Verdict:
    """Judge that no client opened a file while another client held a conflicting delegation.

    The check is INCONCLUSIVE if no such client tried: then a server that recalls nothing would show the same packets.
    ``patience_s``: the shorter of lease time and grace period of the server, in seconds.
    """
    found = followed(exchanges, patience_s)
    if found.wrong:
        more = f", and {len(found.wrong) - 1} more" if len(found.wrong) > 1 else ""
        blame = Blame(culprit=Culprit.NFSD)
        return Verdict(checker=NAME, outcome=Outcome.FAIL, reason=f"{found.wrong[0]}{more}", blame=blame)
    counts = ", ".join(f"{name}: {count}" for name, count in sorted(found.counted.items()) if count)
    if not any("granted" in name for name in found.counted) and not found.counted["reclaimed"]:
        return Verdict(checker=NAME, outcome=Outcome.INCONCLUSIVE, reason="the server granted no delegation")
    if not found.counted["recalled"] + found.counted["revoked"]:
        reason = f"no client opened a file of which another client held a conflicting delegation; {counts}"
        return Verdict(checker=NAME, outcome=Outcome.INCONCLUSIVE, reason=reason)
    return Verdict(checker=NAME, outcome=Outcome.PASS, reason=counts)
