import re
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.errors import RequestError
from raidproof.image import cache
from raidproof.image.kernel import Kernel
from raidproof.provider import kvm
from raidproof.provider.kvm import Accelerator, bare_machine

DATA = Path(__file__).parents[1] / "data" / "qemu"
GUEST = Kernel("debian/trixie", "6.12", Path("/k/vmlinuz"), Path("/k/modules"), initramfs=Path("/k/initramfs"))


def said(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "busy_s", "works", "says"),
    [
        (0, "tcg-6.12-up", "", 1.0, True, "booted under KVM"),
        # The guest printed its line, and did not find how to power off.
        (137, "tcg-6.12-up", "", 8.0, True, "booted under KVM"),
        (137, "", "", 7.9, False, "spins and prints nothing in 8 s"),
        (137, "", "", 0.1, False, "hangs and prints nothing in 8 s"),
        (137, "tcg-6.12-truncated", "", 7.0, False, r"spins and prints nothing after '.+'"),
        (137, "", "kvm-7.2-internal-error", 0.4, False, r"KVM internal error \(emulation failure\)"),
        (1, "", "no-such-cpu", 0.0, False, "QEMU with KVM ended with status 1: .*unable to find CPU model"),
    ],
)
def test_a_trial_is_judged(status: int, stdout: str, stderr: str, busy_s: float, works: bool, says: str) -> None:
    texts = [said(name) if name else "" for name in (stdout, stderr)]
    answer = kvm.judge(command.Completed(("qemu",), status, *texts), busy_s)
    assert answer.works is works
    assert re.search(says, answer.reason)


def test_without_the_device_kvm_is_not_tried(tmp_path: Path) -> None:
    assert kvm.obstacle(tmp_path / "kvm") == f"no {tmp_path / 'kvm'}"
    (tmp_path / "kvm").touch()
    assert kvm.obstacle(tmp_path / "kvm") is None


class FakeQemu:
    def __init__(self, version: str) -> None:
        self.version = version
        self.trials = 0

    def run(self, argv: list[str | Path], **_: object) -> command.Completed:
        words = tuple(map(str, argv))
        if words[-1] == "--version":
            return command.Completed(words, 0, f"QEMU emulator version {self.version}\n", "")
        if words[0] != "timeout":
            return REAL_RUN(words)
        self.trials += 1
        return command.Completed(words, 137, "", "")


REAL_RUN = command.run


def test_the_answer_is_remembered_for_one_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kvm, "obstacle", lambda: None)
    fake = FakeQemu("7.2.22")
    monkeypatch.setattr(command, "run", fake.run)
    assert kvm.remembered() is None
    answer = kvm.find_out(GUEST)
    assert (answer.works, answer.accelerator) == (False, Accelerator.TCG)
    assert kvm.find_out(GUEST) == kvm.remembered() == answer
    assert fake.trials == 1
    fake.version = "10.0.0"
    assert kvm.remembered() is None
    assert len(list((cache.root() / "kvm").iterdir())) == 1


def test_a_device_that_is_not_there_is_not_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path))
    monkeypatch.setattr(kvm, "obstacle", lambda: "no /dev/kvm")
    answer = kvm.find_out(GUEST)
    assert answer == kvm.KvmAnswer(works=False, reason="no /dev/kvm")
    assert not list(tmp_path.iterdir())


def test_a_user_mode_kernel_is_no_guest() -> None:
    with pytest.raises(RequestError, match="User-mode Linux"):
        bare_machine(Accelerator.KVM, 1, Kernel("debian/sid", "7.2", Path("/k/linux"), Path("/k/modules")), ())
