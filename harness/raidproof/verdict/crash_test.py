"""Verdicts on a crash test and on a run, from their recorded observations: right after the run or from its files."""

import json
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from raidproof.core.blame import Blame, Culprit
from raidproof.core.errors import RequestError, RigError
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.guest.ledger_format import BLOCK
from raidproof.monitor.capture import read_exchanges
from raidproof.record.outcome import Outcome, Verdict, and_errors, worst, worst_of
from raidproof.record.run import BIN_MS, CrashTestRecord, RunRecord, Timeline
from raidproof.storage.array.level import level_names
from raidproof.storage.filesystem import FILESYSTEMS, AnyFilesystem, FilesystemSpec
from raidproof.storage.server import AnyServer, ServerSpec
from raidproof.verdict.blame import LOGGED, SYNCED, corrupted_by, judge_flushes, of_lies
from raidproof.verdict.block_life import lives_of
from raidproof.verdict.cell import conclude_plan, judge_cells
from raidproof.verdict.completeness import judge_ends, judge_observations, judge_work, silent_clients, undated
from raidproof.verdict.contract import (
    Conditions,
    judge_age,
    judge_application_checks,
    judge_application_data,
    judge_application_runs,
    judge_blocks,
    judge_errors,
    judge_export,
    judge_nothing_invented,
    judge_promises,
)
from raidproof.verdict.controls import conclude_control, conclude_control_not_recovered
from raidproof.verdict.crash_states import RECOVERY, outcome_of
from raidproof.verdict.kernel_log import FILE_GONE, KERNEL, blocked, judge_kernel_logs, judge_wrecks
from raidproof.verdict.known import apply_known
from raidproof.verdict.ledger import balance_of, scan_of
from raidproof.verdict.locks import judge_locks
from raidproof.verdict.members import fault_of, judge_array, judge_filesystem, judge_members
from raidproof.verdict.read_back import judge_read_back
from raidproof.verdict.removed import judge_removed
from raidproof.verdict.second_reader import judge_second_reader
from raidproof.verdict.sizes import judge_sizes
from raidproof.verdict.suite import judge_suite_record
from raidproof.verdict.wire import judge_calls, judge_restart
from raidproof.workload.history import History, WorkerSpec, read_replies

SESSIONS = ("4.1", "4.2")
"""NFS versions with sessions (RFC 8881)."""
LEASE_S = 90.0
"""Default lease time of nfsd, in seconds."""
_SERVER: TypeAdapter[ServerSpec] = TypeAdapter(AnyServer)
_FILESYSTEM: TypeAdapter[FilesystemSpec] = TypeAdapter(AnyFilesystem)


def judge_run(record: RunRecord, directory: Path) -> None:
    """Judge every crash test and suite of a run from its record and files, then the run from their outcomes.

    ``directory``: the run's directory.
    """
    for cycle in record.cycles:
        judge_crash_test(cycle, directory)
    for suite in record.suites:
        judge_suite_record(suite)
    conclude_stored(record)


def conclude_stored(record: RunRecord) -> None:
    """Fill in the outcome and the reason of a stored run, which may have ended early."""
    conclude_run(record)
    if record.ended is None or record.ended_early is not None:
        conclude_early(record, record.ended_early or "the harness was killed before it stored the end of the run")


def conclude_run(record: RunRecord) -> None:
    """Fill in the outcome and the reason of a run: from its cells if it ran a plan, else from its crash tests."""
    judge_cells(record)
    apply_known(record)
    record.outcome, record.reason = conclude_plan(record) if record.plan else conclude(record)


def conclude_early(record: RunRecord, why: str) -> None:
    """Mark a run as ended early. Its outcome becomes ERROR, unless it is FAIL or INVALID, which outweigh ERROR."""
    early, outcome = f"ended early: {why}", worst([record.outcome, Outcome.ERROR])
    record.reason = early if outcome is Outcome.ERROR else f"{record.reason}; {early}"
    record.outcome = outcome


def history_of(cycle: CrashTestRecord, run: Path) -> History:
    """Return the history of a stored crash test, with the instants of the server's replies if they were captured.

    ``run``: the run's directory.

    Raises:
        RigError: a file is malformed, or the crash test ended before the clients began their work.
    """
    if cycle.files.history is None:
        raise RigError(f"{cycle.name}: no history of operations: the crash test ended before the clients began")
    history = History.read(run / cycle.files.history)
    return history if cycle.files.replies is None else history.with_replies(read_replies(run / cycle.files.replies))


