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
    """Facts for reports about the provider of a lab's machines: limits, notes, and the programs of this host."""

    @property
    @abstractmethod
    def cannot_prove(self) -> tuple[str, ...]:
        """Sentences for reports: properties of a system that a run with these machines cannot show."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for reports about the way in which the machines ran."""
        return ()

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The command, without options, of each program of this host that runs a part of the lab, by name."""
        return {}


class Lab(Provenance):
    """The running machines, disks and network of a topology.

    Entering this context manager starts the lab; leaving it ends the lab, unless ``keep`` is set.
    """

    machines: dict[str, Machine]
    """The machines by name."""
    disks: Disks
    """The server's member disks."""
    keep: bool
    """Whether the lab continues after the context is left; an interruption (KeyboardInterrupt) ends the lab anyway."""

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
        """Start the lab, and push every action that ends a part of the lab onto ``undo``."""

    @abstractmethod
    def _leave(self) -> None:
        """Detach from the lab, so that the lab continues after this process ends."""

    @abstractmethod
    def listen(self) -> socket.socket:
        """Return a listening TCP socket to which the clients connect to report their operations."""

    @abstractmethod
    def callback_address(self, listener: socket.socket, client: Machine) -> tuple[str, int]:
        """Return the address and port at which a client reaches a socket that `listen` returned."""

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
        """The serial numbers of the server's member disks."""
        return tuple(disk.serial for disk in self.topology.disks)

    def start(self, machines: Sequence[Machine]) -> None:
        """Boot machines concurrently."""
        side_by_side([machine.start for machine in machines])

    def _disconnect(self) -> None:
        for machine in self.machines.values():
            machine.transport.close()


def side_by_side(actions: Sequence[Callable[[], object]]) -> None:
    """Run actions concurrently, each in a thread; raise the first failure.

    After a failure or an interruption, this function does not wait for the other actions: the caller then closes the
    namespace of the lab, which ends these actions.
    """
    executor = ThreadPoolExecutor(max_workers=max(1, len(actions)))
    try:
        for future in as_completed([executor.submit(action) for action in actions]):
            future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
