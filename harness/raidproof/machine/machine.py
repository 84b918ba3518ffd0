"""A machine of the lab: commands, files, power, and its member disks."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.log import logger
from raidproof.core.topology import MachineSpec
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CutPolicy, CutResult
from raidproof.disk.client import EngineClient
from raidproof.disk.messages import export_of
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.transport import Transport

SHOWN = 80
"""Size in bytes of a written file, from which on the log states the size, not the content."""
OWN_POWEROFF = ("/sbin/raidproof-poweroff",)
"""Command that powers off a machine with raidproof's init."""
BOOT_DEADLINE_S = 150.0
"""Seconds for a boot; a machine that QEMU emulates without KVM takes up to 30 s."""
BOOT_ID, READY = "/proc/sys/kernel/random/boot_id", "/run/raidproof/ready"
"""Files in a machine: the kernel's ID of the boot, and the result of the start-up, which raidproof's init writes last.

A machine with another init has only the first file; it counts as ready when it accepts a command.
"""


class Remote:
    """A machine that the harness reaches over SSH. File operations start no process in the machine."""

    name: str
    transport: Transport

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command in the machine, and return its result, whatever its exit status."""
        begun = now_ns()
        completed = self.transport.run(argv, Deadline.after(deadline_s), _bytes(stdin or b""))
        self._log(begun, f", status {completed.status}: {shlex.join(argv)}")
        return completed

    def succeed(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> str:
        """Run a command in the machine that must end with status 0, and return its standard output.

        Raises:
            CommandFailed: the command ended with another status.
        """
        completed = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout

    def get(self, path: str) -> str:
        """Return the content of a text file of the machine.

        Raises:
            CommandFailed: the file cannot be read.
        """
        (content,) = self._read([path])
        if isinstance(content, str):
            raise self._failed("cat", path, content)
        return content.decode(errors="replace")

    def read_files(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the content of text files by path, without the final newline; omit unreadable and empty files."""
        wanted = list(dict.fromkeys(paths))
        found = zip(wanted, self._read(wanted), strict=True)
        text = {path: content.decode(errors="replace") for path, content in found if isinstance(content, bytes)}
        return {path: content.removesuffix("\n") for path, content in text.items() if content}

    def put(self, content: str | bytes, path: str) -> None:
        """Write a file in the machine.

        Raises:
            CommandFailed: the file cannot be written.
        """
        if failed := self.put_all({path: content}):
            raise self._failed("tee", path, failed[path])

    def put_all(self, files: Mapping[str, str | bytes]) -> dict[str, str]:
        """Write files, given as content by path; return the error of each file that could not be written, by path."""
        begun = now_ns()
        contents = {path: _bytes(content) for path, content in files.items()}
        failed = self.transport.write(contents, Deadline.after(DEFAULT_DEADLINE_S))
        for path, content in contents.items():
            what = repr(content.decode()) if len(content) < SHOWN and content.isascii() else f"{len(content)} bytes"
            wrote = f"cannot write {what} to {path}: {failed[path]}" if path in failed else f"wrote {what} to {path}"
            self._log(begun, f": {wrote}")
        return failed

    def resolve(self, paths: Iterable[str]) -> list[str]:
        """Return each path with symbolic links resolved.

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
        """Return whether a path exists in the machine."""
        return self._resolve([path]) != [None]

    def require_raid6(self) -> None:
        """If the kernel runs without RAID6 algorithms, reboot the machine with them; no array may be active."""

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
        """Return the error of a file operation as the failure of an equivalent command, which a user can repeat."""
        return CommandFailed(Completed((program, path), 1, "", f"{path}: {reason}", self.name))

    def _log(self, begun_ns: int, what: str) -> None:
        logger.debug("%s: %.3f s%s", self.name, (now_ns() - begun_ns) / 1e9, what)


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


@dataclass(frozen=True)
class Cut:
    """The instant and the result of a power cut."""

    at_ns: int
    """Instant on the host's monotonic clock after which no write reached a disk.

    An acknowledgement that arrived before this instant was sent before the cut.
    """
    policy: CutPolicy
    seed: int
    """Seed of the random choices of the cut policy."""
    cut_results: tuple[CutResult, ...] = ()
    """For each member: what the cut did to the data in its volatile cache."""


class Power(Protocol):
    """The power switch of one machine."""

    raid6: bool
    """Whether the kernel has a RAID6 algorithm from the next boot on; only a UML kernel may lack one."""

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The path of the console log of each boot, the latest boot last."""

    @property
    def poweroff(self) -> tuple[str, ...]:
        """The command, run in the machine, that begins an orderly shutdown and returns at once."""

    def on(self) -> None:
        """Switch the machine on, and return before the machine has booted."""

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Cut the machine's power. No program in the machine is informed, and no cache is flushed."""

    def wait_off(self, deadline: Deadline) -> None:
        """Wait until the machine has shut itself down."""

    def require_on(self) -> None:
        """Raise RigError, with the reason, if the machine is no longer running."""


