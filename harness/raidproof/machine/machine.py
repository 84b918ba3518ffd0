"""A machine of the lab: commands, files, power, and its member disks."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.log import logger
from raidproof.core.topology import MachineSpec
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CutPolicy, CutResult
from raidproof.disk.client import EngineClient
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.transport import Transport

SHOWN = 80
"""Longest content of a file, in bytes, that is logged."""
OWN_POWEROFF = ("/sbin/raidproof-poweroff",)
"""In machines with raidproof's init."""
BOOT_DEADLINE_S = 150.0
"""Seconds; an emulated machine beside others takes half a minute."""
BOOT_ID, READY = "/proc/sys/kernel/random/boot_id", "/run/raidproof/ready"
"""Raidproof's init writes the second file at its end; other systems are ready when they answer."""


class Remote:
    """A machine over a connection. Operations on files start no process in it."""

    name: str
    transport: Transport

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command to its end, whatever its status."""
        begun = now_ns()
        completed = self.transport.run(argv, Deadline.after(deadline_s), _bytes(stdin or b""))
        self._log(begun, f", status {completed.status}: {shlex.join(argv)}")
        return completed

    def succeed(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> str:
        """Run a command that must end with status 0, and return its standard output.

        Raises:
            CommandFailed: the status is not 0.
        """
        completed = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout

    def get(self, path: str) -> str:
        """Read a text file.

        Raises:
            CommandFailed: it cannot be read.
        """
        (content,) = self._read([path])
        if isinstance(content, str):
            raise self._failed("cat", path, content)
        return content.decode(errors="replace")

    def read_files(self, paths: Iterable[str]) -> dict[str, str]:
        """Read text files, without the final newline. Leave out files that are unreadable or empty."""
        wanted = list(dict.fromkeys(paths))
        found = zip(wanted, self._read(wanted), strict=True)
        text = {path: content.decode(errors="replace") for path, content in found if isinstance(content, bytes)}
        return {path: content.removesuffix("\n") for path, content in text.items() if content}

    def put(self, content: str | bytes, path: str) -> None:
        """Write a file.

        Raises:
            CommandFailed: it cannot be written.
        """
        if failed := self.put_all({path: content}):
            raise self._failed("tee", path, failed[path])

    def put_all(self, files: Mapping[str, str | bytes]) -> dict[str, str]:
        """Write each of these files, and return the reason for each failure."""
        begun = now_ns()
        contents = {path: _bytes(content) for path, content in files.items()}
        failed = self.transport.write(contents, Deadline.after(DEFAULT_DEADLINE_S))
        for path, content in contents.items():
            what = repr(content.decode()) if len(content) < SHOWN and content.isascii() else f"{len(content)} bytes"
            self._log(begun, f": wrote {what} to {path}{f', refused: {failed[path]}' if path in failed else ''}")
        return failed

    def resolve(self, paths: Iterable[str]) -> list[str]:
        """Return paths without symbolic links.

        Raises:
            CommandFailed: a path does not exist.
        """
        wanted = list(paths)
        found = self._resolve(wanted)
        for path, real in zip(wanted, found, strict=True):
            if real is None:
                raise self._failed("realpath", path, "No such file or directory")
        return [real for real in found if real is not None]

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return self._resolve([path]) != [None]

    def require_raid6(self) -> None:
        """Reboot a machine whose kernel has no RAID6 algorithm; no array of it may be active."""

    def _read(self, paths: Sequence[str]) -> list[bytes | str]:
        begun = now_ns()
        found = self.transport.read(paths, Deadline.after(DEFAULT_DEADLINE_S))
        self._log(begun, f": read {shlex.join(paths)}")
        return found

    def _resolve(self, paths: Sequence[str]) -> list[str | None]:
        begun = now_ns()
        found = self.transport.resolve(paths, Deadline.after(DEFAULT_DEADLINE_S))
        self._log(begun, f": resolved {shlex.join(paths)}")
        return found

    def _failed(self, program: str, path: str, reason: str) -> CommandFailed:
        """Return the failure as that of a command with which a person could reproduce it."""
        return CommandFailed(Completed((program, path), 1, "", f"{path}: {reason}", self.name))

    def _log(self, begun_ns: int, what: str) -> None:
        logger.debug("%s: %.3f s%s", self.name, (now_ns() - begun_ns) / 1e9, what)


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


@dataclass(frozen=True)
class Cut:
    """A power cut that happened.

    ``at_ns`` is the instant after which no write reached a disk; acknowledgements that arrived before it were sent
    before it.
    """

    at_ns: int
    policy: CutPolicy
    seed: int
    cut_results: tuple[CutResult, ...] = ()
    """The result of the cut for each member's cache."""


class Power(Protocol):
    """The power switch of one machine."""

    raid6: bool
    """Whether the kernel has a RAID6 algorithm, from the next boot on; only an UML kernel may have none."""

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console log of each boot, the current one last."""

    @property
    def poweroff(self) -> tuple[str, ...]:
        """The command for an orderly shutdown; it returns at once."""

    def on(self) -> None:
        """Begin to boot; return before the machine answers."""

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Cut the power. Nothing runs in the machine for this, and nothing is flushed."""

    def wait_off(self, deadline: Deadline) -> None:
        """Return when the machine has stopped by itself."""

    def require_on(self) -> None:
        """Raise RigError, with the reason, if the machine has ended."""


