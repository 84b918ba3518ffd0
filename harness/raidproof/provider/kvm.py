"""QEMU on this host: its program, and the choice of its accelerator: KVM if a guest boots under KVM, else emulation.

Access to /dev/kvm is not sufficient: under some hypervisors KVM creates a guest that makes no progress. Therefore
raidproof boots a kernel under KVM once, and caches whether KVM works.
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
"""Oldest QEMU version (major, minor) that is used for emulation.

Emulation by 7.2 crashes kernels at random (docs/findings.md); versions between 7.2 and 10.0 were not tested.
"""
SUITE = "trixie"
"""The Debian suite from which a newer QEMU is downloaded."""
_PARTS = re.compile(r"qemu-system-(?:x86|common|data)|seabios|lib\S+|zlib1g")
QEMU_TOOLS = (PROGRAM, "qemu-img", "depmod")
"""The programs of this host that only provider ``qemu`` needs."""
DEVICE = Path("/dev/kvm")
TRIAL_S = 8
"""Time limit of the trial boot under KVM, in seconds. The same boot takes 3 s emulated, and less than 1 s with KVM."""
MEMORY = 256 * MIB
"""Memory of the guest in the trial boot, in bytes."""
KILLED = 128 + 9
"""Exit status of timeout(1) when it has ended a command by SIGKILL."""
BUSY = 0.5
"""CPU time of the trial boot as a share of `TRIAL_S`; above this share, a guest without progress loops for ever."""
ERROR = "KVM internal error"
"""Start of QEMU's message when KVM stops a guest because of an internal error."""


