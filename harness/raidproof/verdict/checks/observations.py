"""The verdict on the observations that every crash test makes: the record lacks none."""

from pathlib import Path

from raidproof.record.outcome import Outcome, Verdict
from raidproof.record.run import CrashTestRecord
from raidproof.verdict.check import Check
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.evidence import SERVER, CrashTestEvidence

OBSERVATIONS = "observations"
"""Name of the check that the record lacks no observation."""


class Observations(Check[CrashTestEvidence]):
    """The record lacks no observation that every crash test makes."""

    name = OBSERVATIONS
    rank = 90

    def judge(self, evidence: CrashTestEvidence, conditions: Conditions) -> list[Verdict]:
        """Return a verdict if an observation is missing."""
        return judge_observations(evidence.record, evidence.run)


def judge_observations(cycle: CrashTestRecord, run: Path) -> list[Verdict]:
    """Return an INCONCLUSIVE verdict if the record lacks an observation that every crash test makes.

    These are the scan through a client, the kernel messages of each machine, and at least one message of the server,
    whose kernel reports the creation of the array and of the file system. ``run``: the run's directory.
    """
    logs = cycle.files.consoles
    machines = {SERVER, *cycle.effective.get("mounts", {}), *(worker["client"] for worker in cycle.workers)}
    missing = ["the scan of the ledger through a client"] if cycle.files.on_client is None else []
    missing += [f"the kernel messages of {name}" for name in sorted(machines - {*logs})]
    if SERVER in logs and not (run / logs[SERVER]).read_bytes().strip():
        missing.append(f"a kernel message of {SERVER}, whose log is empty")
    if not missing:
        return []
    reason = f"the record lacks {', '.join(missing)}"
    return [Verdict(checker=OBSERVATIONS, outcome=Outcome.INCONCLUSIVE, reason=reason)]
