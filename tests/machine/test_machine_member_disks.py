from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

from raidproof.disk.cache import CutPolicy
from raidproof.machine.machine import MemberDisks, cut_power


def test_a_cut_freezes_then_kills_then_resolves() -> None:
    together: Any = Mock()
    together.engine.freeze.return_value = 17
    disks = MemberDisks(together.engine, Path("nbd"), ("disk0",))
    cut = cut_power(disks, together.kill, CutPolicy.KEEP, 3)
    assert together.mock_calls == [call.engine.freeze(), call.kill(), call.engine.resolve(CutPolicy.KEEP, 3)]
    assert cut.at_ns == 17


def test_power_is_restored_once_after_a_cut_and_never_without_a_cut() -> None:
    engine: Any = Mock()
    disks = MemberDisks(engine, Path("nbd"), ("disk0",))
    disks.power_on()
    assert engine.power_on.call_count == 0
    disks.resolve(CutPolicy.DROP, 0)
    disks.power_on()
    disks.power_on()
    assert engine.power_on.call_count == 1


def test_a_machine_without_disks_is_just_killed() -> None:
    kill = Mock()
    assert cut_power(None, kill, CutPolicy.DROP, 0).cut_results == ()
    kill.assert_called_once()