class Accelerator(StrEnum):
    """The way in which QEMU executes the guest's instructions: on the CPU by KVM, or emulated by TCG."""

    KVM = "kvm"
    TCG = "tcg"

    @property
    def cpu(self) -> str:
        """The guest's CPU model: that of this host with KVM; with TCG the simplest, which is emulated fastest."""
        return "host" if self is Accelerator.KVM else "qemu64,-cx16"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Kernel arguments: with TCG, no CPU mitigations, which would discard translated code at each system call."""
        return () if self is Accelerator.KVM else ("mitigations=off",)


def bare_machine(
    accelerator: Accelerator,
    memory: int,
    kernel: Kernel,
    arguments: Sequence[str],
    program: Sequence[str] = (PROGRAM,),
) -> list[str]:
    """Return the QEMU command of a machine without disks and network; its standard output is the serial console.

    ``memory`` is in bytes; ``program`` is the start of the command, from `program_for`. QEMU ends when the guest
    powers off, restarts or panics.

    Raises:
        RequestError: the kernel is a User-mode Linux kernel.
    """
    if kernel.initramfs is None:
        raise RequestError(f"QEMU cannot boot kernel {kernel.name}, which is built for User-mode Linux")
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
    """Return the start of a machine's QEMU command, before its options: this host's QEMU, or a downloaded one.

    With KVM, the command is always that of this host's QEMU.

    Raises:
        RequirementMissing: this host has no QEMU, or lacks a program for downloading one.
        RigError: the download failed.
    """
    return (PROGRAM,) if accelerator is Accelerator.KVM else for_emulation()


def qemu_lacks() -> str | None:
    """Return a text that names the programs of `QEMU_TOOLS` that this host lacks, or None if it has all."""
    absent = [program for program in QEMU_TOOLS if shutil.which(program) is None]
    return f"not found: {', '.join(absent)}" if absent else None


def version() -> tuple[int, ...]:
    """Return the version of this host's QEMU as (major, minor).

    Raises:
        RequirementMissing: this host has no QEMU.
        RigError: the output of QEMU has no version number.
    """
    output = command.succeed([PROGRAM, "--version"])
    found = re.search(r"version (\d+)\.(\d+)", output)
    if found is None:
        raise RigError(f"{PROGRAM} --version prints no version number: {output.strip()[:80]}")
    return tuple(map(int, found.groups()))


def for_emulation() -> tuple[str, ...]:
    """Return the start of the command of a QEMU with correct emulation; download QEMU if this host's is too old.

    Raises:
        RequirementMissing: this host has no QEMU, or lacks a program for downloading one.
        RigError: the download failed.
    """
    if version() >= TRUSTED:
        return (PROGRAM,)
    folder = cache.build("qemu", cache.digest("1", SUITE, _PARTS.pattern), _fetch)
    # The downloaded QEMU runs with its own C library and other libraries: this host's may be too old.
    libraries = folder / "tree" / "usr" / "lib" / "x86_64-linux-gnu"
    share = folder / "tree" / "usr" / "share"
    return (
        *(str(libraries / "ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:{libraries / 'pulseaudio'}"),
        str(folder / "tree" / "usr" / "bin" / PROGRAM),
        *("-L", str(share / "qemu"), "-L", str(share / "seabios")),
    )


def _fetch(partial: Path) -> None:
    oldest = ".".join(map(str, TRUSTED))
    step(f"fetching QEMU from Debian {SUITE}: this host's QEMU is older than {oldest}, and its emulation has errors")
    scratch = partial / cache.SCRATCH
    scratch.mkdir()
    for package in apt.download_behind(SUITE, "qemu-system-x86", _PARTS, scratch).values():
        apt.unpack(package, partial / "tree")


@dataclass(frozen=True)
class KvmAnswer:
    """Whether KVM can run guests on this host, as found by a trial boot."""

    works: bool
    reason: str
    """The observation that shows whether KVM works, for messages."""

    @property
    def accelerator(self) -> Accelerator:
        """The accelerator of the machines: KVM if KVM works, else TCG."""
        return Accelerator.KVM if self.works else Accelerator.TCG


def obstacle(device: Path = DEVICE) -> str | None:
    """Return why a trial boot under KVM is impossible, or None if it is possible."""
    if not device.exists():
        return f"no {device}"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"this user may not open {device}; members of the group of {device} may"
    return None


def remembered() -> KvmAnswer | None:
    """Return the cached result of the trial boot for this host's kernel, CPU and QEMU; None without a trial boot.

    Raises:
        RequirementMissing: this host has no QEMU.
    """
    if (reason := obstacle()) is not None:
        return KvmAnswer(works=False, reason=reason)
    answer = cache.place("kvm", _address()) / "answer.json"
    return KvmAnswer(**json.loads(answer.read_text())) if answer.exists() else None


def find_out(tried: Kernel | None = None) -> KvmAnswer:
    """Return whether KVM works, from the cache or by a trial boot of the kernel ``tried``; None: the default kernel.

    Raises:
        RequirementMissing: this host lacks QEMU, or a program for preparing the kernel.
        RigError: the kernel could not be fetched.
    """
    known = remembered()
    if known is not None:
        return known
    guest = tried or kernel.get(provider="qemu")

    def boot(partial: Path) -> None:
        step(f"trying whether KVM boots a kernel ({TRIAL_S} s at most)")
        (partial / "answer.json").write_text(json.dumps(asdict(_boot(guest))))

    return KvmAnswer(**json.loads((cache.build("kvm", _address(), boot) / "answer.json").read_text()))


def _address() -> str:
    version = command.succeed([PROGRAM, "--version"]).splitlines()[0]
    return cache.digest("2", cpu_identity(Path("/proc/cpuinfo").read_text()), version)


def _boot(guest: Kernel) -> KvmAnswer:
    before = _processor_s()
    argv = bare_machine(Accelerator.KVM, MEMORY, guest, [initramfs.TRIAL])
    # SIGKILL: a QEMU whose guest spins may not react to other signals.
    completed = command.run(["timeout", "--signal=KILL", str(TRIAL_S), *argv], deadline_s=TRIAL_S + 10)
    return judge(completed, _processor_s() - before)


def _processor_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def judge(trial: command.Completed, processor_s: float) -> KvmAnswer:
    """Return whether KVM works, from the console output of a trial boot and its CPU time in seconds."""
    if initramfs.UP in trial.stdout:
        return KvmAnswer(works=True, reason="a kernel booted under KVM")
    complaints = trial.stderr.strip().splitlines()
    if any(ERROR in line for line in complaints):
        detail = next((f" ({line.strip()})" for line in complaints if line.endswith("failure")), "")
        return KvmAnswer(works=False, reason=f"QEMU stopped a kernel during boot under KVM: {ERROR}{detail}")
    last = next((line.strip() for line in reversed(trial.stdout.splitlines()) if line.strip()), None)
    if trial.status != KILLED:
        output = (complaints or [last or "no output"])[-1]
        return KvmAnswer(works=False, reason=f"QEMU with KVM ended with status {trial.status}: {output}")
    how = "spins" if processor_s > BUSY * TRIAL_S else "hangs"
    progress = f"prints nothing in {TRIAL_S} s" if last is None else f"prints nothing after {last!r}"
    return KvmAnswer(works=False, reason=f"a kernel that boots under KVM {how} and {progress}")
