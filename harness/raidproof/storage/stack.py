"""The whole storage stack of a lab: the one place where the order of the layers is written."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Self

from pydantic import Field, SerializeAsAny, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.core.layer import Machine, Spec, State, try_all
from raidproof.core.units import format_size
from raidproof.storage.array import Array, ArraySpec, ArrayState, capacity, disk_path
from raidproof.storage.array.spec import PARITY_LEVELS
from raidproof.storage.filesystem import AnyFilesystem, Filesystem, FilesystemState, XfsSpec
from raidproof.storage.link import Link, LinkSpec, LinkState
from raidproof.storage.mount import Mount, MountSpec, MountState
from raidproof.storage.server import NFS_PORT, AnyServer, ExportSpec, ServerState
from raidproof.storage.tuning import ClientTuning, ServerTuning, TuningSpec, TuningState


class StackSpec(Spec):
    """A stack that is asked for; what two layers cannot do together is refused."""

    array: ArraySpec
    filesystem: AnyFilesystem = XfsSpec()
    export: AnyServer = ExportSpec()
    mount: MountSpec = MountSpec()
    tuning: TuningSpec = TuningSpec()
    link: LinkSpec = LinkSpec()
    """Of every machine to the switch."""
    server_link: LinkSpec | None = None
    """Of the server, where it is another one."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self.filesystem.alignment(self.array.geometry)
        if self.filesystem.log in self.array.disks:
            raise RequestError(f"disk {self.filesystem.log} is in the array, so it cannot carry the external log")
        self._refuse_port()
        if self.array.level not in PARITY_LEVELS and (asked := self.tuning.parity_only):
            raise RequestError(f"RAID{self.array.level} has no {' and no '.join(asked)}: only RAID4, 5 and 6 do")
        for name, size in (("rsize", self.mount.rsize), ("wsize", self.mount.wsize)):
            if size is not None and size > self.export.max_block_size:
                raise RequestError(
                    f"{name} {format_size(size)}: the server would clamp it to its max_block_size, "
                    f"{format_size(self.export.max_block_size)}"
                )
        return self

    def _refuse_port(self) -> None:
        asked, served = self.mount.port, self.export.port
        # NFSv3 asks the server's rpcbind for the port, NFSv4 takes the usual one.
        if asked is None and (self.mount.vers == "3" or served == NFS_PORT):
            return
        if asked != served:
            raise RequestError(f"the client would ask at port {asked or NFS_PORT}, and nfsd listens on {served}")

    @property
    def disks(self) -> tuple[str, ...]:
        """The serials of all disks that it takes."""
        log = self.filesystem.log
        return (*self.array.disks, *([log] if log else []))

    def source(self, address: str, path: str) -> str:
        """Return what is mounted of a server that exports this path: an export with fsid 0 is NFSv4's root."""
        root = self.export.fsid == 0 and self.mount.vers != "3"
        return f"{address}:{'/' if root else path}"

    def refuse_disks(self, sizes: Mapping[str, int]) -> None:
        """Make sure that a server with these disks (bytes by serial) can carry it, before there is one.

        Raises:
            RequestError: a disk does not exist, or the array would be too small for the filesystem, or a member for
                the array's bitmap.
        """
        for serial in self.disks:
            if serial not in sizes:
                raise RequestError(f"the server has no disk {serial!r}; {nearest(serial, sizes)}")
        member_size = min(sizes[serial] for serial in self.array.members)
        self.array.refuse_size(member_size)
        room = capacity(self.array, member_size)
        least = self.filesystem.least_size(self.array.geometry)
        if room < least:
            raise RequestError(
                f"an array of {format_size(room)} is too small for {self.filesystem.type}, "
                f"which needs {format_size(least)} on it"
            )


def on_disks(spec: StackSpec, *, zeroed: bool) -> StackSpec:
    """Return what can be built on disks: where they are not zero, the first resync is not skipped."""
    if zeroed or not spec.array.assume_clean:
        return spec
    return spec.model_copy(update={"array": spec.array.model_copy(update={"assume_clean": False})})


class StackState(State):
    """The effective configuration of every layer, for the record."""

    array: ArrayState
    filesystem: FilesystemState
    export: SerializeAsAny[ServerState]
    mounts: dict[str, MountState]
    """By the client's name."""
    tuning: TuningState = TuningState()
    links: dict[str, LinkState] = Field(default_factory=dict)
    """By the machine's name; only where conditions were asked."""
    caveats: tuple[str, ...] = ()
    """What keeps this from meaning what it would on a deployed server."""


class Step(NamedTuple):
    """One step of an activation, which the caller may time."""

    name: str
    run: Callable[[], object]