def judge_crash_test(cycle: CrashTestRecord, directory: Path) -> None:
    """Fill in verdicts, outcome and reason of one crash test from its record and files in the run's ``directory``."""
    if cycle.rig_error is not None:
        judge_broken_off(cycle, directory, cycle.rig_error)
        return
    if cycle.requirement_missing is not None:
        cycle.outcome, cycle.reason = Outcome.SKIP, cycle.requirement_missing
        return
    if cycle.not_effective is not None:
        cycle.outcome, cycle.reason = Outcome.FAIL, cycle.not_effective
        return
    conditions = conditions_of(cycle)
    causes = judge_causes(cycle, directory, conditions)
    found = [one for one in causes if one.outcome is Outcome.FAIL]
    if found and conditions.corrupted_by is None:
        conditions = replace(conditions, corrupted_by=cause_in(found[0]))
    if cycle.not_recovered is not None:
        if cycle.files.history is not None:
            conditions = of_lies(cycle, history_of(cycle, directory), directory, conditions)
        judge_not_recovered(cycle, cycle.not_recovered, conditions, wreck_of(cycle, directory))
        cycle.verdicts += found
        return
    history = history_of(cycle, directory)
    conditions = of_lies(cycle, history, directory, conditions)
    cycle.verdicts = judge_what_is_left(cycle, history, directory, conditions)
    workers = [WorkerSpec.model_validate(worker) for worker in cycle.workers]
    cycle.verdicts += judge_application_runs(workers, history, conditions, cycle.fault_at_ns)
    cycle.verdicts.append(judge_errors(history, conditions, cycle.fault_at_ns, cycle.served_until_ns))
    cycle.verdicts += judge_locks(workers, history.steps, cycle.fault_at_ns)
    cycle.verdicts += judge_removed(history.steps, conditions, cycle.fault_at_ns)
    cycle.verdicts += judge_ends(workers, history, conditions, cycle.lost_power)
    cycle.verdicts += judge_observations(cycle, directory)
    cycle.verdicts.append(judge_filesystem(cycle.observed.filesystem, conditions))
    cycle.verdicts.append(judge_array(cycle.observed.array, conditions, mirrors_of(cycle)))
    cycle.verdicts += causes
    logs = [
        (f"console {name}", (directory / path).read_text(errors="replace"))
        for name, path in cycle.files.consoles.items()
    ]
    waited = lines_of_waiting(cycle, directory)
    corrupted_by = conditions.blame if conditions.broken_drives else KERNEL
    messages = kernel_messages(cycle)
    if conditions.excused or conditions.broken_drives:
        messages.append(FILE_GONE)
    seen = cycle.observed.kernels
    cycle.verdicts.append(
        judge_kernel_logs(logs, seen=seen, asked_for=messages, waited=waited, corrupted_by=corrupted_by)
    )
    if cycle.files.wire is not None:
        exchanges = read_exchanges((directory / cycle.files.wire).read_text())
        cycle.verdicts += judge_restart(exchanges, restarted=cycle.effects.nfsd_restarted)
    measure_rates(cycle, history)
    cycle.timeline = timeline(history, cycle)
    measure_first_io(cycle)
    if cycle.on_server is not None and cycle.fault_at_ns is not None:
        first = cycle.on_server.first_lost_ns
        cycle.loss_window_s = 0.0 if first is None else (cycle.fault_at_ns - first) / 1e9
    cycle.outcome, cycle.reason = conclude_cycle(cycle, conditions)


