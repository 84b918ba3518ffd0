"""The storage stack of a lab: its request, its effective state, and the order in which its layers go online."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Self

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.core.layer import Machine, Spec, State, try_all
from raidproof.core.units import format_size
from raidproof.storage import kerberos, tls
from raidproof.storage.array import AnyArray, ArrayState, capacity, disk_path
from raidproof.storage.array.array import DEFAULT_KIND
from raidproof.storage.array.level import listed
from raidproof.storage.filesystem import AnyFilesystem, Filesystem, FilesystemSpec, FilesystemState, usual
from raidproof.storage.kerberos import SYS, Kerberos
from raidproof.storage.link import Link, LinkSpec, LinkState
from raidproof.storage.mount import Mount, MountSpec, MountState
from raidproof.storage.pair import FloatingAddress, PairSpec, PairState
from raidproof.storage.server import NFS_PORT, AnyServer, ExportSpec, ServerSpec, ServerState
from raidproof.storage.server.status_monitor import StatusMonitor
from raidproof.storage.tls import NONE, Tls
from raidproof.storage.tuning import ClientTuning, ServerTuning, TuningSpec, TuningState
from raidproof.storage.volume import AnyVolume, Volume, VolumeSpec, VolumeState, without

_WITHOUT_SECURITY = {"sec": SYS, "xprtsec": NONE}
"""The settings of security that mounts and export have in common, with the value that has none."""


class StackSpec(Spec):
    """The requested configuration of every layer. Combinations of layers that cannot work are refused."""

    array: AnyArray
    volume: AnyVolume = Field(default_factory=without)
    """The device between the array and the file system: ``direct`` is none."""
    filesystem: AnyFilesystem = Field(default_factory=usual, validate_default=True)
    mount: MountSpec = MountSpec()
    export: AnyServer = Field(default=ExportSpec(), validate_default=True)
    tuning: TuningSpec = TuningSpec()
    link: LinkSpec = LinkSpec()
    """The link of every machine to the lab's switch."""
    server_link: LinkSpec | None = None
    """The link of the server; None if it has the conditions of ``link``."""
    pair: PairSpec | None = None
    """The second server on the same disks; None if there is one server."""

    @field_validator("volume", mode="after")
    @classmethod
    def _aligned(cls, volume: VolumeSpec, others: ValidationInfo) -> VolumeSpec:
        """Align the volume to the stripes of the array."""
        return volume.aligned(others.data["array"].geometry) if "array" in others.data else volume

    @field_validator("export", mode="after")
    @classmethod
    def _as_secure_as_the_mounts(cls, export: ServerSpec, others: ValidationInfo) -> ServerSpec:
        """Let the export accept only the security of the mounts, unless its request has one."""
        mount: MountSpec | None = others.data.get("mount")
        if mount is None:
            return export
        for name, none in _WITHOUT_SECURITY.items():
            asked, accepted = getattr(mount, name), getattr(export, name, None)
            if accepted not in {None, asked}:
                raise RequestError(f"{name} of the mounts is {asked}, but the export accepts only {accepted}")
            if asked == none:
                continue
            if name not in type(export).model_fields:
                raise RequestError(f"{name} = {asked}: raidproof sets up no {name} for a server of type {export.type}")
            export = export.model_copy(update={name: asked})
        return export

    @field_validator("filesystem", mode="after")
    @classmethod
    def _fits_sectors(cls, filesystem: FilesystemSpec, others: ValidationInfo) -> FilesystemSpec:
        """Give the file system the sectors of the volume, unless its request has a sector size."""
        least = others.data["volume"].sector_size if "volume" in others.data else 0
        own = getattr(filesystem, "sector_size", least)
        if own < least and "sector_size" not in filesystem.model_fields_set:
            filesystem = filesystem.model_copy(update={"sector_size": least})
        elif own < least:
            raise RequestError(
                f"sector_size {format_size(own)} of {filesystem.type}: the volume has sectors of {format_size(least)}"
            )
        if filesystem.block_size < least:
            raise RequestError(
                f"block_size {format_size(filesystem.block_size)} of {filesystem.type}: the volume has sectors of "
                f"{format_size(least)}"
            )
        return filesystem

    @model_validator(mode="after")
    def _possible(self) -> Self:
        only = self.array.only_filesystem
        if only is not None and self.filesystem.type != only:
            raise RequestError(
                f"raid = {self.array.type} is the RAID of the file system {only} itself, so it cannot carry "
                f'{self.filesystem.type}; write filesystem = "{only}", or raid = "{DEFAULT_KIND}"'
            )
        self.filesystem.refuse_devices(self.array.geometry)
        self.filesystem.alignment(self.array.geometry)
        if self.filesystem.log in self.array.disks:
            raise RequestError(
                f"disk {self.filesystem.log} is in the array, so it cannot carry the external log of the file system"
            )
        self._refuse_volume()
        self._refuse_port()
        self._refuse_pair()
        if self.mount.vers not in self.export.versions:
            raise RequestError(
                f"{self.export.type} does not serve NFS version {self.mount.vers}; "
                f"valid: {', '.join(sorted(self.export.versions))}"
            )
        if not self.array.kind.parity and (requested := self.tuning.parity_only):
            others = listed(lambda kind: kind.parity > 0)
            raise RequestError(f"RAID{self.array.level} has no {' and no '.join(requested)}: only RAID{others} have")
        if not self.array.md_files and (requested := self.tuning.md_only):
            raise RequestError(f"an array of kind {self.array.type} has no {' and no '.join(requested)} in sysfs")
        if self.array.only_filesystem and self.tuning.array_read_ahead is not None:
            raise RequestError(
                f"array_read_ahead is a setting of the array's device, but raid = {self.array.type} makes no device; "
                "leave array_read_ahead out"
            )
        for name, size in (("rsize", self.mount.rsize), ("wsize", self.mount.wsize)):
            if size is not None and size > self.export.max_block_size:
                raise RequestError(
                    f"{name} {format_size(size)} of the mount: the server would clamp it to its max_block_size, "
                    f"{format_size(self.export.max_block_size)}"
                )
        return self

    def _refuse_volume(self) -> None:
        if self.array.only_filesystem is not None and not self.volume.direct:
            raise RequestError(
                f"volume = {self.volume.type} needs the device of an array, but raid = {self.array.type} makes none; "
                "leave volume out"
            )
        self.volume.refuse_array(self.array.device)
        for serial in self.volume.disks:
            if serial in self.array.disks:
                raise RequestError(f"disk {serial} is in the array, so it cannot be a cache")
            if serial == self.filesystem.log:
                raise RequestError(f"disk {serial} has the log of the file system, so it cannot be a cache")

    def _refuse_port(self) -> None:
        requested, served = self.mount.port, self.export.port
        # Without a requested port, an NFSv3 client queries the server's rpcbind, and an NFSv4 client uses 2049.
        if requested is None and (self.mount.vers == "3" or served == NFS_PORT):
            return
        if requested != served:
            raise RequestError(
                f"the client would connect to port {requested or NFS_PORT}, but the server listens on port {served}: "
                "request the same port for mount and export"
            )

    def _refuse_pair(self) -> None:
        if self.pair is None:
            return
        lacking = {
            f"raid = {self.array.type} is not brought online by another server here": not self.array.moves,
            f"volume = {self.volume.type} is not brought online by another server here": not self.volume.direct,
            f"a server of type {self.export.type} has no server scope here": not self.export.takes_over,
            "locks of NFSv3 need a database of rpc.statd, which does not move here": self.mount.has_locks_of_nlm,
            "the floating address has no certificate for TLS": self.mount.xprtsec != NONE,
            "the floating address has no principal of Kerberos": self.mount.sec != SYS,
        }
        if why := [reason for reason, holds in lacking.items() if holds]:
            raise RequestError(
                f"pair: {'; '.join(why)}", remedy="request md, no volume, knfsd, and NFSv4 without TLS and Kerberos"
            )

    @property
    def disks(self) -> tuple[str, ...]:
        """The serials of all disks of array and volume, and of the disk with the file system's external log."""
        log = self.filesystem.log
        return (*self.array.disks, *self.volume.disks, *([log] if log else []))

    @property
    def device(self) -> str:
        """The path of the device that carries the file system."""
        return self.volume.path(self.array.device)

    @property
    def encrypts(self) -> bool:
        """Whether the requests to the disks have other content than those of the file system."""
        return self.volume.encrypts or self.array.encrypts

    @property
    def in_plain_text(self) -> "StackSpec":
        """This stack without TLS and Kerberos, for a machine that mounts its own export."""
        if not self.mount.secured:
            return self
        mount = self.mount.model_copy(update=_WITHOUT_SECURITY)
        export = self.export.model_copy(update=dict.fromkeys(_WITHOUT_SECURITY))
        return self.model_copy(update={"mount": mount, "export": export})

    def source(self, address: str, path: str) -> str:
        """Return the source, ADDRESS:PATH, by which clients mount a path that the server exports.

        An NFSv4 client mounts an export with fsid 0 as ``/``, the root of the server's name space (exports(5)).
        """
        root = self.export.fsid == "0" and self.mount.vers != "3"
        return f"{address}:{'/' if root else path}"

    def refuse_servers(self, servers: int) -> None:
        """Check that a lab with this number of servers can carry the stack.

        Raises:
            RequestError: the stack has a pair of servers, and the lab has one.
        """
        if self.pair is not None and servers < 2:
            raise RequestError(
                "pair: the lab has one server", remedy="let the lab have a second one: with_standby(lab_topology)"
            )

    def refuse_disks(self, sizes: Mapping[str, int]) -> None:
        """Check that a server with these disks can carry the stack. No machine needs to run.

        ``sizes`` has the size in bytes of each disk of the server, by serial.

        Raises:
            RequestError: the server lacks a disk, the array is too small for the file system, or the bitmap chunk is
                too small for the members.
        """
        for serial in self.disks:
            if serial not in sizes:
                raise RequestError(f"the server has no disk {serial!r}; {nearest(serial, sizes)}")
        member_size = min(sizes[serial] for serial in self.array.members)
        self.array.refuse_size(member_size)
        self.volume.refuse_sizes(sizes)
        room = self.volume.room(capacity(self.array, member_size))
        least = self.filesystem.least_size(self.array.geometry)
        if room < least:
            raise RequestError(
                f"the array offers {format_size(room)}, which is too small for {self.filesystem.type}: this file "
                f"system needs at least {format_size(least)}",
                remedy="use larger disks, or more of them",
            )


