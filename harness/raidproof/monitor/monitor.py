"""The monitor: watches the machines of a lab while a workload runs, and never gets in its way."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from raidproof.core.errors import RaidproofError, RigError
from raidproof.core.log import logger
from raidproof.core.units import MIB
from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest import monitor_agent as agent
from raidproof.machine.machine import Machine
from raidproof.machine.remote_command import RemoteCommand
from raidproof.monitor.host import host_busy, host_times
from raidproof.monitor.recording import Recording, parse_recording

AGENT = "/run/raidproof/monitor.py"
OUTPUT = "/run/raidproof/monitor.out"
START_DEADLINE_S = 10.0
STOP_DEADLINE_S = 20.0
LIMIT = 8 * MIB
"""Bytes of memory that a machine spends on it; after that only the last look is taken. About 20 minutes of seconds."""

# A machine that cannot be watched is no reason to stop what runs in it.
_FAILURES = (RaidproofError, OSError, EOFError)


class Monitor:
    """Watches a server and its clients. Use it again for the next measurement: it installs itself once a boot."""

    def __init__(self, server: Machine, clients: Iterable[Machine], interval_s: float = 1.0) -> None:
        self.server = server
        self.machines = {machine.name: machine for machine in (server, *clients)}
        self.interval_s = interval_s
        self.recordings: dict[str, Recording] = {}
        """Of the last run, by machine; one that could not be watched is missing."""
        self.failures: dict[str, str] = {}
        """Why, by machine."""
        self.host_cpu: float | None = None
        """Share of all of the host's cores that was in use."""
        self.output: dict[str, str] = {}
        """What the agents printed, to be kept beside the record."""
        self._installed: dict[str, str | None] = {}
        self._commands: dict[str, tuple[RemoteCommand, str | None]] = {}

    @contextmanager
    def running(self) -> Iterator["Monitor"]:
        """Watch while the body runs: the first look is before it, the last one after it.

        Raises nothing of its own: what went wrong is in ``failures``.
        """
        self.recordings, self.failures, self.output, self._commands = {}, {}, {}, {}
        self.host_cpu = None
        for machine in self.machines.values():
            self._try(machine, self._start)
        for machine in self.machines.values():
            self._try(machine, self._wait_first)
        before = host_times()
        try:
            yield self
        finally:
            self.host_cpu = host_busy(before, host_times())
            self._stop()

    def _try(self, machine: Machine, step: Callable[[Machine], object]) -> None:
        if machine.name in self.failures:
            return
        try:
            step(machine)
        except _FAILURES as error:
            self.failures[machine.name] = str(error)
            logger.warning("%s is not watched: %s", machine.name, error)

    def _start(self, machine: Machine) -> None:
        if machine.boot_id is None:
            raise RigError("it is off")
        if self._installed.get(machine.name) != machine.boot_id:
            machine.put(Path(agent.__file__).read_bytes(), AGENT)
            self._installed[machine.name] = machine.boot_id
        machine.succeed(["rm", "-f", OUTPUT])
        argv: Sequence[str] = ["python3", AGENT, str(self.interval_s), str(LIMIT), OUTPUT]
        self._commands[machine.name] = (machine.start_command(argv), machine.boot_id)

    def _wait_first(self, machine: Machine) -> None:
        command, _ = self._commands[machine.name]

        def looked() -> bool:
            if command.ended:
                raise RigError(f"the monitor's agent ended: {command.wait(Deadline.after(2)).stderr}")
            return machine.run(["test", "-s", OUTPUT]).ok

        wait_until(looked, Deadline.after(START_DEADLINE_S), "the monitor's first look")

    def _stop(self) -> None:
        # All at once: each takes its last look when its input ends.
        for name in self._commands:
            self._try(self.machines[name], self._close)
        for name in self._commands:
            self._try(self.machines[name], self._collect)
        for name in self.failures.keys() & self._commands.keys():
            # Without input it ends, should it still be there.
            with suppress(*_FAILURES):
                self._commands[name][0].close_input()

    def _close(self, machine: Machine) -> None:
        command, boot_id = self._commands[machine.name]
        if machine.boot_id != boot_id:
            raise RigError("it lost its power while it was watched")
        command.close_input()

    def _collect(self, machine: Machine) -> None:
        ended = self._commands[machine.name][0].wait(Deadline.after(STOP_DEADLINE_S))
        if not ended.ok:
            raise RigError(f"the monitor's agent failed: {ended.stderr.strip()}")
        self.output[machine.name] = ended.stdout
        self.recordings[machine.name] = parse_recording(ended.stdout)
