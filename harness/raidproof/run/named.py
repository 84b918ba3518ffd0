"""Names the known findings with whose crash states the failures of explorations and of crash tests agree."""

from collections.abc import Sequence
from pathlib import Path

from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import logger
from raidproof.record.failure import FailureRecord
from raidproof.record.finding import Finding, load_findings
from raidproof.record.outcome import Outcome
from raidproof.record.run import CrashTestRecord, RunRecord
from raidproof.run.findings import FOLDER
from raidproof.run.live_cut import shown_by_cut
from raidproof.storage.stack import StackSpec
from raidproof.verdict.crash_test import agreed
from raidproof.verdict.named import Software, finding_of, shown_by

HOME = Path(__file__).resolve().parents[3]
"""The folder of the clone, if raidproof runs from a clone."""


def folder_of_findings() -> Path | None:
    """Return the folder of the findings; None if raidproof runs from an installed package, which has none."""
    return HOME / FOLDER if (HOME / "tox.ini").is_file() else None


def name_failures(failures: Sequence[FailureRecord], run: RunRecord, stack: StackSpec) -> None:
    """Enter in each failure the finding with whose crash states it agrees.

    A file in the folder of the findings that is not a finding leaves the failures without names: the results of the
    exploration are worth more than the names.
    """
    if not failures:
        return
    findings, tested = known_findings(), tested_by(run, stack)
    for failure in failures:
        failure.finding = finding_of(shown_by(failure), tested, findings)


def name_crash_test(cycle: CrashTestRecord, run: RunRecord, directory: Path) -> None:
    """Enter in a failed crash test the findings with whose crash states its own power cut agrees, and in its reason.

    ``directory``: the run's directory.
    """
    if cycle.outcome is not Outcome.FAIL or not (findings := known_findings()):
        return
    stack = StackSpec.model_validate(cycle.asked)
    try:
        shown = shown_by_cut(cycle, stack, directory)
    except (RigError, OSError) as error:
        logger.warning("crash test %s is not compared with the known findings: %s", cycle.name, error)
        return
    tested = tested_by(run, stack)
    named = {one.damage: finding_of(one, tested, findings) for one in shown}
    cycle.agreements = {damage: finding for damage, finding in named.items() if finding is not None}
    cycle.reason += agreed(cycle)


def known_findings() -> Sequence[Finding]:
    """Return the findings of the clone; none from an installed package, and if a file is not a finding."""
    folder = folder_of_findings()
    try:
        return load_findings(folder) if folder is not None else []
    except RequestError as error:
        logger.warning("no failure is compared with the known findings: %s", error)
        return []


def tested_by(run: RunRecord, stack: StackSpec) -> Software:
    """Return the software that a run tested with a stack."""
    return Software(
        kernel=run.server_kernel,
        filesystem=stack.filesystem.type,
        level=str(stack.array.model_dump().get("level", "")),
        server=stack.export.type,
        volume=stack.volume.type,
    )
