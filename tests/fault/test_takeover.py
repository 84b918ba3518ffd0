from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.fault import Switchover, Takeover
from raidproof.fault.takeover import HandOver
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.pair import PairSpec

MDSTAT = "Personalities : [raid6] [raid5] [raid4]\n{}unused devices: <none>\n"
ARRAY = "md0 : active raid5 vda[0] vdc[2] vdb[1]\n      126976 blocks super 1.2 level 5\n\n"


def context(mdstat: str = MDSTAT.format("")) -> tuple[Any, list[str]]:
    """Return a context with two fake servers, and the list of what happens; ``mdstat``: the file after a release."""
    did: list[str] = []

    def fence() -> int:
        did.append("fence server")
        return 42

    servers = [
        SimpleNamespace(name=name, fence=fence, boot_id="1", get=lambda _: mdstat, start=lambda: did.append("boot"))
        for name in ("server", "server2")
    ]
    lab = SimpleNamespace(server=servers[0], standby=servers[1])

    def hand_over() -> None:
        did.append("lab")
        lab.server = servers[1]

    lab.hand_over = hand_over
    stack = SimpleNamespace(
        hand_over=lambda server: did.append(f"stack to {server.name}"), release=lambda: did.append("release")
    )
    return SimpleNamespace(lab=lab, stack=stack), did


def test_the_active_server_is_fenced_and_nothing_else() -> None:
    on, did = context()
    fault = Takeover()
    assert fault.target(on).name == "server"
    event = fault.inject(on)
    assert did == ["fence server"]
    assert (event.target, event.at_ns, event.cut_results) == ("server", 42, ())
    assert "refuse its requests" in event.proof


@pytest.mark.parametrize("fault", [Takeover(), Switchover()])
def test_the_standby_gets_the_stack(fault: HandOver) -> None:
    on, did = context()
    fault.heal(on)
    assert did == ["lab", "stack to server2"]
    assert fault.target(on).name == "server2"


def test_the_disks_keep_what_they_acknowledged() -> None:
    effects = Takeover().effects(stack_of(pair=PairSpec()))
    assert effects.caches is None
    assert effects.server_memory_lost
    assert effects.nfsd_restarted
    assert not effects.lease_lost
    assert not effects.errors, "hard mounts report no error to applications"


@pytest.mark.parametrize("fault", [Takeover(), Switchover()])
def test_one_server_cannot_take_over(fault: HandOver) -> None:
    with pytest.raises(RequestError, match="no second server"):
        fault.refuse(stack_of())
    fault.refuse(stack_of(pair=PairSpec()))


@pytest.mark.parametrize(("fault", "does"), [(Takeover(), "fence server"), (Switchover(), "release")])
def test_a_server_that_is_off_is_booted_before_it_takes_over(fault: HandOver, does: str) -> None:
    on, did = context()
    on.lab.standby.boot_id = None
    fault.inject(on)
    assert did == ["boot", does]


def test_a_switchover_stops_the_service_and_reads_back_that_no_array_is_active() -> None:
    on, did = context()
    event = Switchover().inject(on)
    assert did == ["release"]
    assert event.target == "server"
    assert "lists no array" in event.proof


def test_a_switchover_that_leaves_an_array_active_did_not_take_effect() -> None:
    on, _ = context(MDSTAT.format(ARRAY))
    with pytest.raises(RigError, match="server: still active after the service was stopped: md0"):
        Switchover().inject(on)


def test_a_switchover_excuses_no_loss_and_no_error() -> None:
    effects = Switchover().effects(stack_of(sync=False, pair=PairSpec()))
    assert not effects.server_memory_lost
    assert effects.caches is None
    assert effects.nfsd_restarted
    assert not effects.lease_lost
    assert not effects.errors, "hard mounts report no error to applications"