def judge_what_is_left(
    cycle: CrashTestRecord, history: History, directory: Path, conditions: Conditions
) -> list[Verdict]:
    """Return the verdicts from the comparison of the ledger's history with the scans on the server and on a client."""
    workers = [WorkerSpec.model_validate(worker) for worker in cycle.workers]
    verdicts = []
    # The client's scan is later than the server's: it also shows the operations acknowledged after the fault.
    for place, before_ns, until_ns in (("on_server", cycle.fault_at_ns, cycle.seen_ns), ("on_client", None, None)):
        path = cycle.files.on_server if place == "on_server" else cycle.files.on_client
        if path is None:
            continue
        found = scan_of(cycle, directory / path)
        balance = balance_of(
            workers,
            history,
            found,
            before_ns=before_ns,
            seen_ns=until_ns,
            resumed_ns=cycle.resumed_ns,
            restarted_ns=cycle.resumed_ns if cycle.effects.nfsd_restarted else None,
            torn=conditions.torn,
            disconnected_clients={*cycle.lost_power, *silent_clients(workers, history)},
            indeterminate_errnos=conditions.allowed_errors | conditions.allowed_by_fault,
            shows_old_data=conditions.shows_old_data,
        )
        evidence = balance.evidence()
        setattr(cycle, place, evidence)
        if place == "on_server" and cycle.fault_at_ns is not None:
            log = None if cycle.files.write_log is None else directory / cycle.files.write_log
            cycle.lives = lives_of(balance.losses, log, cycle.fault_at_ns)
        if place == "on_server" and (calls := cycle.observed.calls) is not None:
            stable = _SERVER.validate_python(cycle.asked["export"]).stable_writes
            verdicts += judge_calls(evidence.acknowledged, calls, cycle.asked["mount"], stable_writes=stable)
        where = place.replace("_", " the ", 1)
        verdicts += judge_promises(evidence, conditions, where)
        if place == "on_server":
            verdicts += judge_work(workers, balance.parts, where)
            wsizes = [mount["wsize"] for mount in cycle.effective.get("mounts", {}).values()]
            verdicts += judge_sizes(workers, history.acknowledged(before_ns), cycle.observed.replies, wsizes)
        verdicts += judge_application_data(evidence, conditions, where)
        verdicts += judge_application_checks(evidence, where)
        verdicts += judge_age(evidence, conditions, cycle.fault_at_ns, where)
        verdicts.append(judge_blocks(evidence, conditions, where))
        verdicts.append(judge_nothing_invented(evidence, conditions, where))
        if place == "on_client" and (counted := cycle.observed.read_back) is not None:
            verdicts.append(judge_read_back(counted, found, {one.key: one for one in workers}))
    verdicts += judge_readers(cycle, directory)
    return verdicts


def judge_readers(cycle: CrashTestRecord, directory: Path) -> list[Verdict]:
    """Return the verdict from the comparison of the kernel's client with libnfs; none if libnfs did not read."""
    files = cycle.files
    if files.by_libnfs is None or files.on_client is None:
        return []
    kernel, libnfs = (json.loads((directory / path).read_text()) for path in (files.on_client, files.by_libnfs))
    again = None if files.on_server_again is None else json.loads((directory / files.on_server_again).read_text())
    return [judge_second_reader(kernel, libnfs, again)]


def judge_causes(cycle: CrashTestRecord, directory: Path, conditions: Conditions) -> list[Verdict]:
    """Return verdicts on the possible causes of a loss (members, export, flushes), as far as they were observed."""
    verdicts = []
    if (members := cycle.observed.members) is not None:
        verdicts.append(judge_members(members, conditions))
    asked = _SERVER.validate_python(cycle.asked["export"])
    if (applied := cycle.observed.export) is not None:
        verdicts.append(judge_export(asked.options(), applied, cycle.effective["export"]["path"]))
    flushed = asked.sync and cycle.asked["array"].get("consistency_policy") not in LOGGED
    disks = cycle.observed.disks
    if disks is not None and flushed and not cycle.cache_mode.startswith(CacheMode.NONE.value):
        workers = [WorkerSpec.model_validate(worker) for worker in cycle.workers]
        # The file system may make changes of names durable without a flush of every member.
        if any(SYNCED & {*worker.kinds} - {"append"} for worker in workers):
            history = history_of(cycle, directory)
            synced = sum(one.kind in SYNCED for one in history.acknowledged(cycle.fault_begun_ns))
            verdicts.append(judge_flushes(disks, cycle.disks, synced))
    return verdicts


def cause_in(verdict: Verdict) -> Blame:
    """Return the blame for a loss from a failed verdict of `judge_causes`."""
    blame = verdict.blame or Blame(culprit=Culprit.STACK)
    return blame if blame.detail else blame.model_copy(update={"detail": f"{verdict.checker}: {verdict.reason}"})


