"""Provider ``uml``, the default: User-mode Linux; each machine is a process of this host."""

import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raidproof.core.errors import RequestError, RequirementMissing
from raidproof.core.topology import MachineSpec, Topology
from raidproof.core.units import MIB
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.daemon import storage_daemon_command
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.image.software import libraries
from raidproof.machine.machine import MemberDisks
from raidproof.namespace import Process
from raidproof.namespace.network import hardware_address, tap_name
from raidproof.provider.provider import GuestPower, GuestProvider, Site

NAME = "uml"
CANNOT_PROVE = (
    "uml: each machine has one CPU, so races that need several CPUs do not occur",
    "uml: a machine is a process of this host, so its clock, CPU speed and network vary with the host's load: rates "
    "are comparable only within one run",
    "uml: a member disk has the latency of its profile, or none without a profile: rates compare configurations, "
    "and do not predict those of a real drive",
    "uml: the kernel is built for the architecture um, in Debian's configuration for um; the deployed machine runs "
    "another kernel",
    "uml: a system disk loses nothing at a power cut, because its data is in this host's page cache; only member "
    "disks have a simulated volatile cache",
)
"""What a run with this provider cannot prove; the report lists these sentences."""
WITHOUT_RAID6 = "initcall_blacklist=raid6_select_algo"
"""Kernel argument that skips the benchmark of RAID6 algorithms (lib/raid6/algos.c): 1 s of the 2.2 s of a boot.

Without the benchmark the kernel selects no RAID6 algorithm, and an array of level 6 causes an oops.
"""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
SOCKET_DEADLINE_S = 10.0
"""Seconds within which qemu-storage-daemon must open the sockets of all member disks."""


def uml_command(
    spec: MachineSpec,
    kernel: Kernel,
    image: Image,
    directory: Path,
    tap: str,
    disk_sockets: Sequence[Path],
    *,
    raid6: bool = False,
) -> list[str]:
    """Return the command that boots a machine, whose console is the command's standard output.

    ``directory`` contains the machine's copy-on-write file (``NAME.cow``) and configuration disk (``NAME.config``).
    ``disk_sockets`` are the vhost-user sockets of the member disks. ``raid6``: whether arrays of level 6 are possible.
    """
    return [
        str(kernel.binary),
        f"mem={spec.memory // MIB}M",
        f"umid={spec.name}",
        f"uml_dir={directory}",
        f"ubda={directory / spec.name}.cow,{image.path}",
        f"ubdbr={kernel.modules_image}",
        f"ubdcr={directory / spec.name}.config",
        "root=/dev/ubda",
        "rw",
        "init=/sbin/raidproof-init",
        "con=null",
        "con0=null,fd:1",
        "panic=1",
        f"vec0:transport=tap,ifname={tap},mac={hardware_address(spec)},depth=128,gro=1",
        *(f"virtio_uml.device={socket}:2" for socket in disk_sockets),
        *([] if raid6 else [WITHOUT_RAID6]),
        *kernel.arguments,
    ]


def uml_environment(kernel: Kernel, memory: int) -> dict[str, str]:
    """Return the environment variables of a kernel's process: LD_PRELOAD, TMPDIR, and those of the kernel.

    ``memory`` is the total memory of the lab's machines in bytes, for which TMPDIR must have space.
    """
    preload = [*map(str, libraries()), *filter(None, [kernel.environment.get("LD_PRELOAD")])]
    return {**kernel.environment, "LD_PRELOAD": ":".join(preload), "TMPDIR": str(memory_folder(memory))}


def memory_folder(memory: int, candidates: Sequence[Path] | None = None) -> Path:
    """Return the first folder of ``candidates`` with more than ``memory`` bytes free: /dev/shm, or else TMPDIR.

    User-mode Linux keeps the memory of a machine in a deleted file of this folder. If the folder becomes full, the
    host kills the machine's kernel by SIGBUS.

    Raises:
        RequirementMissing: no folder has enough free space.
    """
    tried = candidates or (SHARED_MEMORY, Path(tempfile.gettempdir()))
    for folder in tried:
        if folder.is_dir() and shutil.disk_usage(folder).free > memory:
            return folder
    raise RequirementMissing(
        f"no room for the memory of the machines, {memory // MIB} MiB, in {' or '.join(map(str, tried))}",
        remedy=f"in a container: start the container with --shm-size={memory // MIB + 64}m; or set TMPDIR to a folder "
        "with more free space",
    )


