"""The interface of every lab, independent of its provider."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from typing import Self

from raidproof.core.topology import Topology
from raidproof.disk.disks import Disks
from raidproof.machine.machine import Machine


class Provenance(ABC):
    """How the machines of a lab come to be, as far as a report must say it."""

    @property
    @abstractmethod
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run with these machines cannot prove."""

    @property
    def notes(self) -> tuple[str, ...]:
        """How the machines ran, as far as a reader of the report must know it."""
        return ()

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The host programs that take part, by name, each as the words of its command."""
        return {}


class Lab(Provenance):
    """The running machines of a topology. A context manager: leaving it ends everything that it started."""

    machines: dict[str, Machine]
    disks: Disks
    """The server's members."""
    keep: bool
    """Whether the lab continues when the context is left."""

    def __init__(self, topology: Topology, *, keep: bool = False) -> None:
        self.topology = topology
        self.keep = keep
        self.machines = {}

        self._undo = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._build(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.keep and kind is not KeyboardInterrupt:
            self._leave()
            self._disconnect()
        else:
            self._undo.close()

    @abstractmethod
    def _build(self, undo: ExitStack) -> None:
        """Build the lab; ``undo`` gets everything that ends it."""

    @abstractmethod
    def _leave(self) -> None:
        """Detach from the lab, so that it continues without this process."""

    @abstractmethod
    def listen(self) -> socket.socket:
        """Return a listening socket that receives the reports of the clients."""

    @abstractmethod
    def callback_address(self, listener: socket.socket, client: Machine) -> tuple[str, int]:
        """Return the host and port to which a client connects to reach a listener of `listen`."""

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
        """The serials of the server's member disks."""
        return tuple(disk.serial for disk in self.topology.disks)

    def start(self, machines: Sequence[Machine]) -> None:
        """Boot machines concurrently."""
        side_by_side([machine.start for machine in machines])

    def _disconnect(self) -> None:
        for machine in self.machines.values():
            machine.transport.close()


def side_by_side(actions: Sequence[Callable[[], object]]) -> None:
    """Run actions concurrently; raise the first failure.

    A failure or an interruption does not wait for the other actions: the namespace is closed next, which ends them.
    """
    executor = ThreadPoolExecutor(max_workers=max(1, len(actions)))
    try:
        for future in as_completed([executor.submit(action) for action in actions]):
            future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