def judge_broken_off(cycle: CrashTestRecord, directory: Path, error: str) -> None:
    """Judge a crash test in which the rig failed (``error``): ERROR, or FAIL if the files show a broken promise.

    The outcome is also FAIL if the server's kernel failed, because this failure caused the rig's error.
    """
    cycle.outcome, cycle.reason = Outcome.ERROR, error
    if (wreck := wreck_of(cycle, directory)) is not None:
        cycle.verdicts, cycle.outcome = [wreck], Outcome.FAIL
        cycle.reason = f"{wreck.checker}: {wreck.reason}; then the rig failed: {error}"
        return
    observed = [directory / path for path in (cycle.files.history, cycle.files.on_server) if path is not None]
    if cycle.control is not None or len(observed) < 2 or not all(path.is_file() for path in observed):
        return
    history = history_of(cycle, directory)
    conditions = conditions_of(cycle)
    conditions = of_lies(cycle, history, directory, conditions)
    causes = judge_causes(cycle, directory, conditions)
    cycle.verdicts = [*causes, *judge_what_is_left(cycle, history, directory, conditions)]
    if broken := [verdict for verdict in cycle.verdicts if verdict.outcome is Outcome.FAIL]:
        cycle.outcome = Outcome.FAIL
        cycle.reason = f"{broken[0].checker}: {broken[0].reason}; then the rig failed: {error}"


def wreck_of(cycle: CrashTestRecord, directory: Path) -> Verdict | None:
    """Return the FAIL verdict if the server's console shows that its kernel failed; else None."""
    path = directory / cycle.files.consoles.get("server", "no console")
    if not path.is_file():
        return None
    return judge_wrecks(path.read_text(errors="replace"), asked_for=kernel_messages(cycle))


def kernel_messages(cycle: CrashTestRecord) -> list[str]:
    """Return the regular expressions of the kernel messages that the faults of a crash test cause."""
    return [pattern for effects in cycle.all_effects for pattern in effects.kernel_messages]


def lines_of_waiting(cycle: CrashTestRecord, directory: Path) -> frozenset[str]:
    """Return the kernel messages of the clients about tasks that were blocked while the server was unavailable."""
    if not cycle.effects.server_away:
        return frozenset()
    logs = ((directory / path).read_text(errors="replace") for path in cycle.files.away.values())
    return frozenset().union(*map(blocked, logs))


def judge_not_recovered(
    cycle: CrashTestRecord, what: str, conditions: Conditions, wreck: Verdict | None = None
) -> None:
    """Judge a crash test whose array or file system did not recover after the fault, which no export option excuses.

    ``what``: what failed. ``wreck``: the verdict on a failed server kernel; its blame takes precedence, because no
    defect of a disk may make a kernel fail.
    """
    blame = fault_of(conditions) if wreck is None or wreck.blame is None else wreck.blame
    cycle.verdicts = [Verdict(checker=RECOVERY, outcome=Outcome.FAIL, reason=what, blame=blame)]
    if wreck is not None:
        cycle.verdicts.append(wreck)
        what = f"{what}; {wreck.checker}: {wreck.reason}"
    if cycle.control is not None:
        cycle.outcome, cycle.reason = conclude_control_not_recovered(cycle.control, what, blame)
    else:
        cycle.outcome, cycle.reason = Outcome.FAIL, f"{what}; blamed on {blame}"


