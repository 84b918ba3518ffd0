"""A lab: one network with its machines and disks, from nothing to answering, and back to nothing."""

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from harness.disk.assignment import disks_of
from harness.disk.client import EngineClient
from harness.disk.daemon import nbdkit_command
from harness.disk.messages import save_disks
from harness.enclosure import Enclosure
from harness.errors import RequestError, nearest
from harness.lab_directory import LabDirectory
from harness.log import step
from harness.machine import image, kernel, uml
from harness.machine.config_disk import config_disk
from harness.machine.keys import LabKeys
from harness.machine.machine import Machine
from harness.machine.transport import Transport
from harness.network import create_network, tap_name
from harness.topology import MachineSpec, Role, Topology
from harness.waiting import Deadline, wait_until

PROVIDERS = (uml.NAME,)
ENGINE_DEADLINE_S = 15.0
QUEUE_DEPTH = 16
"""Requests that qemu-storage-daemon keeps under way on each member (MAX_NBD_REQUESTS in QEMU's block/nbd.c)."""


class Lab:
    """The machines of a topology, booted. A context manager: leaving it ends everything that it started."""

    def __init__(self, topology: Topology, *, logs: Path | None = None, keep: bool = False) -> None:
        if topology.provider not in PROVIDERS:
            raise RequestError(
                f"no such provider: {topology.provider!r}", remedy=nearest(topology.provider, PROVIDERS)
            )
        self.topology = topology
        self.keep = keep
        self.machines: dict[str, Machine] = {}
        self._logs = logs
        self._undo = ExitStack()

    @property
    def server(self) -> Machine:
        """The machine in the role ``server``."""
        return self.machines[self.topology.server.name]

    @property
    def clients(self) -> tuple[Machine, ...]:
        """The machines in the role ``client``."""
        return tuple(self.machines[spec.name] for spec in self.topology.clients)

    @property
    def serials(self) -> tuple[str, ...]:
        """The server's member disks."""
        return tuple(disk.serial for disk in self.topology.disks)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._build(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.keep and kind is not KeyboardInterrupt:
            self.directory.mark_kept(self.keys)
            self.enclosure.keep()
            self.enclosure.detach()
            self._disconnect()
        else:
            self._undo.close()

    def _disconnect(self) -> None:
        for machine in self.machines.values():
            machine.transport.close()

    def _build(self, undo: ExitStack) -> None:
        # First of all, because it is the first to find that there is no place for a lab.
        self.directory = LabDirectory.create()
        undo.callback(self.directory.remove)
        self.kernel = kernel.get(self.topology.kernel or kernel.DEFAULT)
        self.image = image.get(self.topology.image or image.DEFAULT)
        memory = sum(machine.memory for machine in self.topology.machines)
        self.environment = uml.uml_environment(self.kernel, memory)
        step("starting the lab: network and disks")
        self.logs = self._logs or self.directory.path
        self.logs.mkdir(parents=True, exist_ok=True)
        # After the enclosure's end: no machine answers any more, and whoever still tries to log in is told.
        undo.callback(self._disconnect)
        self.enclosure = undo.enter_context(Enclosure(self.directory.path))
        self.directory.register(self.enclosure.pid, self.topology)
        create_network(self.enclosure, self.topology)
        self.keys = LabKeys.generate()
        self.engine = self._start_engine(undo)
        self.machines = {spec.name: self._make(spec) for spec in self.topology.machines}
        step(f"booting {', '.join(self.machines)} ({self.kernel.release})")
        self.start(list(self.machines.values()))

    def _start_engine(self, undo: ExitStack) -> EngineClient:
        directory = self.directory.path
        control, config = directory / "engine.sock", directory / "disks.json"
        save_disks(config, disks_of(self.topology))
        process = self.enclosure.spawn(
            nbdkit_command(
                socket=self.engine_socket,
                config=config,
                control=control,
                # Requests that wait for their disks must not keep others from theirs.
                threads=QUEUE_DEPTH if self.topology.timed else 1,
            ),
            output=self.logs / "disk-engine.log",
        )

        def listening() -> bool:
            process.require_running()
            return control.exists()

        wait_until(listening, Deadline.after(ENGINE_DEADLINE_S), "the disk engine", interval_s=0.005)
        return undo.enter_context(EngineClient(control))

    @property
    def engine_socket(self) -> Path:
        """Where the disk engine speaks NBD."""
        return self.directory.path / "nbd.sock"

    def _make(self, spec: MachineSpec) -> Machine:
        directory = self.directory.path
        (directory / f"{spec.name}.config").write_bytes(config_disk(spec, self.topology, self.keys))
        disks = None
        if spec.role is Role.SERVER:
            disks = uml.MemberDisks(self.engine, self.engine_socket, self.serials)
        power = uml.UmlPower(
            spec,
            self.kernel,
            self.image,
            directory,
            self.logs,
            self.enclosure,
            tap_name(spec.name),
            self.environment,
            disks,
        )
        transport = Transport(spec.name, str(spec.address.ip), self.keys, self.socket)
        return Machine(spec, power, transport)

    def socket(self) -> socket.socket:
        """Return a TCP socket on the lab's network."""
        return self.enclosure.socket()

    def start(self, machines: Sequence[Machine]) -> None:
        """Boot machines side by side."""
        side_by_side([machine.start for machine in machines])


def side_by_side(actions: Sequence[Callable[[], object]]) -> None:
    """Do things at the same time; the first that fails is what is raised.

    Neither a failure nor an interruption waits for the others: closing the enclosure, which follows, ends them.
    """
    executor = ThreadPoolExecutor(max_workers=max(1, len(actions)))
    try:
        for future in as_completed([executor.submit(action) for action in actions]):
            future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
