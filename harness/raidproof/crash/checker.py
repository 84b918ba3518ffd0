"""Checkers: machines that assemble, mount and read crash states, at the request of an agent protocol."""

import json
import re
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from raidproof.core import layer
from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.core.log import logger
from raidproof.core.topology import NO_MECHANICS, Topology
from raidproof.core.waiting import Deadline, now_ns
from raidproof.crash.member_files import MOST, MemberEngine, MemberFiles, UmlOnFiles
from raidproof.crash.states import Patch
from raidproof.disk.cache import CacheMode
from raidproof.disk.client import EngineClient
from raidproof.disk.writelog import MemberInfo
from raidproof.guest import check_agent, ledger_reader, ledger_writer
from raidproof.guest.check_agent import FSCK, NFSD, differing
from raidproof.lab.lab import Lab
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.kernel_log import cause_of_death, keep_tasks, moment, said_since
from raidproof.machine.machine import Machine
from raidproof.provider import qemu, uml
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.provider.registry import lab_of, provider_of
from raidproof.record.exploration import End, Observation, ThroughNfsd
from raidproof.storage.array.array import START_DIRTY, assemble_command, stop_command
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.filesystem.filesystem import check_command, mount_command, parse_check
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.storage.mount import Mount
from raidproof.storage.mount import mount_command as nfs_mount_command
from raidproof.storage.server import Server
from raidproof.storage.stack import StackSpec
from raidproof.verdict.kernel_log import findings

SHOW = (uml.NAME, qemu.NAME)
"""Providers whose machines use the disk engine's disks and boot in seconds, which each check on a new boot needs."""

DEADLINE_S = 20.0
"""Time limit of the check of one state. The replay of a full file system log takes seconds on a busy host."""
FOLDER = "/run/raidproof"
START_DEADLINE_S = 20.0
_POLL_S = 0.5
"""Poll interval for the machine's power while it is silent: a machine that dies closes no connection."""
_BROKEN = {"oops", "panic", "hung task"}
"""Signs in the kernel log after which the kernel is unusable."""
_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? *")
_NUMBERS = re.compile(r"(?<=\bPID: )\d+|(?<=\btask )(\S+):\d+")


def require_shown(provider: str) -> None:
    """Do nothing if the machines of a provider can check crash states.

    Raises:
        RequestError: they cannot.
    """
    if provider not in SHOW:
        raise not_shown(provider)


def not_shown(provider: str) -> RequestError:
    """Return the error for a provider that cannot check crash states."""
    return RequestError(
        f"provider {provider}: crash states need the disk engine's disks, and machines that boot in seconds",
        remedy=f"use provider {' or '.join(SHOW)}",
    )


class Lost(Exception):
    """The checker machine gave no answer: its kernel died, or the time is up. A finding about the crash state."""


class Silent(Lost):
    """The time is up, and the machine still runs as far as is known."""