@runtime_checkable
class Fencing(Protocol):
    """The power switch of a machine whose disks another machine uses, too."""

    def fence(self) -> int:
        """Cut the machine's power, and not that of its disks, which receive no request of the machine afterwards.

        Return the instant before the cut (CLOCK_MONOTONIC, ns).
        """


@dataclass
class MemberDisks:
    """The disks of one machine and the engine that serves them."""

    engine: EngineClient
    engine_socket: Path
    """Path of the socket at which the engine accepts requests."""
    serials: tuple[str, ...]
    """Serial numbers of the disks."""
    machine: str = ""
    """The machine, by name, if another machine uses the disks, too; else empty."""
    _lost_power: bool = field(default=False, repr=False)

    @property
    def exports(self) -> tuple[str, ...]:
        """The name of each disk's NBD export for the machine, in the order of ``serials``."""
        return tuple(export_of(serial, self.machine) for serial in self.serials) if self.machine else self.serials

    def power_on(self) -> None:
        """After a power cut, let the engine serve the content that survived the cut."""
        if self._lost_power:
            self.engine.power_on()
            self._lost_power = False

    def resolve(self, policy: CutPolicy, seed: int) -> tuple[CutResult, ...]:
        """Apply the cut policy to the volatile caches of the disks; all writes must have ended before."""
        cut_results = self.engine.resolve(policy, seed)
        self._lost_power = True
        return cut_results


def cut_power(disks: MemberDisks | None, kill: Callable[[], object], policy: CutPolicy, seed: int) -> Cut:
    """Freeze a machine's disks, if any, kill the machine, then apply the cut policy to the disks' caches.

    The freeze comes first, so that all disks stop at the same instant.
    """
    at_ns = now_ns() if disks is None else disks.engine.freeze()
    kill()
    return Cut(at_ns, policy, seed, () if disks is None else disks.resolve(policy, seed))