@dataclass
class MemberDisks:
    """The disks of one machine and the engine that serves them."""

    engine: EngineClient
    engine_socket: Path
    serials: tuple[str, ...]
    _lost_power: bool = field(default=False, repr=False)

    def power_on(self) -> None:
        """Serve the content that a cut has left, if there was one."""
        if self._lost_power:
            self.engine.power_on()
            self._lost_power = False

    def resolve(self, policy: CutPolicy, seed: int) -> tuple[CutResult, ...]:
        """Apply the cut policy to the caches, after all writes have ended."""
        cut_results = self.engine.resolve(policy, seed)
        self._lost_power = True
        return cut_results


def cut_power(disks: MemberDisks | None, kill: Callable[[], object], policy: CutPolicy, seed: int) -> Cut:
    """Freeze a machine's disks, if any, kill the machine, then apply the cut policy to the disks' caches.

    Because of this order all members freeze at the same instant.
    """
    at_ns = now_ns() if disks is None else disks.engine.freeze()
    kill()
    return Cut(at_ns, policy, seed, () if disks is None else disks.resolve(policy, seed))


class Machine(Remote):
    """One computer, in the role that its specification names."""

    def __init__(
        self,
        spec: MachineSpec,
        power: Power,
        transport: Transport,
        *,
        own_init: bool = True,
        on_boot: Callable[[], object] = lambda: None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        """The machine's host name."""
        self.power = power
        self.transport = transport
        self._on_boot = on_boot
        """An action after each boot, before the machine is used."""
        self._boot_files = [BOOT_ID, READY] if own_init else [BOOT_ID]
        self.boot_id: str | None = None
        """Of the running boot, from /proc/sys/kernel/random/boot_id; None while it is off."""
        self.boot_s: float | None = None
        """Seconds of the last start, from power to an answer."""
        self._last_boot_id: str | None = None

    @property
    def address(self) -> str:
        """Its address on the lab's network."""
        return str(self.spec.address.ip)

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console log of each boot, the current or last one last."""
        return self.power.consoles

    @property
    def console(self) -> Path:
        """The console log of the current or last boot."""
        return self.consoles[-1]

    def start(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Switch the machine on; wait until it answers and its start-up has finished.

        Raises:
            RigError: the machine ended during the boot, or its boot_id did not change.
            DeadlineExceeded: the machine did not answer.
        """
        deadline, begun = Deadline.after(deadline_s), now_ns()
        self.power.on()
        self._log_in(deadline)
        self._on_boot()
        self.boot_s = (now_ns() - begun) / 1e9

    def attach(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Log in to a machine that is on. Raises as `start`."""
        self._log_in(Deadline.after(deadline_s))

    def _log_in(self, deadline: Deadline) -> None:
        self.transport.connect(deadline, self.power.require_on)
        ready, self.boot_id = wait_until(self._read_boot, deadline, f"{self.name} to finish its start-up")
        if ready != "ready":
            raise RigError(f"{self.name}: start-up failed: {ready}; see {', '.join(map(str, self.consoles[-1:]))}")
        if self.boot_id == self._last_boot_id:
            raise RigError(f"{self.name}: the boot_id did not change, so it never lost its power")
        self._last_boot_id = self.boot_id

    def _read_boot(self) -> tuple[str, str] | None:
        self.power.require_on()
        # By a command, because a machine without an agent is refused later, together with its other deficits.
        said = self.run(["cat", *self._boot_files])
        if not said.ok:
            return None
        boot_id, *ready = said.stdout.splitlines()
        return (*ready, "ready")[0], boot_id

    def start_command(self, argv: Sequence[str], deadline_s: float = DEFAULT_DEADLINE_S) -> RemoteCommand:
        """Start a command and return at once; the deadline is that of the start."""
        return self.transport.start(argv, Deadline.after(deadline_s))

    def fail(self, argv: Sequence[str], *, deadline_s: float = DEFAULT_DEADLINE_S) -> Completed:
        """Run a command that must not end with status 0.

        Raises:
            RigError: the command succeeded.
        """
        completed = self.run(argv, deadline_s=deadline_s)
        if completed.ok:
            raise RigError(f"{self.name}: succeeded, and must not: {shlex.join(argv)}")
        return completed

    def require(self, program: str) -> None:
        """Check that the machine has a program.

        Raises:
            RequirementMissing: its image lacks the program.
        """
        if not self.run(["which", program]).ok:
            raise RequirementMissing(f"{self.name} has no {program}", remedy="its image's recipe is in vms/images")

    def require_raid6(self) -> None:
        """Reboot a machine whose kernel has no RAID6 algorithm; no array of it may be active."""
        if not self.power.raid6:
            self.power.raid6 = True
            self.shutdown()
            self.start()

    def shutdown(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Shut the machine down in good order: file systems unmounted, arrays stopped, caches flushed."""
        deadline = Deadline.after(deadline_s)
        self.start_command(self.power.poweroff)
        self.wait_off(deadline)

    def wait_off(self, deadline: Deadline) -> None:
        """Return when the machine has shut down by itself; its disks keep their power.

        Raises:
            DeadlineExceeded: the machine is still up.
        """
        self.power.wait_off(deadline)
        self._gone()

    def crash(self, policy: CutPolicy = CutPolicy.DROP, seed: int = 0) -> Cut:
        """Cut the power; ``policy`` decides which data that was not yet durable survives."""
        cut = self.power.cut(policy, seed)
        self._gone()
        return cut

    def _gone(self) -> None:
        self.boot_id = None
        self.transport.close()
