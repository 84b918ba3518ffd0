"""The planted defects replace lines of the ledger's program, which must be there."""

from pathlib import Path

import pytest

from raidproof.guest import ledger_worker
from scenarios.selftest.plants import CALLED, EARLY, NEVER, REPORTED, UNREPORTED

SOURCE = Path(ledger_worker.__file__).read_text()


@pytest.mark.parametrize("line", [CALLED, REPORTED])
def test_a_line_that_a_planted_defect_replaces_is_there_once(line: str) -> None:
    assert SOURCE.count(line) == 1


@pytest.mark.parametrize("instead", [EARLY, NEVER])
def test_the_ledgers_program_with_a_planted_defect_is_a_program(instead: str) -> None:
    compile(SOURCE.replace(CALLED, instead).replace(REPORTED, UNREPORTED), "ledger_worker.py", "exec")
