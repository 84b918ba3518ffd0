"""The crash state that the power cut of a crash test itself left, and what it shows, as an exploration judges it."""

from pathlib import Path

from raidproof.core.blame import Culprit, blamed_as
from raidproof.crash.checker import alarming
from raidproof.crash.order import broken_order
from raidproof.crash.owner import pieces_of
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.disk.replay import cut_of
from raidproof.record.exploration import End, Observation
from raidproof.record.run import CrashTestRecord, FaultRecord
from raidproof.storage.stack import StackSpec
from raidproof.verdict.checks.kernel_log import wreck_of
from raidproof.verdict.evidence import SERVER, CrashTestEvidence
from raidproof.verdict.kernel_log import BOOTED, findings
from raidproof.verdict.named import Shown, torn_structures
from raidproof.verdict.oracle import Judgement, Oracle


def shown_by_cut(cycle: CrashTestRecord, stack: StackSpec, directory: Path) -> list[Shown]:
    """Return what the state after the power cut of a failed crash test shows, for each of its damages.

    ``directory``: the run's directory. Empty if the state is not known: the crash test had more than one power cut, or
    disks that lie, or no write log; and if nothing is wrong before service resumed.

    Raises:
        RigError: a file cannot be read.
    """
    cut, evidence = only_cut(cycle), CrashTestEvidence(cycle, directory)
    if cut is None or (log := evidence.write_log) is None:
        return []
    recording = Recording(log, stack.array)
    if (judgement := judged(evidence, recording, directory)) is None or not judgement.broken:
        return []
    torn, early_barrier = list[str](), False
    if (found := state_after(recording, cut)) is not None:
        state, lost = found
        parts = [one.record(recording, {}, stack.filesystem.structure_of) for one in pieces_of(recording, state)]
        torn = torn_structures(parts)
        blamed_on_disks = blamed_as(judgement.blame, Culprit.DISKS)
        early_barrier = not blamed_on_disks and broken_order(recording, lost, state.cut) is not None
    return [Shown(str(damage), judgement.kernel, torn, early_barrier) for damage in judgement.damages]


def only_cut(cycle: CrashTestRecord) -> FaultRecord | None:
    """Return the power cut of a crash test; None if there are several, or if disks lie, so that the log lacks one."""
    cuts = [one for one in cycle.injected if one.effects.caches is not None]
    if len(cuts) != 1 or cuts[0].begun_ns != cycle.fault_begun_ns or cycle.cache_mode != CacheMode.VOLATILE.value:
        return None
    return cuts[0]


def state_after(recording: Recording, cut: FaultRecord) -> tuple[CrashState, list[int]] | None:
    """Return the state that the power cut of a recording left, and the completed requests that it lacks.

    None if a replay of the log does not give the numbers that the disk engine counted at the cut.
    """
    if (members := cut_of(recording.log)) is None:
        return None
    survivors, lost = list[Survivor](), list[int]()
    for serial, requests in members.items():
        sizes = {sequence: recording.request(recording.number_of(sequence)).length for sequence in requests}
        kept = {sequence: sum(end - start for start, end in of) for sequence, of in requests.items()}
        counted = {
            "pending": len(requests),
            "kept": sum(size > 0 for size in kept.values()),
            "torn": sum(0 < size < sizes[sequence] for sequence, size in kept.items()),
        }
        if {**cut.disks.get(serial, {}), **counted} != cut.disks.get(serial, {}):
            return None
        for sequence, regions in requests.items():
            number = recording.number_of(sequence)
            whole = kept[sequence] == sizes[sequence]
            if regions:
                survivors.append(Survivor(number, None if whole else regions))
            else:
                lost.append(number)
    return CrashState(len(recording.records), tuple(sorted(survivors))), sorted(lost)


def judged(evidence: CrashTestEvidence, recording: Recording, directory: Path) -> Judgement | None:
    """Return the judgement of the server's recovery as that of a crash state; None if it was not observed."""
    cycle = evidence.record
    if (observation := observed(evidence)) is None or cycle.fault_at_ns is None:
        return None
    oracle = Oracle.of(cycle, directory, recording.corrupted_ns)
    return oracle.judge(observation, cycle.fault_at_ns, torn=cycle.effects.caches is CutPolicy.TORN)


def observed(evidence: CrashTestEvidence) -> Observation | None:
    """Return what the server showed after the fault until service resumed; None if its ledger was not read."""
    cycle = evidence.record
    *_, boot = BOOTED.split(evidence.consoles.get(SERVER, ""))
    console = alarming(findings(boot))
    if cycle.not_recovered is not None:
        end = End.NOT_MOUNTED if cycle.recovery.assemble_s is not None else End.NOT_ASSEMBLED
        end = End.WEDGED if wreck_of(evidence) is not None else end
        return Observation(end=end, said=cycle.not_recovered, console=console)
    scan = next((one for one in evidence.server_scans if one.cut_ns == cycle.fault_at_ns), None)
    if scan is None:
        return None
    return Observation(end=End.READ, found=scan.found, console=console, filesystem=cycle.observed.filesystem)
