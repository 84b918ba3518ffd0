"""The fixture `two_clients`: two clients of one export, with a process on each that opens and locks files.

All NFS traffic is captured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from raidproof.core.errors import Inconclusive, ProductError
from raidproof.fault import Fault, FaultContext
from raidproof.machine.kernel_log import moment, said_since
from raidproof.machine.machine import Machine
from raidproof.monitor.capture import Capture, Exchange, capturing
from raidproof.pytest_plugin.fixtures import name_of, stack_of
from raidproof.record.outcome import Outcome, Verdict
from raidproof.run.run import Run
from raidproof.storage.link import LinkSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import Stack, on_disks
from raidproof.verdict.kernel_log import judge_kernel_logs
from raidproof.workload.lock import LockHolder, lock_holder

LEASE_S = 10
"""Duration of the lease and of the grace period in seconds: the shortest that nfsd accepts."""
EXPORT = ExportSpec(delegations=False, lease_s=LEASE_S, grace_s=LEASE_S)
LOCKD_GRACE = "/proc/fs/lockd/nlm_end_grace"
DROP_CACHES = ["tee", "/proc/sys/vm/drop_caches"]


class TwoClients:
    """A running stack with two clients, with a process on each client, and with a capture of all NFS traffic."""

    def __init__(self, context: FaultContext, one: LockHolder, two: LockHolder, capture: Capture) -> None:
        self.context = context
        self.one = one
        self.two = two
        self._capture = capture
        self._exchanges: list[Exchange] | None = None

    @property
    def server(self) -> Machine:
        """The server."""
        return self.context.lab.server

    def path(self, name: str) -> str:
        """Return the path on the clients of a file in the export."""
        return f"{self.context.stack.mounts[self.one.client.name].directory}/{name}"

    def on_server(self, name: str) -> str:
        """Return the path on the server of a file in the export."""
        return f"{self.context.stack.filesystem.directory}/{name}"

    def read_on_server(self, name: str) -> str:
        """Return the content of a file of the export, read on the server after its page cache was dropped."""
        self.server.succeed(DROP_CACHES, stdin="3\n")
        return self.server.get(self.on_server(name))

    def suffer(self, fault: Fault, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Inject a fault and heal it; if the fault took the server down, activate the server's stack again.

        ``meanwhile`` is called before the server serves clients again.
        """
        injected_on = fault.target(self.context)
        fault.inject(self.context)
        if injected_on is not self.server:
            meanwhile()
            fault.heal(self.context)
        else:
            fault.heal(self.context)
            *storage, export = self.context.stack.server_steps()
            for step in storage:
                step.run()
            meanwhile()
            export.run()
        self.rouse()

    def rouse(self) -> None:
        """Send a new request from each running client, so that the client notices a restart of the server.

        An NFSv4 client does not resend requests that the dead server's TCP has acknowledged (docs/findings.md).
        """
        for client in self.context.lab.clients:
            if client.boot_id is not None:
                client.start_command(["stat", "--file-system", self.path("")])

    def end_grace(self) -> None:
        """End lockd's grace period on the server, after all clients have reclaimed their locks.

        In this case nfsd ends its own grace period early, but NFSv4 locks also wait for lockd's (docs/findings.md).
        """
        self.server.put("Y", LOCKD_GRACE)

    def record_clients(self) -> None:
        """Write nfsdcld's records of clients to the disk.

        Otherwise a power cut within seconds loses the record of the newest client (docs/findings.md).
        """
        self.server.succeed(["sync", "--file-system", self.context.stack.export.client_records])

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """All captured calls and replies. The first access decodes the capture, so the clients must have finished."""
        if self._exchanges is None:
            self._exchanges = self._capture.exchanges()
        return self._exchanges

    def must(self, judge: Callable[..., Verdict], *arguments: Any, **named: Any) -> str:
        """Judge the captured packets; return the reason of the verdict if it is PASS.

        Raises:
            ProductError: the verdict is FAIL.
            Inconclusive: the verdict is another one, for example because no packet of the wanted kind was captured.
        """
        __tracebackhide__ = True
        verdict = judge(self.exchanges, *arguments, **named)
        if verdict.outcome is not Outcome.PASS:
            kind = ProductError if verdict.outcome is Outcome.FAIL else Inconclusive
            raise kind(f"{verdict.checker}: {verdict.reason}", remedy=f"see {self._capture.path}")
        return verdict.reason


class Clients:
    """Builds a stack with two clients on the shared lab's blank disks for a scenario, and removes it afterwards."""

    def __init__(self, current_run: Run, name: str) -> None:
        self._current_run = current_run
        self._name = name

    @contextmanager
    def __call__(
        self,
        level: str = "5",
        *,
        link: LinkSpec | None = None,
        may_say: str | None = None,
        ruins: bool = False,
        stack: Mapping[str, Any] = MappingProxyType({}),
    ) -> Iterator[TwoClients]:
        """Build a stack whose export is mounted on two clients; ``stack`` has arguments of `stack_of`.

        ``may_say``: lines of kernel logs with this text are allowed, such as the message about a lost lock.
        ``ruins``: the scenario destroys the stack, so that the lab is discarded and kernel logs are not judged.
        """
        try:
            lab = self._current_run.lab
            lab.disks.reset()
            spec = stack_of(level, **{"export": EXPORT, **stack}).model_copy(update={"link": link or LinkSpec()})
            built = Stack(on_disks(spec, zeroed=lab.disks.zeroed), lab.server, lab.clients)
            begun = {name: moment(machine) for name, machine in lab.machines.items()}
            built.create()
            built.activate()
            path = self._current_run.store.directory(self._name) / "nfs.pcapng"
            with (
                capturing(lab, path) as capture,
                lock_holder(lab.clients[0], lab) as one,
                lock_holder(lab.clients[1], lab) as two,
            ):
                clients = TwoClients(FaultContext(lab, built), one, two, capture)
                yield clients
            if ruins:
                self._current_run.discard_lab()
                return
            built.deactivate()
            said = [(name, said_since(lab.machines[name], since)) for name, since in begun.items()]
            _must_be_calm([(name, _without(log, may_say)) for name, log in said])
        except BaseException:
            # The state of the lab is unknown.
            self._current_run.discard_lab()
            raise


def _without(log: str, excused: str | None) -> str:
    return log if excused is None else "\n".join(line for line in log.splitlines() if excused not in line)


def _must_be_calm(logs: list[tuple[str, str]]) -> None:
    verdict = judge_kernel_logs(logs)
    if verdict.outcome is not Outcome.PASS:
        raise ProductError(f"kernel log: {verdict.reason}")


@pytest.fixture
def two_clients(current_run: Run, request: pytest.FixtureRequest) -> Clients:
    """Return a function that builds a stack with two clients: ``with two_clients() as clients``."""
    return Clients(current_run, name_of(request.node.name))


__all__ = ["EXPORT", "Clients", "TwoClients", "two_clients"]
