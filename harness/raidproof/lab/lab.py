"""The interface of every lab, independent of its provider."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from typing import Self

from raidproof.core.errors import RequirementMissing
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
        self._active = topology.server.name

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
        """The machine that serves: the one in the role ``server``, until `hand_over` changes it."""
        return self.machines[self._active]

    @property
    def standby(self) -> Machine | None:
        """The other server, which does not serve now; None if the lab has one server."""
        second = self.topology.standby
        if second is None:
            return None
        return self.machines[self.topology.server.name if self._active == second.name else second.name]

    def hand_over(self) -> None:
        """Exchange the servers: from now on `server` is the other one.

        Raises:
            RequirementMissing: the lab has one server.
        """
        if (other := self.standby) is None:
            raise RequirementMissing("the lab has one server, so that no other can take over")
        self._active = other.name

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