class AgentLine:
    """A connection to the agent of a checker machine."""

    def __init__(self, machine: Machine, command: RemoteCommand, connection: socket.socket) -> None:
        self._machine = machine
        self._command = command
        self._connection = connection
        self._rest = b""

    @classmethod
    def start(cls, machine: Machine, listener: socket.socket, lab: Lab, config: dict[str, Any]) -> Self:
        """Copy the agent to a machine, start it, and wait until it connects.

        Raises:
            RigError: the agent ended, or did not connect in time.
        """
        host, port = lab.callback_address(listener, machine)
        machine.put(Path(ledger_writer.__file__).read_bytes(), f"{FOLDER}/ledger_writer.py")
        machine.put(Path(ledger_reader.__file__).read_bytes(), f"{FOLDER}/ledger_reader.py")
        machine.put(Path(check_agent.__file__).read_bytes(), f"{FOLDER}/check_agent.py")
        machine.put(json.dumps({**config, "host": host, "port": port}), f"{FOLDER}/config.json")
        command = machine.start_command(["python3", f"{FOLDER}/check_agent.py", f"{FOLDER}/config.json"])
        deadline = Deadline.after(START_DEADLINE_S)
        while not select.select([listener], [], [], min(_POLL_S, deadline.remaining_s))[0]:
            if command.ended:
                raise RigError(f"{machine.name}: the agent ended: {command.wait(Deadline.after(2)).stderr}")
            if deadline.passed:
                raise DeadlineExceeded(f"{machine.name}: the agent did not call")
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(machine, command, connection)

    def ask(self, request: Sequence[str], deadline_s: float, begun: Callable[[str], None]) -> dict[str, Any]:
        """Send a request and return the answer; call ``begun`` with the name of each stage when it begins.

        Raises:
            Lost: there is no answer.
            RigError: the agent ended, and its machine still runs.
        """
        deadline = Deadline.after(deadline_s)
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            while True:
                reply: dict[str, Any] = json.loads(self._line(deadline))
                if "answer" in reply:
                    answer: dict[str, Any] = reply["answer"]
                    return answer
                begun(reply["stage"])
        except ConnectionError as error:
            self._require_machine()
            ended = self._command.wait(Deadline.after(2))
            if ended.status < 0 or ended.status > 128:
                raise Lost(f"the agent was killed, status {ended.status}") from error
            raise RigError(f"{self._machine.name}: the agent failed: {ended.stderr}") from error

    def _line(self, deadline: Deadline) -> bytes:
        while b"\n" not in self._rest:
            if not select.select([self._connection], [], [], min(_POLL_S, deadline.remaining_s))[0]:
                self._require_machine()
                if deadline.passed:
                    raise Silent("no answer in time")
                continue
            received = self._connection.recv(1 << 20)
            if not received:
                raise ConnectionResetError("it hung up")
            self._rest += received
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _require_machine(self) -> None:
        try:
            self._machine.power.require_on()
        except RigError as error:
            raise Lost(cause_of_death(self._machine.console.read_text(errors="replace"))) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, which ends the agent."""
        self._connection.close()


class Check:
    """One check in progress; it begins with the switch of the disks. ``deadline_s`` applies to each request."""

    def __init__(self, machine: Machine, deadline_s: float) -> None:
        self.ms: dict[str, float] = {}
        self.at = "switch"
        self.wedged = False
        """Whether the machine can no longer be used."""
        self._machine = machine
        self._deadline_s = deadline_s
        self._begun = moment(machine)
        self._since = now_ns()

    def ask(self, agent: AgentLine, verb: str, *words: str) -> dict[str, Any]:
        """Send a request, and record the durations of the stages that the agent reports.

        Raises:
            Lost: there is no answer.
            RigError: the agent failed, and its machine still runs.
        """
        answer = agent.ask([verb, *words], self._deadline_s, self.stage)
        self.stage("")
        return answer

    def stage(self, name: str) -> None:
        """Begin a stage and end the previous one."""
        now = now_ns()
        if self.at:
            self.ms[self.at] = self.ms.get(self.at, 0.0) + (now - self._since) / 1e6
        self.at, self._since = name, now

    def seen(self, answer: dict[str, Any]) -> Observation:
        """Return the observation, including the kernel messages that were logged since the check began."""
        signs = self._signs()
        left = answer.pop("left")
        broken = any(sign in _BROKEN for sign, _ in signs)
        if left or broken:
            # The machine is no longer as booted: its later answers would not be comparable.
            self.wedged = True
            said = "; ".join(filter(None, (answer["said"], left)))
            answer = {**answer, "end": End.WEDGED, "said": said, "silent": not broken}
        return Observation(**answer, console=alarming(signs), ms=self.ms)

    def lost(self, lost: Lost) -> Observation:
        """Return the observation of a check whose machine no longer answers."""
        self.wedged = True
        said, signs = f"{self.at}: {lost}", self._signs()
        goes_on = isinstance(lost, Silent)
        if goes_on:
            # Kept for diagnosis.
            keep_tasks(self._machine)
        silent = goes_on and not signs
        return Observation(end=End.WEDGED, said=said, console=alarming(signs), silent=silent, ms=self.ms)

    def _signs(self) -> list[tuple[str, str]]:
        return findings(said_since(self._machine, self._begun))


def alarming(signs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return each alarming line once, without the parts that differ from boot to boot."""
    lines = (f"{sign}: {_NUMBERS.sub('*', _STAMP.sub('', line))}" for sign, line in signs)
    return tuple(dict.fromkeys(lines))


