"""The measurements of a crash test that are computed from its evidence: rates, times, losses."""

from collections import Counter

from raidproof.record.run import BIN_MS, CrashTestRecord, Timeline
from raidproof.verdict.block_life import lives_of
from raidproof.verdict.evidence import ON_CLIENT, ON_SERVER, CrashTestEvidence
from raidproof.verdict.outage import outages_of
from raidproof.verdict.sensitivity import sensitivity_of
from raidproof.verdict.solo import solo_operations
from raidproof.workload.history import History


def measure_scans(evidence: CrashTestEvidence) -> None:
    """Fill in the results of the scans and the lives of lost blocks."""
    record = evidence.record
    others = {id(fault): fault for _, fault in evidence.other_scans}
    for scan in evidence.scans:
        if (fault := others.get(id(scan.fault))) is not None:
            fault.on_server = scan.result
        elif scan.place == ON_SERVER:
            record.on_server = scan.result
            if record.fault_at_ns is not None:
                losses = scan.balance.losses
                record.lives = lives_of(losses, evidence.write_log, record.fault_at_ns) if losses else []
        elif scan.place == ON_CLIENT:
            record.on_client = scan.result


def measure(evidence: CrashTestEvidence) -> None:
    """Fill in the measurements of a complete crash test, from the results of its scans."""
    record, history = evidence.record, evidence.history
    measure_rates(record, history)
    alone = Counter(one.kind for one in solo_operations(history, record.observed.solo))
    record.solo_operations = dict(sorted(alone.items()))
    record.timeline = timeline(history, record)
    measure_first_io(record)
    record.sensitivity = sensitivity_of(evidence) if record.control is None else []
    if record.on_server is not None and record.fault_at_ns is not None:
        first = record.on_server.first_lost_ns
        record.loss_window_s = 0.0 if first is None else (record.fault_at_ns - first) / 1e9
    solo = record.observed.solo
    paused = solo is not None and solo.struck
    record.outages = outages_of(history, evidence.workers, record.injected, paused=paused)


def measure_rates(cycle: CrashTestRecord, history: History) -> None:
    """Fill in the clients' operation rates from the ledger's begin to the fault or the last acknowledgement.

    The time of solo operations does not count: all workers but one pause then.
    """
    begun, fault_ns = cycle.ledger_begun_ns, cycle.fault_begun_ns or cycle.fault_at_ns
    ended = [(one.kind, one.ended_ns) for one in history.acknowledged(fault_ns) if one.ended_ns is not None]
    stamps = [(kind, stamp) for kind, stamp in ended if begun is not None and stamp >= begun]
    if begun is None or not stamps:
        return
    until_ns = fault_ns or max(stamp for _, stamp in stamps)
    cycle.ledger_seconds = (until_ns - begun) / 1e9
    solo = cycle.observed.solo
    if solo is not None and solo.ended_ns is not None:
        paused_ns = solo.ended_ns - solo.begun_ns
        outside = [(kind, at) for kind, at in stamps if not solo.begun_ns <= at <= solo.ended_ns]
        # Close the gap, as if the workers had not paused.
        stamps = [(kind, at - paused_ns if at > solo.ended_ns else at) for kind, at in outside]
        until_ns -= paused_ns
    seconds = (until_ns - begun) / 1e9
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