class Machine(Remote):
    """A machine of a lab: commands and files over SSH, its power and its consoles.

    ``own_init`` states that the machine runs raidproof's init. ``on_boot`` is called after each boot.
    """

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
        self._boot_files = [BOOT_ID, READY] if own_init else [BOOT_ID]
        self.boot_id: str | None = None
        """The kernel's ID of the running boot (/proc/sys/kernel/random/boot_id); None while the machine is off."""
        self.boot_s: float | None = None
        """Seconds from the last power-on until the machine was ready."""
        self.usual_errors: frozenset[str] | None = None
        """Kinds of kernel messages of level err or worse before the first crash test; None: not read yet."""
        self._last_boot_id: str | None = None
        """`boot_id` of the last boot, also while the machine is off."""
        self._installed: dict[str, bytes] = {}
        """Content of the programs that this boot has, by path."""

    @property
    def address(self) -> str:
        """The machine's IP address on the lab's network."""
        return str(self.spec.address.ip)

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The path of the console log of each boot, the latest boot last."""
        return self.power.consoles

    @property
    def console(self) -> Path:
        """The path of the console log of the latest boot."""
        return self.consoles[-1]

    def start(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Switch the machine on; wait until SSH works and the start-up has finished.

        Raises:
            RigError: the machine ended during the boot, or its boot_id did not change.
            DeadlineExceeded: at the deadline, SSH does not work or the start-up has not finished.
        """
        deadline, begun = Deadline.after(deadline_s), now_ns()
        self.power.on()
        self._log_in(deadline)
        self._on_boot()
        self.boot_s = (now_ns() - begun) / 1e9

    def attach(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Log in to a machine that is already running. Raises the errors of `start`."""
        self._log_in(Deadline.after(deadline_s))

    def _log_in(self, deadline: Deadline) -> None:
        self.transport.connect(deadline, self.power.require_on)
        ready, self.boot_id = wait_until(self._read_boot, deadline, f"{self.name} to finish its start-up")
        if ready != "ready":
            raise RigError(f"{self.name}: start-up failed: {ready}; see {', '.join(map(str, self.consoles[-1:]))}")
        if self.boot_id == self._last_boot_id:
            raise RigError(f"{self.name}: the boot_id did not change, so the machine did not reboot")
        self._last_boot_id = self.boot_id

    def _read_boot(self) -> tuple[str, str] | None:
        """Return the result of the start-up, and the boot_id; None if the start-up has not finished."""
        self.power.require_on()
        # A command, because a machine that cannot run the agent is refused later, together with its other deficits.
        completed = self.run(["cat", *self._boot_files])
        if not completed.ok:
            return None
        boot_id, *ready = completed.stdout.splitlines()
        return (*ready, "ready")[0], boot_id

    def install(self, programs: Mapping[str, bytes]) -> None:
        """Write programs, given as content by path, but those that this boot already has.

        Python compiles a module anew if its file was written again, which takes longer than to run it.

        Raises:
            CommandFailed: a file cannot be written.
        """
        new = {path: content for path, content in programs.items() if self._installed.get(path) != content}
        if new:
            for path, error in self.put_all(new).items():
                raise self._failed("tee", path, error)
            self._installed.update(new)

    def put_all(self, files: Mapping[str, str | bytes]) -> dict[str, str]:
        """Write files, see `Remote.put_all`."""
        for path in files:
            self._installed.pop(path, None)
        return super().put_all(files)

    def start_command(self, argv: Sequence[str], deadline_s: float = DEFAULT_DEADLINE_S) -> RemoteCommand:
        """Start a command, and return when it is running; the start must succeed within ``deadline_s`` seconds."""
        return self.transport.start(argv, Deadline.after(deadline_s))

    def fail(self, argv: Sequence[str], *, deadline_s: float = DEFAULT_DEADLINE_S) -> Completed:
        """Run a command that must not end with status 0.

        Raises:
            RigError: the command succeeded.
        """
        completed = self.run(argv, deadline_s=deadline_s)
        if completed.ok:
            raise RigError(f"{self.name}: succeeded, but must fail: {shlex.join(argv)}")
        return completed

    def require(self, program: str) -> None:
        """Check that the machine has a program.

        Raises:
            RequirementMissing: the machine's image lacks the program.
        """
        if not self.run(["which", program]).ok:
            remedy = f"add the package of {program} to the recipe of the machine's image, in vms/images"
            raise RequirementMissing(f"{self.name} has no {program}", remedy=remedy)

    def require_raid6(self) -> None:
        """If the kernel runs without RAID6 algorithms, reboot the machine with them; no array may be active."""
        if not self.power.raid6:
            self.power.raid6 = True
            self.shutdown()
            self.start()

    def shutdown(self, deadline_s: float = BOOT_DEADLINE_S) -> None:
        """Shut the machine down in an orderly way: unmount file systems, stop arrays, flush caches."""
        deadline = Deadline.after(deadline_s)
        self.start_command(self.power.poweroff)
        self.wait_off(deadline)

    def wait_off(self, deadline: Deadline) -> None:
        """Wait until the machine has shut itself down; its disks keep their power.

        Raises:
            DeadlineExceeded: the machine is still running.
        """
        self.power.wait_off(deadline)
        self._gone()

    def crash(self, policy: CutPolicy = CutPolicy.DROP, seed: int = 0) -> Cut:
        """Cut the machine's power; ``policy`` determines which data in volatile disk caches survives."""
        cut = self.power.cut(policy, seed)
        self._gone()
        return cut

    def fence(self) -> int:
        """Cut the machine's power, but not that of its disks, which another machine uses, too; return the instant.

        Raises:
            RequirementMissing: the provider cannot switch off a machine alone.
        """
        if not isinstance(self.power, Fencing):
            raise RequirementMissing(f"{self.name}: its power switch also cuts the power of its disks")
        at_ns = self.power.fence()
        self._gone()
        return at_ns

    def _gone(self) -> None:
        self.boot_id = None
        self._installed.clear()
        self.transport.close()