class PreloadedLab(NamespaceLab):
    """A lab of a topology whose disks are not blank.

    ``state`` is a write log of the disks' contents; the file is deleted after the disks are filled.
    """

    def __init__(self, topology: Topology, state: Path, *, logs: Path, keep: bool = False) -> None:
        super().__init__(topology, provider_of(topology), logs=logs, keep=keep)
        self._state = state

    def _start_engine(self, undo: ExitStack) -> EngineClient:
        engine = super()._start_engine(undo)
        engine.set_mode(CacheMode.LYING)
        engine.show(self._state, keep=True)
        engine.set_mode(CacheMode.VOLATILE)
        self._state.unlink()
        return engine


def start_nfsd(export: Server) -> None:
    """Start the export as a run does, without grace period.

    Raises:
        NotEffective: the effective export is not the requested one.
        RigError: a command failed, or nfsd keeps no client records.
    """
    export.activate()
    export.end_grace()


def mount_of(stack: StackSpec, machine: layer.Machine) -> Mount:
    """Return the NFS mount of a run's clients, to be made on the server."""
    return Mount(stack.mount, machine, stack.source(machine.address, DIRECTORY))


def below(mount: Mount, root: str) -> str:
    """Return the path of a folder of the file system below a mount."""
    return str(Path(mount.directory) / Path(root).relative_to(DIRECTORY))


def nfsd_config(stack: StackSpec, machine: layer.Machine, root: str) -> dict[str, Any]:
    """Return the agent's config for a mounted state and a running nfsd; ``root`` is the ledger's folder."""
    mount = mount_of(stack, machine)
    # The server's activation changed the directory's mode before the state's file system was mounted over it.
    opened = [["chmod", "1777", DIRECTORY]] if stack.export.root_squash else []
    return {
        "mount": [*opened, nfs_mount_command(mount.spec, mount.source, mount.directory)],
        "unmount": ["umount", mount.directory],
        "root": below(mount, root),
    }


def check_after_boot(lab: NamespaceLab, stack: StackSpec, config: dict[str, Any], deadline_s: float) -> Observation:
    """Check the state that a lab has booted with.

    Raises:
        RigError: the rig failed, not the state.
    """
    with lab.listen() as listener, AgentLine.start(lab.server, listener, lab, config) as agent:
        check = Check(lab.server, deadline_s)
        try:
            answer = check.ask(agent, "up")
            if answer["end"] == End.READ:
                answer.update(_through_nfsd(lab, stack, config, check, agent, answer["found"]))
            answer.update(check.ask(agent, "down"))
        except Lost as lost:
            return check.lost(lost)
        return check.seen(answer)


def _through_nfsd(
    lab: NamespaceLab, stack: StackSpec, config: dict[str, Any], check: Check, agent: AgentLine, direct: Any
) -> dict[str, Any]:
    """Export the state, mount it on the server, and scan the ledger again; a failed step counts as a difference."""
    export, mount = stack.export.server(lab.server), mount_of(stack, lab.server)
    check.stage("nfsd")
    try:
        with ExitStack() as undo:
            undo.callback(export.deactivate)
            start_nfsd(export)
            mount.activate()
            undo.callback(mount.deactivate)
            seen = check.ask(agent, "look", below(mount, config["ledger"]["root"]))["found"]
    except (CommandFailed, ExceptionGroup) as error:
        return {"through_nfsd": ThroughNfsd.DIFFERENT, "said": f"through nfsd: {error}"}
    if differ := differing(direct, seen):
        return {"through_nfsd": ThroughNfsd.DIFFERENT, "said": f"through nfsd: {', '.join(differ)}"}
    return {"through_nfsd": ThroughNfsd.SAME}


