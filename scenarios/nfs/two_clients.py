"""A fixture with two clients of one export, a process with open files on each, and a capture of all NFS traffic."""

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
"""Lease and grace period in seconds: the shortest that nfsd accepts."""
EXPORT = ExportSpec(delegations=False, lease_s=LEASE_S, grace_s=LEASE_S)
LOCKD_GRACE = "/proc/fs/lockd/nlm_end_grace"
DROP_CACHES = ["tee", "/proc/sys/vm/drop_caches"]


class TwoClients:
    """A server, two clients with its export mounted, a process on each client, and a capture of all NFS traffic."""

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
        """Return the path of a file on the clients."""
        return f"{self.context.stack.mounts[self.one.client.name].directory}/{name}"

    def on_server(self, name: str) -> str:
        """Return the path of a file on the server."""
        return f"{self.context.stack.filesystem.directory}/{name}"

    def read_on_server(self, name: str) -> str:
        """Return the content of a file on the server, read without its page cache."""
        self.server.succeed(DROP_CACHES, stdin="3\n")
        return self.server.get(self.on_server(name))

    def suffer(self, fault: Fault, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Inject a fault and heal it; if it took the server down, activate the server's stack again.

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
        """Send a new request from each client: NFSv4 does not resend what the dead server's TCP has acknowledged."""
        for client in self.context.lab.clients:
            if client.boot_id is not None:
                client.start_command(["stat", "--file-system", self.path("")])

    def end_grace(self) -> None:
        """End lockd's grace period; only for use when no client has anything left to reclaim.

        nfsd ends its own grace period early in this case, but NFSv4 locks also wait for that of lockd.
        """
        self.server.put("Y", LOCKD_GRACE)

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """All captured calls and replies; to be read only after the clients have finished."""
        if self._exchanges is None:
            self._exchanges = self._capture.exchanges()
        return self._exchanges

    def must(self, judge: Callable[..., Verdict], *arguments: Any, **named: Any) -> str:
        """Assert that a check of the captured packets passes, and return its reason.

        Raises:
            ProductError: the check failed.
            Inconclusive: the capture has nothing to check.
        """
        __tracebackhide__ = True
        verdict = judge(self.exchanges, *arguments, **named)
        if verdict.outcome is not Outcome.PASS:
            kind = ProductError if verdict.outcome is Outcome.FAIL else Inconclusive
            raise kind(f"{verdict.checker}: {verdict.reason}", remedy=f"see {self._capture.path}")
        return verdict.reason


class Clients:
    """Builds a stack on the shared lab's blank disks for one scenario, and removes it afterwards."""

    def __init__(self, current_run: Run, name: str) -> None:
        self._campaign = current_run
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
        """Mount an export on two clients; ``stack`` has arguments of `stack_of`.

        ``may_say`` is a part of kernel messages that are ignored here, such as the message about a lost lock.
        ``ruins`` says that the scenario destroys the stack: the lab is discarded and kernel logs are not judged.
        """
        try:
            lab = self._campaign.lab
            lab.disks.reset()
            spec = stack_of(level, **{"export": EXPORT, **stack}).model_copy(update={"link": link or LinkSpec()})
            built = Stack(on_disks(spec, zeroed=lab.disks.zeroed), lab.server, lab.clients)
            begun = {name: moment(machine) for name, machine in lab.machines.items()}
            built.create()
            built.activate()
            path = self._campaign.store.directory(self._name) / "nfs.pcapng"
            with (
                capturing(lab, path) as capture,
                lock_holder(lab.clients[0], lab) as one,
                lock_holder(lab.clients[1], lab) as two,
            ):
                clients = TwoClients(FaultContext(lab, built), one, two, capture)
                yield clients
            if ruins:
                self._campaign.discard_lab()
                return
            built.deactivate()
            said = [(name, said_since(lab.machines[name], since)) for name, since in begun.items()]
            _must_be_calm([(name, _without(log, may_say)) for name, log in said])
        except BaseException:
            # The state of the lab is unknown.
            self._campaign.discard_lab()
            raise


def _without(log: str, excused: str | None) -> str:
    return log if excused is None else "\n".join(line for line in log.splitlines() if excused not in line)


def _must_be_calm(logs: list[tuple[str, str]]) -> None:
    verdict = judge_kernel_logs(logs)
    if verdict.outcome is not Outcome.PASS:
        raise ProductError(f"kernel log: {verdict.reason}")


@pytest.fixture
def two_clients(current_run: Run, request: pytest.FixtureRequest) -> Clients:
    """Two clients of one export: ``with two_clients() as clients``."""
    return Clients(current_run, name_of(request.node.name))


__all__ = ["EXPORT", "Clients", "TwoClients", "two_clients"]
