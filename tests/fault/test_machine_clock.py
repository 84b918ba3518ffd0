from types import SimpleNamespace
from typing import cast

import pytest

from raidproof.core.errors import RigError
from raidproof.core.waiting import now_ns
from raidproof.fault import ClockStep, FaultContext, FaultEffects
from raidproof.lab.lab import Lab
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.stack import Stack
from tests.guest_files import FilesByCommands


class Server(FilesByCommands):
    """A fake server whose clock can be set, or refuses to be."""

    name = "server"

    def __init__(self, *, settable: bool = True) -> None:
        self.ahead = 10**18
        self.settable = settable

    def succeed(self, argv: list[str]) -> str:
        if argv[-1].startswith("--set=@"):
            if self.settable:
                self.ahead = int(float(argv[-1].removeprefix("--set=@")) * 1e9) - now_ns()
            return ""
        return f"{now_ns() + self.ahead}\n"


def context(server: Server) -> FaultContext:
    return FaultContext(cast("Lab", SimpleNamespace(server=server)), cast("Stack", SimpleNamespace()))


@pytest.mark.parametrize("step_s", [3600.0, -86400.0])
def test_the_clock_jumps_and_is_set_back(step_s: float) -> None:
    server, fault = Server(), ClockStep(step_s, held_s=0)
    assert f"{step_s:+.0f}" in fault.inject(context(server)).proof.replace(".00", "")
    assert abs(server.ahead - 10**18 - step_s * 1e9) < 1e9
    fault.heal(context(server))
    assert abs(server.ahead - 10**18) < 1e9


def test_a_clock_that_stays_is_the_rigs_fault() -> None:
    with pytest.raises(RigError, match=r"requested clock step \+3600 s, effective"):
        ClockStep().inject(context(Server(settable=False)))


def test_it_excuses_nothing() -> None:
    assert ClockStep().effects(stack_of()) == FaultEffects()