def checker_topology(topology: Topology) -> Topology:
    """Return a checker's topology: the server of a run with its disks, without the disks' mechanics."""
    bare = {"profile": NO_MECHANICS, "controller": None}
    return topology.model_copy(
        update={
            "machines": (topology.server,),
            "disks": tuple(disk.model_copy(update=bare) for disk in topology.disks),
            "controllers": (),
            "slow_motion": 1.0,
        }
    )


def config_of(stack: StackSpec, ledger: dict[str, Any], *, starts_dirty: bool = False) -> dict[str, Any]:
    """Return the agent's config: the commands by which a run brings its server up and takes it down."""
    devices = stack.array.devices
    return {
        "assemble": [[md.device, assemble_command(md, starts_dirty=starts_dirty)] for md in devices],
        "mount": mount_command(stack.filesystem, devices[-1].device),
        "unmount": ["umount", DIRECTORY],
        "fsck": check_command(stack.filesystem, devices[-1].device),
        "stop": stop_command(md.device for md in reversed(devices)),
        "ledger": ledger,
        "links": [],
        "parameters": [[START_DIRTY, "1"]] if starts_dirty else [],
    }


class Held(NamedTuple):
    """A lab that keeps running with a state on its disks."""

    lab: str
    """The lab's name."""
    commands: tuple[list[str], ...]
    """The commands that bring the state up on the lab's server."""


