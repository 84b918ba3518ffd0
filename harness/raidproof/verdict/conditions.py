"""The conditions under which a loss breaks a promise, derived from the evidence of a crash test."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from raidproof.core.blame import Blame, Cause, Culprit
from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord
from raidproof.storage.mount import SESSIONS
from raidproof.verdict.balance import Loss
from raidproof.verdict.blame import Lost, corrupted_by, read_lies
from raidproof.verdict.evidence import ON_SERVER, CrashTestEvidence, Stage
from raidproof.verdict.window import Window, combined_by, first_ns, windows_of

LEASE_S = 90.0
"""Default lease time of nfsd, in seconds."""


@dataclass(frozen=True)
class Conditions:
    """The options and fault effects of one crash test, as far as they decide whether a loss breaks a promise."""

    export_sync: bool
    """Whether the export has the option ``sync`` (exports(5))."""
    memory_lost: bool = True
    """Whether the server lost its memory: only then does an async export excuse a loss."""
    torn: bool = False
    """Whether the cut may have torn requests that were not yet durable."""
    shows_old_data: bool = False
    """Whether the file system may show old content of the disk in a block that was never acknowledged."""
    delegations: bool = False
    """Whether the server may grant delegations: under a write delegation `close` need not flush to the server."""
    lying_disks: tuple[str, ...] = ()
    """Serials of the disks that acknowledged a flush without executing it, as counted by the disk engine."""
    beyond_lies: int = 0
    """Number of losses that no lie of a disk explains, although lies explain others; 0 if lies explain all or none."""
    windows: tuple[Window, ...] = ()
    """When each fault was in effect: then clients may get the errors that the fault declares."""
    exactly_once: bool = False
    """Whether the protocol guarantees that a retransmitted request is not executed again (RFC 8881, 2.10.6)."""
    write_back_s: float | None = None
    """Greatest age, in seconds, of dirty data in the server's memory; None: not known, or without limit."""
    local_locks: bool = False
    """Whether the options of the mounts permit that clients get locks that other clients hold."""
    unreadable_blocks: bool = False
    """Whether the fault made sectors unreadable, so that md must list bad blocks."""
    content_changed: bool = False
    """Whether the fault changed a member's content, so that a scrub must find and repair inconsistent stripes."""

    explanation: Blame | None = None
    """The blame for a loss that the injected fault explains; None if it explains no loss."""
    fsync_caveat: str = ""
    """The setting with which the file system does not keep acknowledged fsyncs: it explains a loss, no more."""
    names_caveat: str = ""
    """The setting with which the file system may lose acknowledged changes of names and attributes, and no data."""
    corrupted_by: Blame | None = None
    """The blame on drives that misdirected or dropped writes: it explains a loss, but does not excuse the loss."""

    @property
    def allowed_errors(self) -> frozenset[int]:
        """The errors (errno) that clients may get at some time."""
        return frozenset[int]().union(*(one.effects.errors for one in self.windows))

    @property
    def losing_ns(self) -> int | None:
        """The instant at which the first fault began that lost the server's memory; None if it is not known."""
        return first_ns(self.windows, "server_memory_lost")

    @property
    def excused(self) -> bool:
        """Whether the options permit a loss: the export is async, the server lost its memory, and no disk lied."""
        return not self.export_sync and self.memory_lost and not self.lying_disks

    @property
    def broken_drives(self) -> bool:
        """Whether lying disks, the fault or misdirected writes explain damage below the file system."""
        return bool(self.lying_disks or self.explanation or self.corrupted_by)

    @property
    def blame(self) -> Blame:
        """The part of the system to blame for a loss under these conditions."""
        if self.lying_disks:
            detail = f"{', '.join(self.lying_disks)} acknowledged flushes and did not make the data durable"
            return Blame(culprit=Culprit.DISKS, cause=Cause.LOST_FLUSHES, members=self.lying_disks, detail=detail)
        known = self.explanation or self.corrupted_by
        if known is not None:
            return known
        if self.excused:
            return Blame(culprit=Culprit.ASYNC_EXPORT, detail="the server replies before its disks have the data")
        if self.fsync_caveat:
            return Blame(culprit=Culprit.FILESYSTEM_SETTINGS, detail=self.fsync_caveat)
        return Blame(culprit=Culprit.STACK, detail="no option and no injected fault explains the failure")


def conditions_of(evidence: CrashTestEvidence) -> Conditions:
    """Return the conditions that the options and the effects of the faults of a crash test set.

    All disks with broken promises count as lying: `explained` compares their lies with the losses.
    """
    cycle, filesystem = evidence.record, evidence.filesystem
    windows = windows_of(cycle)
    together = combined_by(windows, None)
    counted = [item for one in cycle.injected for item in one.disks.items()]
    lying = tuple(dict.fromkeys(serial for serial, counters in counted if counters.get("broken_promises", 0)))
    # An export has no effect on an application that uses the server's file system directly.
    return Conditions(
        export_sync=cycle.on_server_itself or bool(cycle.asked["export"]["sync"]),
        memory_lost=together.server_memory_lost,
        torn=evidence.torn,
        shows_old_data=evidence.shows_old_data,
        delegations=delegations(cycle),
        lying_disks=lying,
        explanation=together.explanation,
        corrupted_by=corrupted_by(cycle.disks),
        windows=windows,
        exactly_once=exactly_once(cycle),
        write_back_s=longest_s(cycle),
        local_locks=evidence.mount.effects.local_locks,
        unreadable_blocks=together.unreadable_blocks,
        content_changed=together.content_changed,
        fsync_caveat="" if filesystem is None else filesystem.fsync_caveat,
        names_caveat="" if filesystem is None else filesystem.names_caveat,
    )