def measure_rates(cycle: CrashTestRecord, history: History) -> None:
    """Fill in the clients' operation rates from the ledger's begin to the fault or the last acknowledgement."""
    begun, fault_ns = cycle.ledger_begun_ns, cycle.fault_begun_ns or cycle.fault_at_ns
    ended = [(one.kind, one.ended_ns) for one in history.acknowledged(fault_ns) if one.ended_ns is not None]
    stamps = [(kind, stamp) for kind, stamp in ended if begun is not None and stamp >= begun]
    if begun is None or not stamps:
        return
    cycle.ledger_seconds = seconds = ((fault_ns or max(stamp for _, stamp in stamps)) - begun) / 1e9
    fsyncs = sum(kind == "fsync" for kind, _ in stamps)
    by_second = [0.0] * int(seconds)
    for kind, stamp in stamps:
        if kind == "fsync" and (second := (stamp - begun) // 1_000_000_000) < len(by_second):
            by_second[second] += 1
    rates = {
        "fsyncs_per_s": fsyncs / seconds,
        "fsyncs_each_second": by_second,
        "acknowledged_per_s": len(stamps) / seconds,
    }
    cycle.throughput = cycle.throughput.model_copy(update=rates)


def measure_first_io(cycle: CrashTestRecord) -> None:
    """Fill in the time from the resumed service to the first acknowledgement.

    The time is None after the power cut of a client, during which the other clients are served without a pause.
    """
    if cycle.resumed_ns is None or cycle.fault_at_ns is None:
        return
    again = cycle.timeline.served_again_s if cycle.timeline else None
    first = None
    if again is not None and not cycle.lost_power:
        first = again - (cycle.resumed_ns - cycle.fault_at_ns) / 1e9
    cycle.recovery = cycle.recovery.model_copy(update={"first_io_s": first})


def conditions_of(cycle: CrashTestRecord) -> Conditions:
    """Return the `Conditions` of a crash test: its options and the effects of its faults."""
    filesystem = filesystem_of(cycle)
    lying = tuple(serial for serial, counters in cycle.disks.items() if counters.get("broken_promises", 0))
    # An export has no effect on an application that uses the server's file system directly.
    return Conditions(
        export_sync=cycle.on_server_itself or bool(cycle.asked["export"]["sync"]),
        memory_lost=cycle.effects.server_memory_lost,
        torn=cycle.effects.caches is CutPolicy.TORN or tears_writes(cycle),
        shows_old_data=filesystem is None or filesystem.shows_old_data,
        delegations=delegations(cycle),
        lying_disks=lying,
        explanation=next((one.explanation for one in cycle.all_effects if one.explanation is not None), None),
        corrupted_by=corrupted_by(cycle.disks),
        allowed_errors=frozenset().union(*(one.effects.errors for one in cycle.during)),
        allowed_by_fault=cycle.effects.errors,
        fault_begun_ns=cycle.fault_begun_ns,
        served_ns=cycle.resumed_ns if cycle.effects.server_away else None,
        exactly_once=exactly_once(cycle),
        write_back_s=longest_s(cycle),
        lease_lost=any(one.lease_lost for one in cycle.all_effects),
        unreadable_blocks=any(one.unreadable_blocks for one in cycle.all_effects),
        content_changed=any(one.content_changed for one in cycle.all_effects),
        fsync_caveat="" if filesystem is None else filesystem.fsync_caveat,
        names_caveat="" if filesystem is None else filesystem.names_caveat,
    )


def delegations(cycle: CrashTestRecord) -> bool:
    """Return whether the server may have granted delegations, which NFSv3 does not have."""
    mounts = cycle.effective.get("mounts", {}).values() or [cycle.asked.get("mount", {})]
    possible = any(not str(mount.get("vers", "")).startswith("3") for mount in mounts)
    return possible and bool(cycle.asked["export"].get("delegations", True))


def filesystem_of(cycle: CrashTestRecord) -> FilesystemSpec | None:
    """Return the requested file system; None if another version of the harness stored the record."""
    try:
        return _FILESYSTEM.validate_python(cycle.asked.get("filesystem"))
    except (ValidationError, RequestError):
        return None


def tears_writes(cycle: CrashTestRecord) -> bool:
    """Return whether the file system may leave a part of a write that the cut interrupted.

    Blocks of a file system that are smaller than the ledger's are written by several requests, or lie in several pages
    of a RAID: a cut between them leaves a part of the new content, and a part of the old one.
    """
    asked = cycle.asked.get("filesystem", {})
    kinds, name = dict(FILESYSTEMS.items()), asked.get("type")
    small = isinstance(size := asked.get("block_size"), int) and size < BLOCK
    return small or (name in kinds and kinds[name].tears_writes)


def exactly_once(cycle: CrashTestRecord) -> bool:
    """Return whether the server of a crash test had to recognize every retransmitted request.

    The reply cache of an NFS session recognizes retransmissions (RFC 8881, 2.10.6.1), until the server restarts or
    the client's lease expires.
    """
    mounts = list(cycle.effective.get("mounts", {}).values())
    if cycle.effects.nfsd_restarted or not mounts or any(mount["vers"] not in SESSIONS for mount in mounts):
        return False
    begun_ns, resumed_ns = cycle.fault_begun_ns, cycle.resumed_ns
    lease_s = min(mount.get("lease_s") or LEASE_S for mount in mounts)
    return begun_ns is None or resumed_ns is None or (resumed_ns - begun_ns) / 1e9 < lease_s


def mirrors_of(cycle: CrashTestRecord) -> list[str]:
    """Return the md devices of a crash test that hold copies and no parity (RAID1, RAID10), without checksums."""
    devices = cycle.effective.get("array", {}).get("devices", ())
    copied = level_names(lambda kind: kind.redundant and not kind.parity)
    return [one["device"] for one in devices if one["level"] in copied and not one.get("checksummed")]


def longest_s(cycle: CrashTestRecord) -> float | None:
    """Return the longest time in seconds that unsynced data may stay in the server's memory; None if not known."""
    found = cycle.observed.write_back
    return None if found is None else found.longest_s


def conclude_cycle(cycle: CrashTestRecord, conditions: Conditions) -> tuple[Outcome, str]:
    """Return the outcome of a crash test and the reason; see `verdict.controls` for a control."""
    evidence = cycle.on_server
    if evidence is None:
        return Outcome.INCONCLUSIVE, "the ledger was not read on the server after the fault"
    bad = [verdict for verdict in cycle.verdicts if verdict.outcome is not Outcome.PASS]
    acknowledged, lost = evidence.acknowledged_total, evidence.lost_total
    if cycle.control is not None:
        return conclude_control(cycle.control, lost, acknowledged, conditions.blame, conditions.beyond_lies, bad)
    if bad:
        return worst_of(bad)
    if lost:
        return (
            Outcome.PASS,
            f"measured loss: {lost:,} of {acknowledged:,} acknowledged operations; {conditions.blame}",
        )
    if not conditions.export_sync:
        return (
            Outcome.INCONCLUSIVE,
            f"the export is async, but all {acknowledged:,} acknowledged operations survived this fault",
        )
    return Outcome.PASS, f"all {acknowledged:,} acknowledged operations survived{undated(cycle)}"


def conclude(record: RunRecord) -> tuple[Outcome, str]:
    """Return the outcome and the reason of a run: those of its worst crash test or suite."""
    cycles = record.cycles
    if not cycles and not record.suites:
        return Outcome.INCONCLUSIVE, "no crash test and no suite ran"
    parts = [(cycle.title, *outcome_of(cycle)) for cycle in cycles]
    parts += [(suite.title, suite.outcome, suite.reason) for suite in record.suites]
    outcome = worst(of_part for _, of_part, _ in parts)
    if outcome is Outcome.PASS:
        controls = ", and the controls behaved" if any(cycle.control for cycle in cycles) else ""
        return outcome, f"every promise that holds by design was kept{controls}"
    culprit = next(f"{title}: {reason}" for title, of_part, reason in parts if of_part is outcome)
    errors = (f"{title}: {reason}" for title, of_part, reason in parts if of_part is Outcome.ERROR)
    return outcome, f"{culprit}{and_errors(outcome, errors)}"


def timeline(history: History, cycle: CrashTestRecord) -> Timeline | None:
    """Return the acknowledgements before and after the fault, counted in bins of `BIN_MS`; None without a fault."""
    fault_at_ns, evidence = cycle.fault_at_ns, cycle.on_server
    stamps = sorted(one.ended_ns for one in history.acknowledged() if one.ended_ns is not None)
    if not stamps or fault_at_ns is None:
        return None
    bin_ns = BIN_MS * 1_000_000
    first = (stamps[0] - fault_at_ns) // bin_ns
    last = (stamps[-1] - fault_at_ns) // bin_ns
    counts = [0] * (last - first + 1)
    for stamp in stamps:
        counts[(stamp - fault_at_ns) // bin_ns - first] += 1
    resumed_ns = cycle.resumed_ns or fault_at_ns
    after = next((stamp for stamp in stamps if stamp >= resumed_ns), None)
    lost = evidence.first_lost_ns if evidence else None
    return Timeline(
        begin_s=first * BIN_MS / 1000,
        acknowledged=counts,
        last_durable_s=None if lost is None else (lost - fault_at_ns) / 1e9,
        served_again_s=None if after is None else (after - fault_at_ns) / 1e9,
    )
