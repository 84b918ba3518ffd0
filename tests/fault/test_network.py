from errno import EBUSY, EIO, ETIMEDOUT
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.fault import ClientNetworkCut, FaultContext, LeaseExpiry, MissedGrace, NetworkCut
from raidproof.fault import network as faults
from raidproof.lab.lab import Lab
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.mount import MountSpec
from raidproof.storage.stack import Stack


def context(lab: Any, recovery: str = "hard") -> FaultContext:
    mounts = {"client2": SimpleNamespace(directory="/mnt/x")}
    spec = SimpleNamespace(mount=SimpleNamespace(recovery=recovery))
    return FaultContext(cast("Lab", lab), cast("Stack", SimpleNamespace(spec=spec, mounts=mounts, export=Mock())))


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fake lab whose ports record all actions on them."""
    one: Any = Mock(spec=NamespaceLab)
    one.namespace = Mock()
    one.server.name, one.clients = "server", (Mock(), Mock())
    one.clients[0].name, one.clients[1].name = "client1", "client2"
    one.port = Mock()
    one.port.return_value.cut.return_value = "no answer"
    monkeypatch.setattr(faults, "Port", one.port)
    return one


@pytest.mark.parametrize(
    ("fault", "machine"), [(NetworkCut(held_s=0), "server"), (ClientNetworkCut(held_s=0), "client2")]
)
def test_a_machine_is_cut_off_and_joined_and_nothing_runs_in_it(labs: Any, fault: NetworkCut, machine: str) -> None:
    injected = fault.inject(context(labs))
    fault.heal(context(labs))
    assert injected.proof == f"frames to and from {machine} dropped for 0 s: no answer"
    assert injected.target == machine
    assert {one.args[1] for one in labs.port.mock_calls if len(one.args) == 3} == {machine}
    labs.port.return_value.mend.assert_called_once_with()
    assert not labs.server.method_calls
    assert not labs.clients[1].method_calls


def test_a_lab_without_a_bridge_of_ours_lacks_a_requirement() -> None:
    with pytest.raises(RequirementMissing, match="does not control this lab's network"):
        NetworkCut().inject(context(SimpleNamespace(server=Mock())))


def test_only_a_soft_mount_may_report_errors() -> None:
    assert NetworkCut().effects(stack_of()).errors == frozenset()
    assert NetworkCut().effects(stack_of(mount=MountSpec(recovery="soft"))).errors == {EBUSY, EIO, ETIMEDOUT}


def test_a_lease_is_over_when_another_client_gets_the_lock(labs: Any) -> None:
    # The holder gets the lock at the second look. The other client tries it after the cut, until the lease is over.
    labs.clients[-1].run.side_effect = [SimpleNamespace(ok=ok) for ok in (False, True)]
    labs.clients[0].run.side_effect = [SimpleNamespace(ok=ok) for ok in (False, False, True)]
    assert "client1 got the lock after" in LeaseExpiry().inject(context(labs)).proof


def test_a_lock_that_another_client_gets_at_once_was_not_held(labs: Any) -> None:
    labs.clients[0].run.side_effect = [SimpleNamespace(ok=True)]
    with pytest.raises(RigError, match="its lease has not ended"):
        LeaseExpiry().inject(context(labs))


def test_the_grace_period_is_missed_when_the_server_reports_its_end(labs: Any) -> None:
    there = context(labs)
    there.stack.export.grace_ended.side_effect = [False, True]  # type: ignore[attr-defined]
    assert "its grace period ended" in MissedGrace().inject(there).proof