def explained(conditions: Conditions, causes: Iterable[Verdict], evidence: CrashTestEvidence) -> Conditions:
    """Return the conditions with the first failure of ``causes``, and with only those lies that explain the losses.

    ``causes``: the verdicts of the checks whose failures explain losses.
    """
    failed = next((one for one in causes if one.outcome is Outcome.FAIL), None)
    if failed is not None and conditions.corrupted_by is None:
        conditions = replace(conditions, corrupted_by=cause_in(failed))
    # Without a stored write log up to the last cut, lying disks are to blame for every loss.
    if not conditions.lying_disks or evidence.write_log is None or evidence.cut_again:
        return conditions
    losses = losses_of(evidence)
    # The write log does not contain which cached requests survived the cut, so all of them count as lost.
    return conditions if losses is None else blamed(conditions, losses, read_lies(evidence.write_log).lost())


def losses_of(evidence: CrashTestEvidence) -> Sequence[Loss] | None:
    """Return the operations that the fault lost on the server; None if it is not known."""
    if evidence.stage is Stage.UNREAD:
        return None
    what = evidence.record.not_recovered
    if evidence.stage is Stage.NOT_RECOVERED and what is not None:
        if evidence.record.files.history is None:
            return None
        by_number = {worker.number: worker for worker in evidence.workers}
        acknowledged = evidence.history.acknowledged(evidence.fault_at_ns)
        return [Loss(one, by_number[one.worker], what) for one in acknowledged]
    scan = evidence.scan_at(ON_SERVER)
    return None if scan is None else scan.balance.losses


def cause_in(verdict: Verdict) -> Blame:
    """Return the blame for a loss from a failed verdict on a possible cause."""
    blame = verdict.blame or Blame(culprit=Culprit.STACK)
    return blame if blame.detail else blame.model_copy(update={"detail": f"{verdict.checker}: {verdict.reason}"})


def blamed(conditions: Conditions, losses: Iterable[Loss], lost: Lost) -> Conditions:
    """Return the conditions of a crash test, with its lying disks only if their lies explain the losses.

    On an async export a single explained loss suffices to blame the disks, because the export excuses all other
    losses. On a sync export the lies must explain every loss: the stack is to blame for an unexplained loss.
    """
    lying = replace(conditions, lying_disks=lost.disks)
    honest = replace(conditions, lying_disks=())
    explained = [lost.explains(one.operation, one.worker) for one in losses]
    if not explained:
        return lying
    if all(explained) or (honest.excused and any(explained)):
        return lying
    return replace(honest, beyond_lies=explained.count(False) if any(explained) else 0)


def delegations(cycle: CrashTestRecord) -> bool:
    """Return whether the server may have granted delegations, which NFSv3 does not have."""
    mounts = cycle.effective.get("mounts", {}).values() or [cycle.asked.get("mount", {})]
    possible = any(not str(mount.get("vers", "")).startswith("3") for mount in mounts)
    return possible and bool(cycle.asked["export"].get("delegations", True))


def exactly_once(cycle: CrashTestRecord) -> bool:
    """Return whether the server of a crash test had to recognize every retransmitted request.

    The reply cache of an NFS session recognizes retransmissions (RFC 8881, 2.10.6.1), until the server restarts or
    the client's lease expires.
    """
    mounts = list(cycle.effective.get("mounts", {}).values())
    restarted = any(one.effects.nfsd_restarted for one in cycle.injected)
    if restarted or not mounts or any(mount["vers"] not in SESSIONS for mount in mounts):
        return False
    lease_s = min(mount.get("lease_s") or LEASE_S for mount in mounts)
    return all(
        one.begun_ns is None or one.resumed_ns is None or (one.resumed_ns - one.begun_ns) / 1e9 < lease_s
        for one in cycle.injected
    )


def longest_s(cycle: CrashTestRecord) -> float | None:
    """Return the longest time in seconds that unsynced data may stay in the server's memory; None if not known."""
    found = cycle.observed.write_back
    return None if found is None else found.longest_s


def fault_of(conditions: Conditions) -> Blame:
    """Return the blame for damage of the array or the file system, which no export option excuses."""
    return conditions.blame if conditions.broken_drives else Blame(culprit=Culprit.STACK)


def blame_with_application(conditions: Conditions) -> Blame:
    """Return the blame for a loss of an application: what the conditions blame, or the stack or the application."""
    if conditions.excused or conditions.broken_drives or conditions.fsync_caveat:
        return conditions.blame
    detail = "no option and no injected fault explains the failure; the application may acknowledge too early"
    return Blame(culprit=Culprit.APPLICATION, detail=detail)
