"""The verdicts on kernel logs."""

from raidproof.record.outcome import Outcome, Verdict
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions, fault_of
from raidproof.verdict.damage import Wrong, wrong
from raidproof.verdict.evidence import SERVER, CrashStateEvidence, CrashTestEvidence, Stage
from raidproof.verdict.kernel_log import FILE_GONE, KERNEL, KERNEL_LOG, blocked, judge_kernel_logs, judge_wrecks
from raidproof.verdict.window import combined_by


class KernelLogs(Check[CrashTestEvidence]):
    """The kernels report nothing suspicious, except what the faults explain."""

    name = KERNEL_LOG
    rank = 160

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return one verdict."""
        messages = evidence.kernel_messages
        if conditions.excused or conditions.broken_drives:
            messages = [*messages, FILE_GONE]
        waited = frozenset[str]()
        if combined_by(conditions.windows, None).server_away:
            waited = waited.union(*map(blocked, evidence.away))
        verdict = judge_kernel_logs(
            [(f"console {name}", log) for name, log in evidence.consoles.items()],
            seen=evidence.record.observed.kernels,
            asked_for=messages,
            waited=waited,
            corrupted_by=conditions.blame if conditions.broken_drives else KERNEL,
        )
        return [verdict]


class Wreck(Check[CrashTestEvidence]):
    """The server's kernel did not fail: else its failure caused that of the recovery or of the rig."""

    name = "kernel of the server"
    stages = frozenset({Stage.NOT_RECOVERED, Stage.BROKEN_OFF, Stage.UNREAD})
    rank = 1

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if the kernel failed."""
        wreck = wreck_of(evidence)
        return [] if wreck is None else [wreck]


class KernelLogOfState(Check[CrashStateEvidence]):
    """The kernel of the machine that read a crash state reports nothing suspicious."""

    name = "kernel log of a crash state"
    stages = frozenset({Stage.STATE})
    rank = 160

    def judge(self, evidence: CrashStateEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if there are suspicious messages."""
        if not (console := evidence.observation.console):
            return []
        reason = "; ".join(console[:3])
        return [Verdict(checker=KERNEL_LOG, outcome=Outcome.FAIL, reason=reason, blame=fault_of(conditions))]

    def wrong(self, evidence: CrashStateEvidence, conditions: Conditions) -> list[Wrong]:
        """Return the messages."""
        # Each line begins with the name of the pattern that it matches, and a colon.
        end = evidence.observation.end
        return [wrong(KERNEL_LOG, line.partition(":")[0], line, end) for line in evidence.observation.console]


def wreck_of(evidence: CrashTestEvidence) -> Verdict | None:
    """Return the FAIL verdict if the server's console shows that its kernel failed; else None."""
    log = evidence.consoles.get(SERVER)
    return None if log is None else judge_wrecks(log, asked_for=evidence.kernel_messages)
