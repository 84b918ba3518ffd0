import pytest

from harness.doctor import Outcome
from harness.doctor.provider import architecture_finding, kvm_finding, xstate_finding


@pytest.mark.parametrize(("machine", "outcome"), [("x86_64", Outcome.OK), ("aarch64", Outcome.MISSING)])
def test_architecture(machine: str, outcome: Outcome) -> None:
    assert architecture_finding(machine).outcome is outcome


@pytest.mark.parametrize(
    ("cpuinfo", "outcome"),
    [
        ("model name\t: x\nflags\t\t: fpu avx512f amx_tile amx_int8\n", Outcome.WARNING),
        ("flags\t\t: fpu avx2\n", Outcome.OK),
        ("model name\t: amx_tile\n", Outcome.OK),
    ],
)
def test_xstate(cpuinfo: str, outcome: Outcome) -> None:
    assert xstate_finding(cpuinfo).outcome is outcome


def test_kvm_is_never_needed() -> None:
    assert {kvm_finding(present=present).outcome for present in (True, False)} == {Outcome.OK}
