import re
from pathlib import Path

import pytest

from raidproof.core.package_manager import PackageManager
from raidproof.provider.kvm import KvmAnswer
from raidproof.run.doctor import (
    Outcome,
    architecture_check,
    kvm_check,
    provider_checks,
    qemu_check,
    xstate_check,
)


@pytest.mark.parametrize(("machine", "outcome"), [("x86_64", Outcome.OK), ("aarch64", Outcome.MISSING)])
def test_architecture(machine: str, outcome: Outcome) -> None:
    assert architecture_check(machine).outcome is outcome


@pytest.mark.parametrize(
    ("cpuinfo", "outcome"),
    [
        ("model name\t: x\nflags\t\t: fpu avx512f amx_tile amx_int8\n", Outcome.WARNING),
        ("flags\t\t: fpu avx2\n", Outcome.OK),
        ("model name\t: amx_tile\n", Outcome.OK),
    ],
)
def test_xstate(cpuinfo: str, outcome: Outcome) -> None:
    assert xstate_check(cpuinfo).outcome is outcome


@pytest.mark.parametrize(
    ("answer", "outcome", "says"),
    [
        (None, Outcome.OK, "not tried yet"),
        (KvmAnswer(works=True, reason="a kernel booted under it"), Outcome.OK, "works: a kernel booted"),
        (KvmAnswer(works=False, reason="it spins"), Outcome.WARNING, "does not work: it spins; .* emulates"),
    ],
)
def test_kvm_is_never_needed(answer: KvmAnswer | None, outcome: Outcome, says: str) -> None:
    found = kvm_check(answer)
    assert found.outcome is outcome
    assert re.search(says, found.reason)


def test_qemu_is_not_needed_either() -> None:
    assert qemu_check(None).outcome is Outcome.OK
    absent = qemu_check("not found: qemu-img")
    assert (absent.outcome, absent.remedy) == (
        Outcome.WARNING,
        f"{PackageManager.APT.install} qemu-system-x86 qemu-utils kmod",
    )
    assert absent.reason.startswith("not found: qemu-img; ")


def test_all_findings_come_without_a_trial_where_no_kernel_is_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path))
    names = [check.name for check in provider_checks()]
    assert {"provider uml", "provider qemu", "provider auto", "cannot prove"} <= set(names)
    assert not list(tmp_path.iterdir())