class Checker:
    """A booted server that checks crash states. A context manager; not thread-safe.

    The checker's disks hold a base. `advance` changes the base; `check` applies a state to the base, and the next
    `check` removes that state. After a check no process in the machine has a member open: the last close of a block
    device empties its page cache. No resync begins (md's sync_action is ``frozen``), so that the members stay as the
    crash left them.

    With User-mode Linux the members are files that the machine's kernel reads directly, with other providers they are
    disks of the engine. `cold` and `hold` boot a separate lab on the engine's disks, which reveals errors of files.

    ``ledger``: the arguments of the ledger scan; its ``root`` is the folder on the mounted file system.
    ``starts_dirty``: let md start an array that is both dirty and degraded (md(4)), as an administrator without
    alternative may. By default md refuses, because the missing member's data may be unrecoverable.
    """

    def __init__(
        self,
        topology: Topology,
        stack: StackSpec,
        ledger: dict[str, Any],
        logs: Path,
        *,
        deadline_s: float = DEADLINE_S,
        starts_dirty: bool = False,
    ) -> None:
        self.topology = checker_topology(topology)
        self.stack = stack
        self.config = config_of(stack, ledger, starts_dirty=starts_dirty)
        self.deadline_s = deadline_s
        self.reboots = 0
        """Number of restarts of the machine."""
        self._logs = logs
        self._infos = [
            MemberInfo(disk.serial, disk.size, CacheMode.LYING, CacheMode.VOLATILE) for disk in topology.disks
        ]
        self._labs = 0
        self._line: AgentLine | None = None
        self._undo = ExitStack()
        self._members: MemberFiles | MemberEngine
        self._listener: socket.socket

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            if self.topology.provider == uml.NAME and len(self._infos) <= MOST:
                files = MemberFiles(self._infos)
                bare = self.topology.model_copy(update={"disks": ()})
                self.lab: NamespaceLab = undo.enter_context(NamespaceLab(bare, UmlOnFiles(files), logs=self._logs))
                self._members = files
            else:
                self.lab = undo.enter_context(self._engine_lab())
                self.lab.disks.set_mode(CacheMode.LYING)
                self._members = MemberEngine(self._infos, self.lab.disks, self.lab.directory.path)
            undo.callback(self._members.close)
            self._listener = undo.enter_context(self.lab.listen())
            undo.callback(self._hang_up)
            self._connect()
            self._undo = undo.pop_all()
        return self

    def _engine_lab(self) -> NamespaceLab:
        lab = lab_of(self.topology, logs=self._logs)
        if not isinstance(lab, NamespaceLab):
            raise not_shown(self.topology.provider)
        return lab

    def __exit__(self, *error: object) -> None:
        self._undo.__exit__(*error)  # type: ignore[arg-type]

    @property
    def machine(self) -> Machine:
        """The machine that checks the states."""
        return self.lab.server

    def advance(self, patch: Patch) -> None:
        """Apply a patch to the base on which every state is shown. The base is blank at first."""
        self._members.show(patch, keep=True)

    def check(self, patch: Patch, *, nfsd: bool = False, fsck: bool = False) -> Observation:
        """Check a state: assemble, mount, scan the ledger (also through nfsd if ``nfsd``), unmount, stop.

        ``fsck``: run the file system's checker after the unmount; the mount has replayed the file system's log.

        Raises:
            RigError: the checker failed, not the state.
        """
        line = self._line or self._boot()
        check = Check(self.machine, self.deadline_s)
        self._members.show(patch)
        try:
            words = [word for word, asked in ((NFSD, nfsd), (FSCK, fsck)) if asked]
            answer = check.ask(line, "check", *words)
            checked = self._checked(answer.pop("fsck", None))
            observation = check.seen({**answer, **checked})
        except Lost as lost:
            observation = check.lost(lost)
        if check.wedged:
            self._hang_up()
            # The writes of this machine are undone with the state, whether or not the power cut loses them.
            self.machine.crash()
        return observation

    def _checked(self, ended: Sequence[Any] | None) -> dict[str, FilesystemCheck]:
        """Return the result of the file system's checker, where it ran and gave one."""
        if ended is None:
            return {}
        (status, said), argv = ended, tuple(self.config["fsck"])
        try:
            return {"filesystem": parse_check(self.stack.filesystem, Completed(argv, status, said, "", "checker"))}
        except RigError as error:
            logger.warning("%s: %s", self.machine.name, error)
            return {}

    def cold(self, patch: Patch) -> Observation:
        """Check a state on a newly booted machine, with a scan through nfsd too.

        Raises:
            RigError: the rig failed, not the state.
        """
        with self._primed(patch) as lab:
            return check_after_boot(lab, self.stack, {**self.config, "links": []}, self.deadline_s)

    def hold(self, patch: Patch) -> Held:
        """Boot a lab with a state on its disks, not yet brought up, and leave the lab running."""
        with self._primed(patch, keep=True) as lab:
            for path, value in self.config["parameters"]:
                lab.server.put(value, path)
            return Held(lab.directory.name, (*(argv for _, argv in self.config["assemble"]), self.config["mount"]))

    def _primed(self, patch: Patch, *, keep: bool = False) -> PreloadedLab:
        self._labs += 1
        # An earlier checker may have left a folder of this name.
        while (folder := self._logs / f"cold{self._labs}").exists():
            self._labs += 1
        folder.mkdir(parents=True)
        state = folder / "state.log"
        self._members.save(patch, state)
        return PreloadedLab(self.topology, state, logs=folder, keep=keep)

    def _boot(self) -> AgentLine:
        self.reboots += 1
        self.machine.start()
        return self._connect()

    def _connect(self) -> AgentLine:
        # No state is mounted yet: the agent exports each state when a check through nfsd is requested.
        self.machine.succeed(["mkdir", "--parents", DIRECTORY])
        start_nfsd(self.stack.export.server(self.machine))
        nfsd = nfsd_config(self.stack, self.machine, self.config["ledger"]["root"])
        config = {**self.config, "links": self._members.links, "nfsd": nfsd}
        self._line = line = AgentLine.start(self.machine, self._listener, self.lab, config)
        return line

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
