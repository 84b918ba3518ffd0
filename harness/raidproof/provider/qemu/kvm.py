"""Whether this host's KVM runs a guest: boots a kernel under KVM once, and caches the answer.

An existing /dev/kvm that answers is not sufficient: under some hypervisors KVM creates a guest that makes no progress.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from raidproof.core import command
from raidproof.core.log import step
from raidproof.core.units import MIB
from raidproof.image import cache, kernel
from raidproof.image.kernel import Kernel, initramfs
from raidproof.image.kernel.catalogue import cpu_identity
from raidproof.provider.qemu.machine import PROGRAM, Accelerator, bare_machine

DEVICE = Path("/dev/kvm")
TRIAL_S = 8
"""Seconds; under emulation the same boot takes 3 s, under working KVM less than one."""
MEMORY = 256 * MIB
KILLED = 128 + 9
BUSY = 0.5
"""Share of the trial's time in a processor above which a silent guest spins instead of waiting."""
ERROR = "KVM internal error"


@dataclass(frozen=True)
class KvmAnswer:
    """Whether KVM works, and the reason."""

    works: bool
    reason: str

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator for machines."""
        return Accelerator.KVM if self.works else Accelerator.TCG


def obstacle(device: Path = DEVICE) -> str | None:
    """Return why KVM cannot be tried, or None."""
    if not device.exists():
        return f"no {device}"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"{device} may not be opened by this user; its group may be"
    return None


def remembered() -> KvmAnswer | None:
    """Return the cached answer for this host's kernel, CPU and QEMU, or None if KVM has not been tried.

    Raises:
        RequirementMissing: there is no QEMU.
    """
    if (reason := obstacle()) is not None:
        return KvmAnswer(works=False, reason=reason)
    answer = cache.place("kvm", _address()) / "answer.json"
    return KvmAnswer(**json.loads(answer.read_text())) if answer.exists() else None


def find_out(tried: Kernel | None = None) -> KvmAnswer:
    """Return whether KVM works; if not cached, boot a kernel under KVM (the default kernel if none is given).

    Raises:
        RequirementMissing: there is no QEMU, or a tool for preparing the kernel.
        RigError: the kernel could not be fetched.
    """
    known = remembered()
    if known is not None:
        return known
    guest = tried or kernel.get(provider="qemu")

    def boot(partial: Path) -> None:
        step(f"trying KVM ({TRIAL_S} s at most)")
        (partial / "answer.json").write_text(json.dumps(asdict(_boot(guest))))

    return KvmAnswer(**json.loads((cache.build("kvm", _address(), boot) / "answer.json").read_text()))


def _address() -> str:
    version = command.succeed([PROGRAM, "--version"]).splitlines()[0]
    return cache.digest("2", cpu_identity(Path("/proc/cpuinfo").read_text()), version)


def _boot(guest: Kernel) -> KvmAnswer:
    before = _processor_s()
    argv = bare_machine(Accelerator.KVM, MEMORY, guest, [initramfs.TRIAL])
    # SIGKILL: a QEMU whose guest spins may ignore all other signals.
    completed = command.run(["timeout", "--signal=KILL", str(TRIAL_S), *argv], deadline_s=TRIAL_S + 10)
    return judge(completed, _processor_s() - before)


def _processor_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def judge(trial: command.Completed, processor_s: float) -> KvmAnswer:
    """Return whether KVM works, from the console and the processor time of a trial."""
    if initramfs.UP in trial.stdout:
        return KvmAnswer(works=True, reason="a kernel booted under it")
    complaints = trial.stderr.strip().splitlines()
    if any(ERROR in line for line in complaints):
        detail = next((f" ({line.strip()})" for line in complaints if line.endswith("failure")), "")
        return KvmAnswer(works=False, reason=f"it is there, and stops a kernel that boots: {ERROR}{detail}")
    last = next((line.strip() for line in reversed(trial.stdout.splitlines()) if line.strip()), None)
    if trial.status != KILLED:
        said = (complaints or [last or "nothing"])[-1]
        return KvmAnswer(works=False, reason=f"QEMU ended with status {trial.status} under it: {said}")
    how = "spins" if processor_s > BUSY * TRIAL_S else "hangs"
    words = f"prints nothing in {TRIAL_S} s" if last is None else f"stays at {last!r}"
    return KvmAnswer(works=False, reason=f"it is there, and a kernel that boots under it {how} and {words}")
