"""Deployment of the stacks of a plan's cells in a lab, in which only layers that differ are rebuilt."""

from typing import Any

from raidproof.core.layer import Machine, try_all
from raidproof.core.log import step
from raidproof.disk.cache import CacheMode
from raidproof.lab.lab import Lab
from raidproof.monitor import Monitor
from raidproof.storage.member import disk_path
from raidproof.storage.stack import Stack, StackSpec, on_disks
from raidproof.workload.workload import CLIENTS, SERVER, Place

NOTHING = "nothing"
"""Name of the lowest rebuilt layer if no layer was rebuilt."""
MD_SAFE_MODE_DELAY_S = 0.2
"""md's default of safe_mode_delay in seconds (drivers/md/md.c)."""
FROM_THE_GROUND = ("array", "volume", "filesystem", "tuning", "link", "server_link")
"""Layers of which none is rebuilt alone: if one of them differs, the whole stack is built again on blank disks."""


class StackDeployer:
    """Deploys one stack after another in a lab, with disk timing off, and rebuilds only what differs."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.monitor = Monitor(lab.server, lab.clients)
        self.stack: Stack | None = None
        self._programs: set[tuple[str, str]] = set()
        self._on: str | None = None
        """Where the workload of the deployed stack runs (`raidproof.plan.works.where`); None without a stack."""

    def deploy(self, spec: StackSpec, on: str = CLIENTS) -> tuple[dict[str, Any], str]:
        """Deploy a stack for a workload that runs at ``on``; return its effective state, and the lowest rebuilt layer.

        The effective state is by layer. Only the layers that the workload uses are built.

        Raises:
            NotEffective: the effective state of a layer differs from the requested one.
            RigError: a command failed; the lab is unusable from now on.
        """
        self.disable_timing()
        spec = on_disks(slowed(spec, self.lab.topology.slow_motion), zeroed=self.lab.disks.zeroed)
        # A workload on the block device of the array or of a disk has overwritten the file system.
        same = self.stack if on == self._on and on in {CLIENTS, SERVER} else None
        built = lowest_difference(same.spec if same else None, spec)
        if built != NOTHING:
            step(f"building the layer {built} and all layers above")
        if same is None or built == "array":
            self.teardown()
            self.lab.disks.reset()
            self._track_no_volatile_data()
            new = Stack(spec, self.lab.server, self.lab.clients)
            found = _build(new, on)
            self._slow_md(new)
        else:
            new = Stack(spec, self.lab.server, self.lab.clients)
            # Keep the objects that have stored the original values of the kernel settings, to restore these values.
            new.tuning, new.client_tuning, new.links = same.tuning, same.client_tuning, same.links
            if built != "export":
                # The server keeps its keys, with which those of the clients must agree.
                new.tls, new.kerberos = same.tls, same.kerberos
            # After a failure no stack counts as deployed.
            self.stack = None
            found = _rebuild(same, new, built, on)
        self.stack, self._on = new, on
        return found, built

    def _slow_md(self, stack: Stack) -> None:
        """Multiply md's safe_mode_delay by the slow-motion factor, so that the array stays active between requests."""
        delay_s = MD_SAFE_MODE_DELAY_S * self.lab.topology.slow_motion
        paths = [path.removeprefix("/dev/") for path in stack.spec.array.device_paths]
        files = [f"/sys/block/{name}/md/safe_mode_delay" for name in paths]
        if delay_s > MD_SAFE_MODE_DELAY_S and self.lab.server.exists(files[-1]):
            self.lab.server.put_all(dict.fromkeys(files, f"{delay_s:.3f}"))

    def _track_no_volatile_data(self) -> None:
        """Stop the disk engine from tracking volatile data, as no power is cut while a workload is measured."""
        volatile = [one.serial for one in self.lab.disks.describe().members if one.mode is CacheMode.VOLATILE]
        if volatile:
            self.lab.disks.set_mode(CacheMode.PROTECTED, volatile)

    def place(self, clients: int) -> Place:
        """Return the machines that run a workload on the deployed stack, and the directory or device that it uses."""
        assert self.stack is not None  # noqa: S101  the caller has deployed a stack
        server = [self.lab.server]
        match self._on:
            case "clients":
                mount = next(iter(self.stack.mounts.values()))
                return Place(self.lab.clients[:clients], mount.directory)
            case "server":
                return Place(server, self.stack.filesystem.directory)
            case "array":
                return Place(server, "/dev", self.stack.array.device)
            case serial:
                return Place(server, "/dev", disk_path(serial or ""))

    def require(self, machine: Machine, program: str) -> None:
        """Verify that a machine has a program; each pair of machine and program is checked only once.

        Raises:
            RequirementMissing: the machine does not have the program.
        """
        if (machine.name, program) not in self._programs:
            next(one for one in self.lab.machines.values() if one.name == machine.name).require(program)
            self._programs.add((machine.name, program))

    def teardown(self) -> None:
        """Deactivate all layers of the deployed stack, if any."""
        self.disable_timing()
        stack, on, self.stack, self._on = self.stack, self._on, None, None
        if stack is None:
            return
        match on:
            case "clients":
                stack.deactivate()
            case "server":
                try_all(
                    (
                        stack.filesystem.deactivate,
                        stack.tuning.deactivate,
                        stack.volume.deactivate,
                        stack.array.deactivate,
                    ),
                    "the stack did not go offline",
                )
            case "array":
                try_all((stack.tuning.deactivate, stack.array.deactivate), "the array did not go offline")

    def disable_timing(self) -> None:
        """Turn disk timing off, so that the simulated disks reply at once."""
        if self.lab.topology.timed:
            self.lab.disks.set_timing(False)

    def enable_timing(self) -> None:
        """Turn disk timing on, with idle disks and empty caches."""
        if self.lab.topology.timed:
            self.lab.disks.set_timing(True)