class Stack:
    """The storage stack of one server and its clients."""

    def __init__(self, spec: StackSpec, server: Machine, clients: Sequence[Machine]) -> None:
        self.spec = spec
        self.array = Array(spec.array, server)
        self.filesystem = Filesystem(spec.filesystem, server, self.array.device, spec.array.geometry)
        self.export = spec.export.server(server, self.filesystem.directory)
        source = spec.source(server.address, self.export.path)
        self.mounts = {client.name: Mount(spec.mount, client, source) for client in clients}
        self.tuning = ServerTuning(
            spec.tuning, server, [*map(disk_path, spec.array.disks)], [md.device for md in spec.array.devices]
        )
        self.client_tuning = {client.name: ClientTuning(spec.tuning, client) for client in clients}
        links = {client.name: Link(spec.link, client) for client in clients}
        links[server.name] = Link(spec.link if spec.server_link is None else spec.server_link, server)
        self.links = {name: link for name, link in links.items() if not link.spec.bare}
        self._server = server.name

    def create(self) -> None:
        """Write array and filesystem onto the disks. The array is online afterwards, the filesystem not mounted.

        A resync that follows a creation is waited for: until its end a RAID5 is degraded, and would not survive a cut.
        """
        self.array.create()
        self.array.wait_clean()
        self.filesystem.create()
        self.array.deactivate()

    def server_steps(self) -> tuple[Step, ...]:
        """What brings the server online, in order: after a power cut this and nothing else is run."""
        return (
            Step("assemble", self._assemble),
            Step("mount", self.filesystem.activate),
            Step("export", self._export),
        )

    def _assemble(self) -> None:
        self.array.activate()
        self.tuning.activate()

    def _export(self) -> None:
        self._connect(self._server)
        self.export.activate()

    def _connect(self, name: str) -> None:
        if link := self.links.get(name):
            link.activate()

    def client_steps(self) -> tuple[Step, ...]:
        """What brings each client online; they may run at the same time."""
        return tuple(Step(f"{name} mount", partial(self.activate_client, name)) for name in self.mounts)

    def activate_client(self, name: str) -> MountState:
        """Bring one client online, also after a reboot: its link, its knobs, its mount.

        Raises:
            NotEffective: one is not what was asked.
        """
        self._connect(name)
        self.client_tuning[name].activate()
        return self.mounts[name].activate()

    def activate(self) -> StackState:
        """Bring server and clients online, and check that every layer is what was asked.

        No client has a mount before this, so the server's grace period is ended at once.

        Raises:
            NotEffective: one is not.
        """
        for step in self.server_steps():
            step.run()
        self.export.end_grace()
        return self.activate_clients()

    def activate_clients(self) -> StackState:
        """Mount on every client of a server that is online, and check that every layer is what was asked.

        Raises:
            NotEffective: one is not.
        """
        _all_at_once([step.run for step in self.client_steps()], "clients did not mount")
        return self.state()

    def deactivate(self) -> None:
        """Take clients and server offline, in reverse; every step is tried even if another failed.

        Raises:
            ExceptionGroup: what failed.
        """
        try_all(
            (
                self.deactivate_clients,
                self.export.deactivate,
                self.filesystem.deactivate,
                self.tuning.deactivate,
                self.array.deactivate,
                self._disconnect,
            ),
            "the stack did not go offline in good order",
        )

    def deactivate_clients(self) -> None:
        """Unmount on every client."""
        _all_at_once([mount.deactivate for mount in self.mounts.values()], "clients did not unmount")

    def _disconnect(self) -> None:
        knobs = [tuning.deactivate for tuning in self.client_tuning.values()]
        links = [link.deactivate for link in self.links.values()]
        _all_at_once([*knobs, *links], "knobs and links were not put back")

    def destroy(self) -> None:
        """Make filesystem and array disappear from the disks; they must be offline."""
        self.array.activate()
        self.filesystem.destroy()
        self.array.destroy()

    def state(self) -> StackState:
        """Read the effective configuration of every layer.

        Raises:
            NotEffective: one is not what was asked.
        """
        return StackState(
            array=self.array.require_effective(),
            filesystem=self.filesystem.require_effective(),
            # Only now, after a client has come, does the kernel know the export.
            export=self.export.require_effective(),
            mounts={name: mount.require_effective() for name, mount in self.mounts.items()},
            tuning=self._tuning_state(),
            links={name: link.require_effective() for name, link in self.links.items()},
            caveats=self.caveats(),
        )

    def _tuning_state(self) -> TuningState:
        clients = {name: tuning.require_effective() for name, tuning in self.client_tuning.items()}
        return self.tuning.require_effective().model_copy(update={"clients": clients})

    def caveats(self) -> tuple[str, ...]:
        """What keeps a verdict on this stack from meaning what it would on a deployed server."""
        trusted = ("the first resync was skipped (assume_clean)",) if self.spec.array.assume_clean else ()
        return (*self.spec.export.caveats(), *self.spec.tuning.caveats(), *trusted)


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