def uml_lacks() -> str | None:
    """Return why provider ``uml`` cannot run on this host, or None if it can run."""
    machine = platform.machine()
    return None if machine == "x86_64" else f"no User-mode Linux kernels for {machine}"


@dataclass
class UmlPower(GuestPower):
    """The power control of a User-mode Linux machine, which reaches its member disks by qemu-storage-daemon."""

    environment: Mapping[str, str]
    """Environment variables of the kernel's process."""
    raid6: bool = field(init=False)
    """Whether the kernel is booted with RAID6 algorithms, see `WITHOUT_RAID6`."""
    _storage: Process | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Set what follows from the specification of the machine."""
        super().__post_init__()
        self.raid6 = self.spec.raid6

    def on(self) -> None:
        """Switch the machine on: first qemu-storage-daemon for its member disks, then the kernel."""
        self.boots += 1
        sockets: list[Path] = []
        if self.disks is not None:
            sockets = self._serve(self.disks)
        directory, tap = self.site.directory, tap_name(self.spec.name)
        argv = uml_command(self.spec, self.kernel, self.image, directory, tap, sockets, raid6=self.raid6)
        self._guest = self.site.namespace.spawn(argv, output=self.consoles[-1], environment=self.environment)

    def fence(self) -> int:
        """Cut the machine's power; its disks keep theirs, and fail what the machine's storage daemon still sends."""
        at_ns = now_ns()
        super()._kill()
        if self.disks is not None:
            self.disks.engine.fence(self.disks.machine)
        self._end_storage()
        return at_ns

    def _serve(self, disks: MemberDisks) -> list[Path]:
        sockets = [self.site.directory / f"vhost-{export}.sock" for export in disks.exports]
        for socket in sockets:
            socket.unlink(missing_ok=True)
        disks.power_on()
        self._storage = storage = self.site.namespace.spawn(
            storage_daemon_command(
                nbd_socket=disks.engine_socket, exports=dict(zip(disks.exports, sockets, strict=True))
            ),
            output=self.site.logs / ".".join(filter(None, ("storage-daemon", disks.machine, "log"))),
        )

        def listening() -> bool:
            storage.require_running()
            return all(socket.exists() for socket in sockets)

        wait_until(listening, Deadline.after(SOCKET_DEADLINE_S), "sockets of qemu-storage-daemon", interval_s=0.002)
        return sockets

    def _kill(self) -> None:
        super()._kill()
        self._end_storage()

    def _end_storage(self) -> None:
        if self._storage is not None:
            self._storage.kill()
            self._storage = None


class Uml(GuestProvider):
    """Provider ``uml``: creates the machines of one lab as processes of User-mode Linux."""

    name = NAME
    why_no_standby = None

    def __init__(self) -> None:
        super().__init__()
        self._environment: dict[str, Mapping[str, str]] = {}

    def prepare(self, topology: Topology) -> None:
        """Fetch and build the kernel and the image of each machine, and find space for the machines' memory.

        Raises:
            RequestError: a machine is to have several CPUs, or a requested kernel or image does not exist.
            RequirementMissing: this host lacks space for the machines' memory, or a program for building an image.
            RigError: a download or a build failed.
        """
        for machine in topology.machines:
            if machine.cpus > 1:
                raise RequestError(
                    f"{machine.name}: {machine.cpus} CPUs are requested, and provider uml has one CPU per machine",
                    remedy="use provider qemu",
                )
        super().prepare(topology)
        memory = sum(machine.memory for machine in topology.machines)
        self._environment = {name: uml_environment(found, memory) for name, found in self.kernels.items()}

    def power(self, spec: MachineSpec, site: Site) -> UmlPower:
        """Return the power control of a machine that is switched off."""
        name = spec.name
        return UmlPower(spec, self.kernels[name], self.images[name], site, self._environment[name])

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run with this provider cannot prove."""
        return CANNOT_PROVE

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of this host that run during a lab, by name, each as the start of its command."""
        return {**super().programs, "qemu-storage-daemon": ("qemu-storage-daemon",)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the report: which kernels ran with the XSTATE work-around (docs/kernels.md)."""
        helped = dict.fromkeys(one.name for one in self.kernels.values() if one.preload is not None)
        return tuple(f"{name} ran with the XSTATE work-around, which this CPU needs" for name in helped)
