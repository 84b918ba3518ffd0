from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import server_and_clients
from raidproof.disk.cache import CutPolicy
from raidproof.machine.machine import Machine, MemberDisks, cut_power


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


def test_the_exports_name_the_machine_only_if_another_one_uses_the_disks_too() -> None:
    engine: Any = Mock()
    assert MemberDisks(engine, Path("nbd"), ("d0", "d1")).exports == ("d0", "d1")
    assert MemberDisks(engine, Path("nbd"), ("d0", "d1"), "server2").exports == ("d0@server2", "d1@server2")


def test_a_machine_is_fenced_only_by_a_power_switch_of_its_own() -> None:
    together: Any = Mock()
    spec = server_and_clients().server
    machine = Machine(spec, together.power, together.transport)
    machine.boot_id = "1"
    together.power.fence.return_value = 17
    assert machine.fence() == 17
    assert together.mock_calls == [call.power.fence(), call.transport.close()]
    assert machine.boot_id is None
    switch = Mock(spec=["cut"])
    with pytest.raises(RequirementMissing, match="server: its power switch also cuts the power of its disks"):
        Machine(spec, switch, together.transport).fence()
    assert switch.mock_calls == []
