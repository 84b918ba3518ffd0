"""The knobs of machines: set, read back, put back."""

from collections.abc import Mapping, Sequence

from raidproof.core.layer import Machine, Value, read_files, require_effective
from raidproof.storage.tuning.knob import (
    DIRTY,
    MD,
    QUEUE,
    VM,
    WRITE_BACK,
    DirtyState,
    TuningState,
    Whose,
    asked_of_md,
    dirty_restoring,
    dirty_values,
    md_values,
    parse_dirty,
    parse_md_tuning,
    parse_queue,
    queue_restoring,
    queue_values,
    write_back_restoring,
    write_back_values,
)
from raidproof.storage.tuning.spec import TuningSpec


def _require_dirty(spec: TuningSpec, whose: Whose, machine: str, found: DirtyState) -> None:
    asked = {name: getattr(spec, f"{whose}_{name}") for name in DIRTY[:2]}
    require_effective(f"the memory of {machine}", asked, found.model_dump())


def _require_write_back(spec: TuningSpec, machine: str, found: DirtyState) -> None:
    asked = {name: getattr(spec, f"server_{name}") for name in WRITE_BACK}
    require_effective(f"the write-back of {machine}", asked, found.model_dump())


class ServerTuning:
    """The knobs of the server: its members, its arrays, its memory. The array must be online."""

    def __init__(self, spec: TuningSpec, machine: Machine, disks: Sequence[str], arrays: Sequence[str]) -> None:
        """``disks`` and ``arrays`` are device paths; the last array is the one that is exported."""
        self.spec = spec
        self.machine = machine
        self.disks = tuple(disks)
        self.arrays = tuple(arrays)
        self._before: TuningState | None = None

    def activate(self) -> TuningState | None:
        """Set what was asked, if anything was, and check it.

        Raises:
            NotEffective: the kernel has something else.
        """
        exported = self.arrays[-1].removeprefix("/dev/")
        memory = dirty_values(self.spec, "server") | write_back_values(self.spec)
        values = md_values(self.spec, [exported]) | memory
        if not values and not queue_values(self.spec, self.disks):
            return None
        if self.spec.server_xfs_sync_s is not None:
            # Its knobs are there once it is loaded, and no XFS need be mounted yet. It may also be built in.
            self.machine.run(["modprobe", "--quiet", "xfs"])
        names = self._names()
        if self._before is None:
            self._before = self._state(names)
        # What the kernel refuses shows when it is read back.
        self.machine.put_all(queue_values(self.spec, names.values()) | values)
        return self._effective(self._state(names))

    def deactivate(self) -> None:
        """Put back what activate() found, but for the array's own, which ends with it."""
        if self._before is None or self._before.server is None:
            return
        values = dirty_restoring(self.spec, "server", self._before.server)
        values |= write_back_restoring(self.spec, self._before.server)
        # By the disk's path: after a reboot the kernel may have another name for it.
        for disk, name in self._names().items():
            values |= queue_restoring(self.spec, name, self._before.members[disk])
        self.machine.put_all(values)
        self._before = None

    def state(self) -> TuningState:
        """Read all knobs.

        Raises:
            RigError: the array is not online.
        """
        return self._state(self._names())

    def require_effective(self) -> TuningState:
        """Return the state, if that is what was asked.

        Raises:
            NotEffective: it is not.
        """
        return self._effective(self.state())

    def _effective(self, state: TuningState) -> TuningState:
        for disk, queue in state.members.items():
            asked: dict[str, Value] = {knob.name: getattr(self.spec, knob.name) for knob in QUEUE}
            require_effective(f"the queue of {disk}", asked, queue.model_dump())
        asked = {knob.name: asked_of_md(self.spec, knob) for knob in MD}
        require_effective(self.arrays[-1], asked, state.arrays[self.arrays[-1]].model_dump())
        if state.server:
            _require_dirty(self.spec, "server", self.machine.name, state.server)
            _require_write_back(self.spec, self.machine.name, state.server)
        return state

    def _names(self) -> dict[str, str]:
        found = self.machine.resolve(self.disks)
        return {disk: path.removeprefix("/dev/") for disk, path in zip(self.disks, found, strict=True)}

    def _state(self, names: Mapping[str, str]) -> TuningState:
        mds = {path: path.removeprefix("/dev/") for path in self.arrays}
        paths = [
            *(f"/sys/block/{name}/{knob.file}" for name in names.values() for knob in QUEUE),
            *(f"/sys/block/{name}/{knob.file}" for name in mds.values() for knob in MD),
            *(f"{VM}/{name}" for name in DIRTY),
            *WRITE_BACK.values(),
        ]
        content = read_files(self.machine, paths)
        return TuningState(
            members={disk: parse_queue(name, content) for disk, name in names.items()},
            arrays={path: parse_md_tuning(name, content) for path, name in mds.items()},
            server=parse_dirty(content),
        )


class ClientTuning:
    """The knobs of one client: its memory."""

    def __init__(self, spec: TuningSpec, machine: Machine) -> None:
        self.spec = spec
        self.machine = machine
        self._before: DirtyState | None = None

    def activate(self) -> DirtyState | None:
        """Set what was asked, if anything was, and check it.

        Raises:
            NotEffective: the kernel has something else.
        """
        values = dirty_values(self.spec, "client")
        if not values:
            return None
        if self._before is None:
            self._before = self.state()
        self.machine.put_all(values)
        return self.require_effective()

    def deactivate(self) -> None:
        """Put back what activate() found."""
        if self._before is not None:
            self.machine.put_all(dirty_restoring(self.spec, "client", self._before))
            self._before = None

    def state(self) -> DirtyState:
        """Read the limits."""
        return parse_dirty(read_files(self.machine, [*(f"{VM}/{name}" for name in DIRTY), *WRITE_BACK.values()]))

    def require_effective(self) -> DirtyState:
        """Return the limits, if they are what was asked.

        Raises:
            NotEffective: they are not.
        """
        state = self.state()
        _require_dirty(self.spec, "client", self.machine.name, state)
        return state
