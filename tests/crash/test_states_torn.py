"""A torn request excuses the blocks that it carries, and no other."""

import pytest

from raidproof.crash.states import CrashState, Survivor, Torn
from raidproof.disk.writelog import Kind
from raidproof.guest.ledger_format import BLOCK, block
from tests.crash.conftest import Did, Record


def test_only_what_is_there_in_part_is_torn(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    made = record(Did(Kind.WRITE, offset=0), Did(Kind.WRITE, offset=BLOCK))
    carrying = [one._replace(source=block(number, 0, 1, 7)) for number, one in enumerate(made.records, start=1)]
    monkeypatch.setattr(made, "records", carrying)
    torn = Torn(made)
    assert torn.blocks(CrashState(2, (Survivor(0), Survivor(1)))) == frozenset()
    assert torn.blocks(CrashState(2, (Survivor(0), Survivor(1, ((BLOCK, BLOCK + 512),))))) == {(2, 0)}
