"""QEMU on this host: its program, and its accelerators, which are KVM, if that runs a guest, and emulation.

An existing /dev/kvm that answers is not sufficient: under some hypervisors KVM creates a guest that makes no progress.
So a kernel is booted under KVM once, and the answer is cached.
"""

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import step
from raidproof.core.units import MIB
from raidproof.image import apt, cache, kernel
from raidproof.image.kernel import Kernel, initramfs
from raidproof.image.kernel.catalogue import cpu_identity

PROGRAM = "qemu-system-x86_64"
TRUSTED = (10, 0)
"""The oldest version without the known emulation error; versions between 7.2 and this one were not tried."""
SUITE = "trixie"
_PARTS = re.compile(r"qemu-system-(?:x86|common|data)|seabios|lib\S+|zlib1g")
QEMU_TOOLS = (PROGRAM, "qemu-img", "depmod")
"""The programs that provider ``qemu`` needs in addition to the common ones."""
DEVICE = Path("/dev/kvm")
TRIAL_S = 8
"""Seconds; under emulation the same boot takes 3 s, under working KVM less than one."""
MEMORY = 256 * MIB
KILLED = 128 + 9
BUSY = 0.5
"""Share of the trial's time in a processor above which a silent guest spins instead of waiting."""
ERROR = "KVM internal error"


class Accelerator(StrEnum):
    """What executes the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"

    @property
    def cpu(self) -> str:
        """The guest's CPU model: this host's own, or the simplest one, which is the fastest to emulate."""
        return "host" if self is Accelerator.KVM else "qemu64,-cx16"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Kernel arguments: CPU mitigations would flush an emulated processor's translations at each system call."""
        return () if self is Accelerator.KVM else ("mitigations=off",)


def bare_machine(
    accelerator: Accelerator,
    memory: int,
    kernel: Kernel,
    arguments: Sequence[str],
    program: Sequence[str] = (PROGRAM,),
) -> list[str]:
    """Return the command of a machine without disks and network; its standard output is the serial console.

    ``memory`` is in bytes; ``program`` are the words that start QEMU. QEMU ends when the guest powers off, restarts or
    panics.

    Raises:
        RequestError: the kernel is not for PCs.
    """
    if kernel.initramfs is None:
        raise RequestError(f"QEMU cannot boot {kernel.name}, a kernel of User-mode Linux")
    options = {Accelerator.KVM: "kvm", Accelerator.TCG: "tcg,thread=multi"}
    append = ["console=ttyS0", "panic=1", "net.ifnames=0", *accelerator.arguments, *kernel.arguments, *arguments]
    return [
        *program,
        *("-no-user-config", "-nodefaults", "-no-reboot"),
        *("-display", "none"),
        *("-machine", "q35,sata=off,smbus=off,usb=off,vmport=off,hpet=off,i8042=off"),
        *("-accel", options[accelerator]),
        *("-cpu", accelerator.cpu),
        *("-m", f"{memory // MIB}M"),
        *("-chardev", "stdio,id=console,signal=off"),
        *("-serial", "chardev:console"),
        *("-kernel", str(kernel.binary)),
        *("-initrd", str(kernel.initramfs)),
        *("-append", " ".join(append)),
    ]


def program_for(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the words that start QEMU for a machine; fetch one for emulation if this host's is too old."""
    return (PROGRAM,) if accelerator is Accelerator.KVM else for_emulation()


def qemu_lacks() -> str | None:
    """Return what this host lacks for provider ``qemu``, or None."""
    absent = [program for program in QEMU_TOOLS if shutil.which(program) is None]
    return f"not found: {', '.join(absent)}" if absent else None


def version() -> tuple[int, ...]:
    """Return the version of this host's QEMU.

    Raises:
        RequirementMissing: there is no QEMU.
    """
    said = command.succeed([PROGRAM, "--version"])
    found = re.search(r"version (\d+)\.(\d+)", said)
    if found is None:
        raise RigError(f"{PROGRAM} does not say its version: {said.strip()[:80]}")
    return tuple(map(int, found.groups()))


def for_emulation() -> tuple[str, ...]:
    """Return the words that start a QEMU with correct emulation; fetch one if this host's is too old.

    Raises:
        RequirementMissing, RigError: it cannot be fetched.
    """
    if version() >= TRUSTED:
        return (PROGRAM,)
    folder = cache.build("qemu", cache.digest("1", SUITE, _PARTS.pattern), _fetch)
    # With its own C library and all other libraries, so that it does not depend on this host's.
    libraries = folder / "tree" / "usr" / "lib" / "x86_64-linux-gnu"
    share = folder / "tree" / "usr" / "share"
    return (
        *(str(libraries / "ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:{libraries / 'pulseaudio'}"),
        str(folder / "tree" / "usr" / "bin" / PROGRAM),
        *("-L", str(share / "qemu"), "-L", str(share / "seabios")),
    )


def _fetch(partial: Path) -> None:
    step(f"fetching QEMU from Debian {SUITE}: the emulation of this host's is not to be trusted")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    for package in apt.download_behind(SUITE, "qemu-system-x86", _PARTS, scratch).values():
        apt.unpack(package, partial / "tree")


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
