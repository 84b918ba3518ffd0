"""Provider ``uml``, the default: User-mode Linux, where a machine is a process."""

import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raidproof.core.errors import RequestError, RequirementMissing
from raidproof.core.topology import MachineSpec, Topology
from raidproof.core.units import MIB
from raidproof.core.waiting import Deadline, wait_until
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
    "uml: one CPU a machine; races that need several CPUs do not show",
    "uml: the guest's clock, CPU speed and network are those of a process: MB/s compare only within a run",
    "uml: disks are simulated from their profiles, and without one have no mechanics at all: rates compare "
    "configurations, and prove nothing of a particular drive",
    "uml: the kernel is the architecture um, with Debian's configuration for it, not that of the deployed machine",
    "uml: each server's system disk survives a cut as the host's page cache; only member disks lose their caches",
)
WITHOUT_RAID6 = "initcall_blacklist=raid6_select_algo"
"""Skips the benchmark of RAID6 algorithms (lib/raid6/algos.c), which takes 1 s of the 2.2 s of a boot.

Without the benchmark the kernel has no RAID6 algorithm, and an array of level 6 causes an oops.
"""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
SOCKET_DEADLINE_S = 10.0


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
    """Return the command that boots a machine; its standard output is the console."""
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
    """Return the environment of the kernels' processes, for machines with this much memory in all (bytes)."""
    preload = [*map(str, libraries()), *filter(None, [kernel.environment.get("LD_PRELOAD")])]
    return {**kernel.environment, "LD_PRELOAD": ":".join(preload), "TMPDIR": str(memory_folder(memory))}


def memory_folder(memory: int, candidates: Sequence[Path] | None = None) -> Path:
    """Return the folder for the machines' memory: files that disappear with them, preferably in a tmpfs.

    A kernel that finds no room for a page there is killed by SIGBUS at some later time.

    Raises:
        RequirementMissing: there is no room; names the folders that were tried.
    """
    looked = candidates or (SHARED_MEMORY, Path(tempfile.gettempdir()))
    for folder in looked:
        if folder.is_dir() and shutil.disk_usage(folder).free > memory:
            return folder
    raise RequirementMissing(
        f"no room for the memory of the machines, {memory // MIB} MiB, in {' or '.join(map(str, looked))}",
        remedy=f"in a container: start it with --shm-size={memory // MIB + 64}m; or set TMPDIR",
    )


def uml_lacks() -> str | None:
    """Return why provider ``uml`` cannot run on this host, or None."""
    machine = platform.machine()
    return None if machine == "x86_64" else f"no kernels for {machine}"


@dataclass
class UmlPower(GuestPower):
    """The power of a machine that is a kernel as a process, with a storage daemon in front of its disks."""

    environment: Mapping[str, str]
    raid6: bool = field(default=False, init=False)
    _storage: Process | None = field(default=None, init=False)

    def on(self) -> None:
        """Start the storage daemon, then the kernel."""
        self.boots += 1
        sockets: list[Path] = []
        if self.disks is not None:
            sockets = self._serve(self.disks)
        directory, tap = self.site.directory, tap_name(self.spec.name)
        argv = uml_command(self.spec, self.kernel, self.image, directory, tap, sockets, raid6=self.raid6)
        self._guest = self.site.namespace.spawn(argv, output=self.consoles[-1], environment=self.environment)

    def _serve(self, disks: MemberDisks) -> list[Path]:
        sockets = [self.site.directory / f"vhost-{serial}.sock" for serial in disks.serials]
        for socket in sockets:
            socket.unlink(missing_ok=True)
        disks.power_on()
        self._storage = storage = self.site.namespace.spawn(
            storage_daemon_command(
                nbd_socket=disks.engine_socket, exports=dict(zip(disks.serials, sockets, strict=True))
            ),
            output=self.site.logs / "storage-daemon.log",
        )

        def listening() -> bool:
            storage.require_running()
            return all(socket.exists() for socket in sockets)

        wait_until(listening, Deadline.after(SOCKET_DEADLINE_S), "the storage daemon's sockets", interval_s=0.002)
        return sockets

    def _kill(self) -> None:
        super()._kill()
        if self._storage is not None:
            self._storage.kill()
            self._storage = None


class Uml(GuestProvider):
    """Makes the machines of one lab."""

    name = NAME

    def __init__(self) -> None:
        super().__init__()
        self._environment: dict[str, Mapping[str, str]] = {}

    def prepare(self, topology: Topology) -> None:
        """Fetch kernels and images.

        Raises:
            RequestError: several CPUs are requested for a machine, or something that cannot run.
            RequirementMissing: there is no room for the machines' memory.
        """
        for machine in topology.machines:
            if machine.cpus > 1:
                raise RequestError(
                    f"{machine.name}: User-mode Linux has one CPU, not {machine.cpus}", remedy="use provider qemu"
                )
        super().prepare(topology)
        memory = sum(machine.memory for machine in topology.machines)
        self._environment = {name: uml_environment(found, memory) for name, found in self.kernels.items()}

    def power(self, spec: MachineSpec, site: Site) -> UmlPower:
        """Return the power switch of a machine."""
        name = spec.name
        return UmlPower(spec, self.kernels[name], self.images[name], site, self._environment[name])

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run with this provider cannot prove."""
        return CANNOT_PROVE

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The host programs that take part."""
        return {**super().programs, "qemu-storage-daemon": ("qemu-storage-daemon",)}

    @property
    def notes(self) -> tuple[str, ...]:
        """The kernels that needed a work-around for this CPU."""
        helped = dict.fromkeys(one.name for one in self.kernels.values() if one.preload is not None)
        return tuple(f"{name} ran with the XSTATE work-around, which this CPU needs" for name in helped)
