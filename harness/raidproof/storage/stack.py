"""The whole storage stack of a lab, and the order of its layers."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Self

from pydantic import Field, SerializeAsAny, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.core.layer import Machine, Spec, State, try_all
from raidproof.core.units import format_size
from raidproof.storage.array import Array, ArraySpec, ArrayState, capacity, disk_path
from raidproof.storage.array.level import listed
from raidproof.storage.filesystem import AnyFilesystem, Filesystem, FilesystemState, XfsSpec
from raidproof.storage.link import Link, LinkSpec, LinkState
from raidproof.storage.mount import Mount, MountSpec, MountState
from raidproof.storage.server import NFS_PORT, AnyServer, ExportSpec, ServerState
from raidproof.storage.tuning import ClientTuning, ServerTuning, TuningSpec, TuningState


class StackSpec(Spec):
    """A requested stack; combinations of layers that cannot work are refused."""

    array: ArraySpec
    filesystem: AnyFilesystem = XfsSpec()
    export: AnyServer = ExportSpec()
    mount: MountSpec = MountSpec()
    tuning: TuningSpec = TuningSpec()
    link: LinkSpec = LinkSpec()
    """The link of every machine to the switch."""
    server_link: LinkSpec | None = None
    """The link of the server, if it differs."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self.filesystem.alignment(self.array.geometry)
        if self.filesystem.log in self.array.disks:
            raise RequestError(f"disk {self.filesystem.log} is in the array, so it cannot carry the external log")
        self._refuse_port()
        if not self.array.kind.parity and (asked := self.tuning.parity_only):
            others = listed(lambda kind: kind.parity > 0)
            raise RequestError(f"RAID{self.array.level} has no {' and no '.join(asked)}: only RAID{others} do")
        for name, size in (("rsize", self.mount.rsize), ("wsize", self.mount.wsize)):
            if size is not None and size > self.export.max_block_size:
                raise RequestError(
                    f"{name} {format_size(size)}: the server would clamp it to its max_block_size, "
                    f"{format_size(self.export.max_block_size)}"
                )
        return self

    def _refuse_port(self) -> None:
        asked, served = self.mount.port, self.export.port
        # NFSv3 asks the server's rpcbind for the port, NFSv4 uses the default port.
        if asked is None and (self.mount.vers == "3" or served == NFS_PORT):
            return
        if asked != served:
            raise RequestError(f"the client would ask at port {asked or NFS_PORT}, and nfsd listens on {served}")

    @property
    def disks(self) -> tuple[str, ...]:
        """The serials of all disks of the stack."""
        log = self.filesystem.log
        return (*self.array.disks, *([log] if log else []))

    def source(self, address: str, path: str) -> str:
        """Return the mount source of a server that exports this path: an export with fsid 0 is the NFSv4 root."""
        root = self.export.fsid == 0 and self.mount.vers != "3"
        return f"{address}:{'/' if root else path}"

    def refuse_disks(self, sizes: Mapping[str, int]) -> None:
        """Check, before a server exists, that one with these disks (bytes by serial) can carry the stack.

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
    """Return the stack that can be built on disks: the first resync is skipped only if they are zero."""
    if zeroed or not spec.array.assume_clean:
        return spec
    return spec.model_copy(update={"array": spec.array.model_copy(update={"assume_clean": False})})


class StackState(State):
    """The effective configuration of every layer, for the record."""

    array: ArrayState
    filesystem: FilesystemState
    export: SerializeAsAny[ServerState]
    mounts: dict[str, MountState]
    """By client name."""
    tuning: TuningState = TuningState()
    links: dict[str, LinkState] = Field(default_factory=dict)
    """By machine name; only for links with conditions."""
    caveats: tuple[str, ...] = ()
    """Differences from a deployed server that affect the meaning of results."""


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
        """Write array and filesystem onto the disks. Then the array is offline, and the filesystem not mounted.

        This waits for the resync that follows a creation: until its end a RAID5 is degraded, and would not survive a
        cut.
        """
        self.array.create()
        self.array.wait_clean()
        self.filesystem.create()
        self.array.deactivate()

    def server_steps(self) -> tuple[Step, ...]:
        """Return the steps that bring the server online, in order: after a power cut only these steps run."""
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
        """Return the steps that bring the clients online; they may run at the same time."""
        return tuple(Step(f"{name} mount", partial(self.activate_client, name)) for name in self.mounts)

    def activate_client(self, name: str) -> MountState:
        """Bring one client online, also after a reboot: its link, its tuning, its mount.

        Raises:
            NotEffective: one is not as requested.
        """
        self._connect(name)
        self.client_tuning[name].activate()
        return self.mounts[name].activate()

    def activate(self) -> StackState:
        """Bring server and clients online, and verify that every layer is as requested.

        No client has a mount before this, so the server's grace period is ended at once.

        Raises:
            NotEffective: one is not.
        """
        for step in self.server_steps():
            step.run()
        self.export.end_grace()
        return self.activate_clients()

    def activate_clients(self) -> StackState:
        """Mount on every client of a server that is online, and verify that every layer is as requested.

        Raises:
            NotEffective: one is not.
        """
        _all_at_once([step.run for step in self.client_steps()], "clients did not mount")
        return self.state()

    def deactivate(self) -> None:
        """Take clients and server offline, in reverse order; every step is tried even if another failed.

        Raises:
            ExceptionGroup: the failures.
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
        """Erase filesystem and array from the disks; they must be offline."""
        self.array.activate()
        self.filesystem.destroy()
        self.array.destroy()

    def state(self) -> StackState:
        """Read the effective configuration of every layer.

        Raises:
            NotEffective: one is not as requested.
        """
        return StackState(
            array=self.array.require_effective(),
            filesystem=self.filesystem.require_effective(),
            # Only after a client has accessed the export, the kernel has it.
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
        """Return the differences from a deployed server that affect the meaning of a verdict on this stack."""
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
