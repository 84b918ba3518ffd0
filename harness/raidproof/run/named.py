"""Names the known findings with whose crash states the failures of an exploration agree."""

from collections.abc import Sequence
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.core.log import logger
from raidproof.record.failure import FailureRecord
from raidproof.record.finding import load_findings
from raidproof.record.run import RunRecord
from raidproof.run.findings import FOLDER
from raidproof.storage.stack import StackSpec
from raidproof.verdict.named import Software, finding_of

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
    folder = folder_of_findings()
    if folder is None or not failures:
        return
    try:
        findings = load_findings(folder)
    except RequestError as error:
        logger.warning("no failure is compared with the known findings: %s", error)
        return
    tested = tested_by(run, stack)
    for failure in failures:
        failure.finding = finding_of(failure, tested, findings)


def tested_by(run: RunRecord, stack: StackSpec) -> Software:
    """Return the software that a run tested with a stack."""
    return Software(
        kernel=run.server_kernel,
        filesystem=stack.filesystem.type,
        level=str(stack.array.model_dump().get("level", "")),
        server=stack.export.type,
        volume=stack.volume.type,
    )
