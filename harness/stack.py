"""The whole storage stack of a lab: the one place where the order of the layers is written."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self

from pydantic import model_validator

from harness.array import Array, ArraySpec, ArrayState, capacity
from harness.errors import RequestError, nearest
from harness.export import NFS_PORT, Export, ExportSpec, ExportState
from harness.filesystem import Filesystem, FilesystemSpec, FilesystemState, XfsSpec
from harness.layer import Machine, Spec, State, try_all
from harness.mount import Mount, MountSpec, MountState
from harness.units import format_size


class StackSpec(Spec):
    """A stack that is asked for; what two layers cannot do together is refused."""

    array: ArraySpec
    filesystem: FilesystemSpec = XfsSpec()
    export: ExportSpec = ExportSpec()
    mount: MountSpec = MountSpec()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self.filesystem.alignment(self.array.geometry)
        if isinstance(self.filesystem, XfsSpec) and self.filesystem.log in self.array.disks:
            raise RequestError(f"disk {self.filesystem.log} is in the array, so it cannot carry the external log")
        self._refuse_port()
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
        log = self.filesystem.log if isinstance(self.filesystem, XfsSpec) else None
        return (*self.array.disks, *([log] if log else []))

    def refuse_disks(self, sizes: Mapping[str, int]) -> None:
        """Make sure that a server with these disks (bytes by serial) can carry it, before there is one.

        Raises:
            RequestError: a disk does not exist, or the array would be too small for the filesystem.
        """
        for serial in self.disks:
            if serial not in sizes:
                raise RequestError(f"the server has no disk {serial!r}; {nearest(serial, sizes)}")
        room = capacity(self.array, min(sizes[serial] for serial in self.array.members))
        least = self.filesystem.least_size(self.array.geometry)
        if room < least:
            raise RequestError(
                f"an array of {format_size(room)} is too small for {self.filesystem.type}, "
                f"which needs {format_size(least)} on it"
            )


class StackState(State):
    """The effective configuration of every layer, for the record."""

    array: ArrayState
    filesystem: FilesystemState
    export: ExportState
    mounts: dict[str, MountState]
    """By the client's name."""
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
        self.export = Export(spec.export, server, self.filesystem.directory)
        root = spec.export.fsid == 0 and spec.mount.vers != "3"
        source = f"{server.address}:{'/' if root else self.export.path}"
        self.mounts = {client.name: Mount(spec.mount, client, source) for client in clients}

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
            Step("assemble", self.array.activate),
            Step("mount", self.filesystem.activate),
            Step("export", self.export.activate),
        )

    def client_steps(self) -> tuple[Step, ...]:
        """What brings each client online; they may run at the same time."""
        return tuple(Step(f"{name} mount", mount.activate) for name, mount in self.mounts.items())

    def activate(self) -> StackState:
        """Bring server and clients online, and check that every layer is what was asked.

        Raises:
            NotEffective: one is not.
        """
        for step in self.server_steps():
            step.run()
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
                self.array.deactivate,
            ),
            "the stack did not go offline in good order",
        )

    def deactivate_clients(self) -> None:
        """Unmount on every client."""
        _all_at_once([mount.deactivate for mount in self.mounts.values()], "clients did not unmount")

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
            caveats=self.caveats(),
        )

    def caveats(self) -> tuple[str, ...]:
        """What keeps a verdict on this stack from meaning what it would on a deployed server."""
        trusted = ("the first resync was skipped (assume_clean)",) if self.spec.array.assume_clean else ()
        return (*self.spec.export.caveats(), *trusted)


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