def on_disks(spec: StackSpec, *, zeroed: bool) -> StackSpec:
    """Return the stack without ``assume_clean`` if the disks are not ``zeroed``: the array then needs a resync."""
    if zeroed or not spec.array.assume_clean:
        return spec
    return spec.model_copy(update={"array": spec.array.model_copy(update={"assume_clean": False})})


class StackState(State):
    """The effective configuration of every layer, as the record stores it."""

    array: SerializeAsAny[ArrayState]
    volume: VolumeState
    filesystem: FilesystemState
    export: SerializeAsAny[ServerState]
    mounts: dict[str, MountState]
    """The mounts by the name of the client."""
    tuning: TuningState = TuningState()
    links: dict[str, LinkState] = Field(default_factory=dict)
    """The links by the name of the machine, without links that have no requested conditions."""
    pair: PairState | None = None
    """The floating address of a pair of servers; None if there is one server."""
    caveats: tuple[str, ...] = ()
    """Sentences: the differences from a deployed server that affect the meaning of results."""


class Step(NamedTuple):
    """A named step that brings part of the stack online. The caller runs each step, and may time it."""

    name: str
    run: Callable[[], object]


class Stack:
    """The storage stack of one server and its clients."""

    def __init__(self, spec: StackSpec, server: Machine, clients: Sequence[Machine]) -> None:
        self.spec = spec
        self.tls = tls.daemons(spec.mount.xprtsec, server, clients)
        self.client_tuning = {client.name: ClientTuning(spec.tuning, client) for client in clients}
        links = {client.name: Link(spec.link, client) for client in clients}
        self.links = {name: link for name, link in links.items() if not link.spec.bare}
        self._serve_on(server)
        self.kerberos = kerberos.daemons(spec.mount.sec, server, clients, [spec.export.owner_of(0)])
        address = server.address if spec.pair is None else str(spec.pair.address.ip)
        source = spec.source(address, self.export.path)
        self.mounts = {client.name: Mount(spec.mount, client, source) for client in clients}

    def _serve_on(self, server: Machine) -> None:
        """Let the layers of the server be those of this machine."""
        spec = self.spec
        self.array = spec.array.array(server)
        self.array.log = spec.filesystem.log
        self.volume = Volume(spec.volume, server, self.array.device)
        self.filesystem = Filesystem(spec.filesystem, server, self.volume.device, spec.array.geometry)
        self.export = spec.export.server(server, self.filesystem.directory)
        self.monitor = StatusMonitor(server) if spec.mount.has_locks_of_nlm else None
        arrays = () if spec.array.only_filesystem else spec.array.device_paths
        self.tuning = ServerTuning(spec.tuning, server, [*map(disk_path, spec.array.disks)], arrays)
        link = Link(spec.link if spec.server_link is None else spec.server_link, server)
        if not link.spec.bare:
            self.links[server.name] = link
        self.address: FloatingAddress | None = None
        if spec.pair is not None:
            self.address = FloatingAddress(spec.pair, server)
            self.export.scope = spec.pair.scope
            self.export.client_records = spec.pair.records(self.filesystem.directory) or self.export.client_records
        self._server = server.name

    def hand_over(self, server: Machine) -> None:
        """Let the other server of the pair have the layers of the server; they must be offline on the former one.

        No command runs: `server_steps` brings the layers online.
        """
        former = self.array
        self.links.pop(self._server, None)
        self._serve_on(server)
        self.array.spec, self.array.expected_deviation = former.spec, former.expected_deviation

    def release(self) -> None:
        """Take the server's layers offline while clients work, so that the other server can have them.

        A step that fails ends the release: the layers below it are still in use.

        Raises:
            CommandFailed: a layer could not be taken offline.
        """
        self.deactivate_export()
        self.filesystem.deactivate()
        self.tuning.deactivate()
        self.volume.deactivate()
        self.array.deactivate()
        if link := self.links.get(self._server):
            link.deactivate()

    def create(self) -> None:
        """Create the array, the volume and the file system on the disks, and stop the array.

        The resync that follows the creation of the array ends first: before its end, a RAID5 is degraded and would
        not survive a power cut.
        """
        self.array.create()
        self.array.wait_clean()
        self.volume.create()
        self.filesystem.create()
        self.volume.deactivate()
        self.array.deactivate()

    def server_steps(self) -> tuple[Step, ...]:
        """Return the steps that bring the server online, in order. After a power cut of the server only they run."""
        return (
            Step("assemble", self._assemble),
            Step("mount", self._mount),
            Step("export", self._bring_online),
        )

    def _assemble(self) -> None:
        self.array.activate()
        self.volume.activate()
        self.tuning.activate()

    def _mount(self) -> FilesystemState:
        return self.filesystem.activate(self.array.mount_options)

    def _bring_online(self) -> None:
        self._connect(self._server)
        self.activate_export()

    def activate_export(self) -> None:
        """Start the server with its daemons, and export the directory.

        Raises:
            NotEffective: an effective value of the export is not as requested.
        """
        self._secure(self._server)
        if self.monitor is not None:
            self.monitor.activate()
        self.export.activate()
        if self.monitor is not None:
            self.monitor.notify()
        # At last, so that no client reaches a server without the export, which would reply ESTALE.
        if self.address is not None:
            self.address.activate()

    def _connect(self, name: str) -> None:
        if link := self.links.get(name):
            link.activate()

    def _secure(self, name: str) -> None:
        for daemon in self._daemons(name):
            daemon.activate()

    def _daemons(self, name: str) -> list[Tls | Kerberos]:
        """Return what secures the mounts on a machine."""
        return [by_name[name] for by_name in (self.tls, self.kerberos) if name in by_name]

    def client_steps(self) -> tuple[Step, ...]:
        """Return the steps that bring the clients online, one for each client. They may run at the same time."""
        return tuple(Step(f"{name} mount", partial(self.activate_client, name)) for name in self.mounts)

    def activate_client(self, name: str) -> MountState:
        """Bring one client online, also after its reboot: set its link and kernel settings, and mount the export.

        Raises:
            NotEffective: an effective value of the link, the kernel settings or the mount is not as requested.
        """
        self._connect(name)
        self.client_tuning[name].activate()
        self._secure(name)
        return self.mounts[name].activate()

    def activate(self) -> StackState:
        """Bring server and clients online, and verify that every layer is as requested.

        No client may have a mount before: no client then has state to reclaim, so this method ends the grace period.

        Raises:
            NotEffective: an effective value is not as requested.
        """
        for step in self.server_steps():
            step.run()
        self.export.end_grace()
        return self.activate_clients()

    def activate_clients(self) -> StackState:
        """Bring every client online, and verify that every layer is as requested. The server must be online.

        Raises:
            NotEffective: an effective value is not as requested.
        """
        if self.monitor is not None:
            self.monitor.activate()
        _all_at_once([step.run for step in self.client_steps()], "clients could not mount the export")
        return self.state()

    def deactivate(self) -> None:
        """Take the clients, then the server offline. Every step runs, even if an earlier step fails.

        Raises:
            ExceptionGroup: the errors of the steps that failed.
        """
        try_all(
            (
                self.deactivate_clients,
                self.deactivate_export,
                self.filesystem.deactivate,
                self.tuning.deactivate,
                self.volume.deactivate,
                self.array.deactivate,
                self._disconnect,
            ),
            "not every layer of the stack could be taken offline",
        )

    def deactivate_clients(self) -> None:
        """Unmount the export on every client."""
        _all_at_once([mount.deactivate for mount in self.mounts.values()], "clients could not unmount the export")
        daemons = [daemon.deactivate for name in self.mounts for daemon in self._daemons(name)]
        _all_at_once(daemons, "the daemons of TLS or Kerberos of a client could not be ended")

    def deactivate_export(self) -> None:
        """Remove the export, and end its daemons. Every step runs, even if an earlier step fails.

        Raises:
            ExceptionGroup: the errors of the steps that failed.
        """
        # lockd ends with nfsd, and waits for rpc.statd then.
        steps: list[Callable[[], object]] = [] if self.address is None else [self.address.deactivate]
        steps += [self.export.deactivate, *([] if self.monitor is None else [self.monitor.deactivate])]
        steps += [daemon.deactivate for daemon in self._daemons(self._server)]
        try_all(steps, "the export could not be removed")

    def _disconnect(self) -> None:
        settings = [tuning.deactivate for tuning in self.client_tuning.values()]
        links = [link.deactivate for link in self.links.values()]
        _all_at_once([*settings, *links], "kernel settings of clients, or links, could not be restored")

    def destroy(self) -> None:
        """Erase file system, volume and array from the disks. The stack must be offline."""
        self.array.activate()
        self.volume.activate()
        self.filesystem.destroy()
        self.volume.destroy()
        self.array.destroy()

    def state(self) -> StackState:
        """Read the effective configuration of every layer, and verify that it is as requested.

        Raises:
            NotEffective: an effective value is not as requested.
        """
        return StackState(
            array=self.array.require_effective(),
            volume=self.volume.require_effective(),
            filesystem=self.filesystem.require_effective(),
            # After the mounts: the kernel lists the options of an export once a client has accessed it.
            export=self.export.require_effective(),
            mounts={name: mount.require_effective() for name, mount in self.mounts.items()},
            tuning=self._tuning_state(),
            links={name: link.require_effective() for name, link in self.links.items()},
            pair=None if self.address is None else self.address.require_effective(),
            caveats=self.caveats(),
        )

    def _tuning_state(self) -> TuningState:
        clients = {name: tuning.require_effective() for name, tuning in self.client_tuning.items()}
        return self.tuning.require_effective().model_copy(update={"clients": clients})

    def caveats(self) -> tuple[str, ...]:
        """Return the differences from a deployed server that affect the meaning of a verdict on this stack."""
        return (
            *self.spec.export.caveats(),
            *self.spec.filesystem.caveats(),
            *self.spec.tuning.caveats(),
            *self.spec.array.caveats(),
            *self.spec.volume.caveats(),
        )


def _all_at_once(actions: Sequence[Callable[[], object]], failure: str) -> None:
    if not actions:
        return
    with ThreadPoolExecutor(len(actions)) as pool:
        running = [pool.submit(action) for action in actions]
    failed = [error for future in running if (error := future.exception()) is not None]
    stops = [error for error in failed if not isinstance(error, Exception)]
    if stops:
        raise stops[0]
    if errors := [error for error in failed if isinstance(error, Exception)]:
        raise errors[0] if len(errors) == 1 else ExceptionGroup(failure, errors)