def slowed(spec: StackSpec, slow_motion: float) -> StackSpec:
    """Return a stack whose links are slowed down by the slow-motion factor of the disks."""
    changes = {
        name: link.model_copy(
            update={
                "rate": None if link.rate is None else round(link.rate / slow_motion / 8) * 8,
                "delay": round(link.delay * slow_motion),
                "jitter": round(link.jitter * slow_motion),
            }
        )
        for name in ("link", "server_link")
        if (link := getattr(spec, name)) is not None
    }
    return spec if slow_motion == 1 else spec.model_copy(update=changes)


def lowest_difference(old: StackSpec | None, new: StackSpec) -> str:
    """Return the lowest layer that must be rebuilt to change from one stack to another, or `NOTHING`."""
    if old is None or any(getattr(old, part) != getattr(new, part) for part in FROM_THE_GROUND):
        return "array"
    if old.export != new.export:
        return "export"
    return "mount" if old.mount != new.mount else NOTHING


def _build(stack: Stack, on: str) -> dict[str, Any]:
    """Build the layers that a workload at ``on`` uses on blank disks; return their effective state by layer."""
    match on:
        case "clients":
            stack.create()
            return stack.activate().model_dump(mode="json")
        case "server":
            stack.create()
            assemble, mount, _ = stack.server_steps()
            assemble.run()
            mount.run()
            return _state_on_server(stack)
        case "array":
            stack.array.create()
            stack.array.wait_clean()
            stack.tuning.activate()
            return {
                "array": stack.array.require_effective().model_dump(mode="json"),
                "tuning": stack.tuning.require_effective().model_dump(mode="json"),
            }
        case _:
            return {}


def _state_on_server(stack: Stack) -> dict[str, Any]:
    return {
        "array": stack.array.require_effective().model_dump(mode="json"),
        "volume": stack.volume.require_effective().model_dump(mode="json"),
        "filesystem": stack.filesystem.require_effective().model_dump(mode="json"),
        "tuning": stack.tuning.require_effective().model_dump(mode="json"),
    }


def _rebuild(old: Stack, new: Stack, built: str, on: str) -> dict[str, Any]:
    """Rebuild the layer ``built`` and all layers above; return the effective state by layer."""
    if on == SERVER:
        # A workload in the server's directory does not depend on export and mount.
        return _state_on_server(new)
    if built == "export":
        try_all((old.deactivate_clients, old.deactivate_export), "the previous export did not go offline")
        new.activate_export()
        new.export.end_grace()
    elif built == "mount":
        old.deactivate_clients()
    state = new.state() if built == NOTHING else new.activate_clients()
    return state.model_dump(mode="json")
