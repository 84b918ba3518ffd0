"""Checkers: machines that assemble, mount and read crash states."""

import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from raidproof.core import layer
from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.core.log import logger
from raidproof.core.topology import NO_MECHANICS, Topology
from raidproof.core.units import GIB, MIB
from raidproof.core.waiting import now_ns
from raidproof.crash.agent_connection import AgentConnection, Lost, Silent
from raidproof.crash.member_disks import Ask, MemberEngine, MemberMemory
from raidproof.crash.own_cpu import keep_on, own_cpu
from raidproof.crash.states import Patch
from raidproof.disk.cache import CacheMode
from raidproof.disk.client import EngineClient
from raidproof.disk.writelog import MemberInfo
from raidproof.guest.check_agent import differing
from raidproof.machine.kernel_log import keep_tasks, moment, said_since
from raidproof.machine.machine import Machine
from raidproof.provider import qemu, uml
from raidproof.provider.namespace_lab import NamespaceLab
from raidproof.provider.registry import lab_of, provider_of
from raidproof.record.exploration import End, Observation, ThroughNfsd
from raidproof.storage.deployment import user_lines
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.filesystem.filesystem import check_command, mount_command, parse_check
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.storage.member import Assembly
from raidproof.storage.mount import Mount
from raidproof.storage.mount import mount_command as nfs_mount_command
from raidproof.storage.server.server import StateService, open_command
from raidproof.storage.stack import StackSpec
from raidproof.verdict.kernel_log import errors_in, findings

SHOW = (uml.NAME, qemu.NAME)
"""Providers that can check crash states: their machines use disks of the disk engine and boot in seconds."""

DEADLINE_S = 20.0
"""Time limit in seconds of each request to the agent; the replay of a full file system log takes seconds."""
CONTENT_DEADLINE_S = 20.0
"""Time limit in seconds of each request that gives the member disks their content; no crash state can delay it."""
SETTLE_S = 10.0
"""Time in seconds that md's resync has to end after the mount, while a recovery is recorded."""
MOST_CONTENT = 2 * GIB
"""Limit in bytes of the members' content in the memory of a checker's machine."""
WRITTEN = 256 * MIB
"""Memory in bytes for what one check writes to the members: mostly, what the file system's log has logged."""
_BROKEN = {"oops", "panic", "hung task"}
"""Kinds of kernel log findings after which the kernel is unusable."""
_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? *")
_NUMBERS = re.compile(r"(?<=\bPID: )\d+|(?<=\btask )(\S+):\d+")


def require_shown(provider: str) -> None:
    """Check that the machines of a provider can check crash states.

    Raises:
        RequestError: the provider is not in `SHOW`.
    """
    if provider not in SHOW:
        raise not_shown(provider)


def not_shown(provider: str) -> RequestError:
    """Return the error for a provider that cannot check crash states."""
    return RequestError(
        f"provider {provider}: crash states need the disk engine, and machines that boot within seconds",
        remedy=f"use provider {' or '.join(SHOW)}",
    )


class Check:
    """The check of one crash state in progress: measures the stages, and collects the result.

    The first stage is ``switch``, in which the disks get the content of the state. ``deadline_s`` limits the time of
    each request to the agent.
    """

    def __init__(self, machine: Machine, deadline_s: float) -> None:
        self.ms: dict[str, float] = {}
        """Duration of each ended stage in ms."""
        self.at = "switch"
        """Name of the current stage."""
        self.wedged = False
        """Whether the machine must be rebooted before the next check."""
        self._machine = machine
        self._deadline_s = deadline_s
        self._begun = moment(machine)
        self._since = now_ns()

    def ask(self, agent: AgentConnection, verb: str, **arguments: Any) -> dict[str, Any]:
        """Send a request to the agent, and record the durations of the stages that the agent reports.

        Raises:
            Lost, RigError: as for `AgentConnection.ask`.
        """
        answer = agent.ask({"verb": verb, **arguments}, self._deadline_s, self.stage)
        self.stage("")
        return answer

    def stage(self, name: str) -> None:
        """End the current stage and begin the stage ``name``."""
        now = now_ns()
        if self.at:
            self.ms[self.at] = self.ms.get(self.at, 0.0) + (now - self._since) / 1e6
        self.at, self._since = name, now

    def seen(self, answer: dict[str, Any]) -> Observation:
        """Return the observation in the agent's answer, with the kernel messages since the begin of the check."""
        signs = [*self._signs(), *errors_in(answer.pop("errors"))]
        left = answer.pop("left")
        broken = any(sign in _BROKEN for sign, _ in signs)
        if left or broken:
            # The machine is no longer in the state after its boot: later observations would not be comparable.
            self.wedged = True
            said = "; ".join(filter(None, (answer["said"], left)))
            answer = {**answer, "end": End.WEDGED, "said": said, "silent": not broken}
        return Observation(**answer, console=alarming(signs), ms=self.ms)

    def lost(self, lost: Lost) -> Observation:
        """Return the observation of a check during which the machine stopped answering."""
        self.wedged = True
        said, signs = f"{self.at}: {lost}", self._signs()
        goes_on = isinstance(lost, Silent)
        if goes_on:
            keep_tasks(self._machine)  # for the diagnosis of the hang
        silent = goes_on and not signs
        return Observation(end=End.WEDGED, said=said, console=alarming(signs), silent=silent, ms=self.ms)

    def _signs(self) -> list[tuple[str, str]]:
        return findings(said_since(self._machine, self._begun))


def alarming(signs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return each alarming line of the kernel log once, without time stamps and process ids."""
    lines = (f"{sign}: {_NUMBERS.sub('*', _STAMP.sub('', line))}" for sign, line in signs)
    return tuple(dict.fromkeys(lines))


class PreloadedLab(NamespaceLab):
    """A lab whose disks have a given content before the machines boot.

    ``state``: a write log with the content. The lab deletes the file after it has applied the log to the disks.
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


class RecordedLab(PreloadedLab):
    """A preloaded lab whose disks record a write log from the boot of the machines on, for the log of a recovery.

    ``modes``: the cache mode of each disk. ``log``: path of the write log, which must not exist.
    """

    def __init__(self, topology: Topology, state: Path, *, logs: Path, modes: Sequence[CacheMode], log: Path) -> None:
        super().__init__(topology, state, logs=logs)
        self._modes = modes
        self._log = log

    def _start_engine(self, undo: ExitStack) -> EngineClient:
        engine = super()._start_engine(undo)
        for disk, mode in zip(self.topology.disks, self._modes, strict=True):
            engine.set_mode(mode, [disk.serial])
        engine.log_start(self._log)
        return engine


class Recovered(NamedTuple):
    """The recovery of a crash state, which a newly booted machine executed on recording disks."""

    observation: Observation
    """What the machine observed after the recovery."""
    stages: tuple[tuple[str, int], ...]
    """The name of each stage, and the instant in ns at which it began (CLOCK_MONOTONIC)."""
    settled: bool
    """Whether md ended its resync, and marked all arrays clean, before the log ended."""


def mount_of(stack: StackSpec, machine: layer.Machine) -> Mount:
    """Return the NFS mount of a run's clients for use on the server machine itself."""
    return Mount(stack.mount, machine, stack.source(machine.address, DIRECTORY))


def below(mount: Mount, root: str) -> str:
    """Return the path below an NFS mount of the folder ``root`` of the exported file system."""
    return str(Path(mount.directory) / Path(root).relative_to(DIRECTORY))


def nfsd_config(stack: StackSpec, machine: layer.Machine, service: StateService, root: str) -> dict[str, Any]:
    """Return the part of the agent's config for a scan through the NFS server; ``root`` is the ledger's folder."""
    mount = mount_of(stack, machine)
    # A state's file system covers the directory whose mode the activation of the server changed.
    opened = [open_command(DIRECTORY)] if stack.export.squashes_root else []
    return {
        "mount": [*opened, nfs_mount_command(mount.spec, mount.source, mount.directory)],
        "unmount": ["umount", mount.directory],
        "root": below(mount, root),
        "service": {"module": service.module.__name__.rpartition(".")[2], "arguments": dict(service.arguments)},
    }


def check_after_boot(lab: NamespaceLab, stack: StackSpec, config: dict[str, Any], deadline_s: float) -> Observation:
    """Check the crash state that the disks of a newly booted lab hold.

    Raises:
        RigError: the check failed for a reason other than the state.
    """
    stack = stack.in_plain_text
    with lab.listen() as listener, AgentConnection.start(lab.server, listener, lab, config) as agent:
        check = Check(lab.server, deadline_s)
        try:
            answer = check.ask(agent, "up")
            if answer["end"] == End.READ and stack.export.scans:
                answer.update(_through_server(lab, stack, config, check, agent, answer["found"]))
            answer.update(check.ask(agent, "down"))
        except Lost as lost:
            return check.lost(lost)
        return check.seen(answer)


def recover_after_boot(
    lab: NamespaceLab, config: dict[str, Any], deadline_s: float, resync_first_s: float
) -> Recovered:
    """Recover the crash state that the disks of a newly booted lab hold, and then stop the disks and their write log.

    ``resync_first_s``: time in seconds that md's resync has before the mount of the file system.

    Raises:
        RigError: the recovery failed for a reason other than the state.
    """
    stages: list[tuple[str, int]] = []
    settled = False
    with lab.listen() as listener, AgentConnection.start(lab.server, listener, lab, config) as agent:
        check = Check(lab.server, deadline_s)

        def begun(stage: str) -> None:
            stages.append((stage, now_ns()))
            check.stage(stage)

        request = {"verb": "recover", "resync_first_s": resync_first_s, "most_s": SETTLE_S}
        try:
            answer = agent.ask(request, deadline_s + resync_first_s + SETTLE_S, begun)
            check.stage("")
            settled = answer.pop("settled")
            seen = check.seen(answer)
        except Lost as lost:
            seen = check.lost(lost)
        # The log ends here, so that it has no request of the end of the machine.
        lab.disks.freeze()
        lab.disks.log_stop()
    return Recovered(seen, tuple(stages), settled)


def _through_server(
    lab: NamespaceLab, stack: StackSpec, config: dict[str, Any], check: Check, agent: AgentConnection, direct: Any
) -> dict[str, Any]:
    """Export the file system of the state, mount it by NFS on the server itself, and scan the ledger again.

    Return the fields of the observation: whether the scan differs from ``direct``, the scan of the file system. A
    failed step counts as a difference.
    """
    export, mount = stack.export.server(lab.server), mount_of(stack, lab.server)
    check.stage("nfsd")
    try:
        with ExitStack() as undo:
            undo.callback(export.deactivate)
            export.activate()
            export.end_grace()
            mount.activate()
            undo.callback(mount.deactivate)
            seen = check.ask(agent, "look", root=below(mount, config["ledger"]["root"]))["found"]
    except (CommandFailed, ExceptionGroup) as error:
        return {"through_nfsd": ThroughNfsd.DIFFERENT, "said": f"through the NFS server: {error}"}
    if differ := differing(direct, seen):
        return {"through_nfsd": ThroughNfsd.DIFFERENT, "said": f"through the NFS server: {', '.join(differ)}"}
    return {"through_nfsd": ThroughNfsd.SAME}


def checker_topology(topology: Topology, *, raid6: bool = False) -> Topology:
    """Return a checker's topology: the server of a run with its disks, without clients and simulated service times.

    ``raid6``: whether the server boots with RAID6 algorithms.
    """
    bare = {"profile": NO_MECHANICS, "controller": None}
    return topology.model_copy(
        update={
            "machines": (topology.server.model_copy(update={"raid6": raid6}),),
            "disks": tuple(disk.model_copy(update=bare) for disk in topology.disks),
            "controllers": (),
            "slow_motion": 1.0,
        }
    )


def with_memory(topology: Topology, content: int) -> Topology:
    """Return a checker's topology without disks, with memory for members that hold ``content`` bytes."""
    server = topology.server.model_copy(update={"memory": topology.server.memory + content + WRITTEN})
    return topology.model_copy(update={"machines": (server,), "disks": ()})


def config_of(
    stack: StackSpec, ledger: dict[str, Any], *, starts_dirty: bool = False, without: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the agent's config: the commands that assemble, mount, unmount, check and stop a run's stack.

    ``ledger``: arguments of the ledger scan. ``starts_dirty``, ``without``: see `Checker`.
    """
    array = stack.array.checking(starts_dirty=starts_dirty, without=without, log=stack.filesystem.log)
    volume = stack.volume
    below = array.assemble[-1].device
    device = volume.path(below)
    return {
        "assemble": [one._asdict() for one in (*array.assemble, *volume.assembly(below))],
        "mount": mount_command(stack.filesystem, device, more=array.mount_options),
        "unmount": ["umount", DIRECTORY],
        "fsck": check_command(stack.filesystem, device),
        "stop": [*volume.close_commands(below), *(list(command) for command in array.stop)],
        "ledger": ledger,
        "members": {},
        "parameters": [list(parameter) for parameter in (*array.parameters, *volume.parameters)],
        "permitting": [list(parameter) for parameter in array.permitting],
        "scrub": False,
    }


class Held(NamedTuple):
    """A lab that keeps running with a crash state on its disks, for inspection by the user."""

    lab: str
    """Name of the lab."""
    commands: tuple[list[str], ...]
    """Commands that assemble and mount the state on the lab's server."""


class Checker:
    """A booted server that checks crash states. A context manager; not thread-safe.

    The checker's disks hold a base content. `advance` changes the base. `check` applies a state to the base, and the
    next `check` undoes the state. After a check no process in the machine has a member open, because the last close of
    a block device empties its page cache. md's sync_action is ``frozen``: no resync changes the members.

    The members are in the machine's memory. If their content is larger than `MOST_CONTENT`, or if the kernel lacks the
    modules for it, they are disks of the disk engine. `cold` and `hold` boot a separate lab on disks of the disk
    engine, so that a check by `cold` would reveal an error of the members in memory.

    ``ledger``: arguments of the ledger scan; its ``root`` is the folder on the mounted file system.
    ``content``: upper limit in bytes of what the members hold in any state (`Recording.most_content`).
    ``starts_dirty``: if md refuses to start an array that is both dirty and degraded, because data of the missing
    member may be lost, set its parameter start_dirty_degraded (md(4)), and start the array again.
    ``without``: serials of members that are lost: they are blank in each state, and the array starts without them.
    ``scrub``: whether a check with fsck also lets the array resync, and then counts the sectors that differ.
    """

    def __init__(
        self,
        topology: Topology,
        stack: StackSpec,
        ledger: dict[str, Any],
        logs: Path,
        *,
        content: int = 0,
        deadline_s: float = DEADLINE_S,
        starts_dirty: bool = False,
        without: Sequence[str] = (),
        scrub: bool = False,
    ) -> None:
        self.topology = checker_topology(topology, raid6=stack.array.needs_raid6)
        self._content = content
        self.stack = stack.in_plain_text
        self.config = {**config_of(stack, ledger, starts_dirty=starts_dirty, without=without), "scrub": scrub}
        self.deadline_s = deadline_s
        self.reboots = 0
        """Number of reboots of the machine."""
        self._logs = logs
        self._infos = [
            MemberInfo(disk.serial, disk.size, CacheMode.LYING, CacheMode.VOLATILE) for disk in topology.disks
        ]
        self._lab_count = 0
        self._agent: AgentConnection | None = None
        self._undo = ExitStack()
        self.lab: NamespaceLab
        self._members: MemberMemory | MemberEngine
        self._listener: socket.socket

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._open_lab(undo, in_memory=self._content <= MOST_CONTENT)
            if not self._members.prepare(self.machine):
                logger.warning("checks are slower: the kernel lacks the modules brd and dm-snapshot")
                undo.close()
                self._open_lab(undo, in_memory=False)
            self._listener = undo.enter_context(self.lab.listen())
            undo.callback(self._disconnect)
            self._connect()
            self._undo = undo.pop_all()
        return self

    def _open_lab(self, undo: ExitStack, *, in_memory: bool) -> None:
        """Boot the machine with the members in its memory, or on disks of the disk engine."""
        if in_memory:
            self.lab = undo.enter_context(self._lab(with_memory(self.topology, self._content)))
            self._members = MemberMemory(self._infos, self.lab.directory.path)
            # Without disks, nothing in the lab works beside a machine of one CPU.
            if self.topology.server.cpus == 1 and (cpu := undo.enter_context(own_cpu())) is not None:
                keep_on(self.lab.namespace.pid, cpu)
        else:
            self.lab = undo.enter_context(self._lab(self.topology))
            self.lab.disks.set_mode(CacheMode.LYING)
            self._members = MemberEngine(self._infos, self.lab.disks, self.lab.directory.path)
        undo.callback(self._members.close)

    def _lab(self, topology: Topology) -> NamespaceLab:
        lab = lab_of(topology, logs=self._logs)
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
        """Apply a patch to the base content of all later checks; the base is blank at first.

        Raises:
            RigError: the machine did not take the content; the checker is of no more use.
        """
        self._members.show(patch, self._ask(self._agent) if self._agent else None, keep=True)

    def show(self, patch: Patch) -> None:
        """Give the members the content of the state that a patch makes of the base; boot the machine if it is off.

        Raises:
            RigError: the machine did not take the content; the checker is of no more use.
        """
        self._members.show(patch, self._ask(self._agent or self._boot()))

    def check(self, patch: Patch, *, nfsd: bool = False, fsck: bool = False) -> Observation:
        """Check the state that a patch makes of the base: assemble, mount, scan the ledger, unmount, stop.

        ``nfsd``: scan the ledger through the NFS server also, if it supports this (`ServerSpec.scans`). ``fsck``:
        run the file system's checker (fsck) after the unmount; the mount has then replayed the file system's log.

        Raises:
            RigError: the check failed for a reason other than the state.
        """
        line = self._agent or self._boot()
        check = Check(self.machine, self.deadline_s)
        try:
            self.show(patch)
            answer = check.ask(line, "check", nfsd=nfsd and self.stack.export.scans, fsck=fsck)
            checked = self._checked(answer.pop("fsck", None))
            observation = check.seen({**answer, **checked})
        except Lost as lost:
            observation = check.lost(lost)
        if check.wedged:
            self._disconnect()
            # The next check undoes all writes of the machine, independently of the result of this power cut.
            self.machine.crash()
        return observation

    def _checked(self, ended: Sequence[Any] | None) -> dict[str, FilesystemCheck]:
        """Return the result of the file system's checker; empty if fsck did not run or its output is invalid."""
        if ended is None:
            return {}
        (status, said), argv = ended, tuple(self.config["fsck"])
        try:
            return {"filesystem": parse_check(self.stack.filesystem, Completed(argv, status, said, "", "checker"))}
        except RigError as error:
            logger.warning("%s: the output of the file system's checker is invalid: %s", self.machine.name, error)
            return {}

    def cold(self, patch: Patch) -> Observation:
        """Check the state that a patch makes of the base on a newly booted machine, also through the NFS server.

        Raises:
            RigError: the check failed for a reason other than the state.
        """
        state, folder = self._saved(patch)
        with PreloadedLab(self.topology, state, logs=folder, keep=False) as lab:
            return check_after_boot(lab, self.stack, self.config, self.deadline_s)

    def recover(self, patch: Patch, modes: Sequence[CacheMode], log: Path, *, resync_first_s: float) -> Recovered:
        """Recover the state that a patch makes of the base, on a newly booted machine whose disks record a write log.

        ``modes``: the cache mode of each disk. ``log``: path of the write log, which must not exist.
        ``resync_first_s``: time in seconds that md's resync has before the mount.

        Raises:
            RigError: the recovery failed for a reason other than the state.
        """
        state, folder = self._saved(patch)
        with RecordedLab(self.topology, state, logs=folder, modes=modes, log=log) as lab:
            return recover_after_boot(lab, self.config, self.deadline_s, resync_first_s)

    def hold(self, patch: Patch) -> Held:
        """Boot a lab with a state on its disks, and leave the lab running; the array is not assembled."""
        state, folder = self._saved(patch)
        with PreloadedLab(self.topology, state, logs=folder, keep=True) as lab:
            for path, value in (*self.config["parameters"], *self.config["permitting"]):
                lab.server.put(value, path)
            assemble = [command for one in self.config["assemble"] for command in user_lines(Assembly(**one))]
            return Held(lab.directory.name, (*assemble, self.config["mount"]))

    def _saved(self, patch: Patch) -> tuple[Path, Path]:
        """Write a state as a write log; return its path, and the new folder for the logs of a lab with this state."""
        self._lab_count += 1
        # A folder of this name may be left from an earlier checker.
        while (folder := self._logs / f"cold{self._lab_count}").exists():
            self._lab_count += 1
        folder.mkdir(parents=True)
        state = folder / "state.log"
        self._members.save(patch, state)
        return state, folder

    def _boot(self) -> AgentConnection:
        self.reboots += 1
        self.machine.start()
        if not self._members.prepare(self.machine):
            raise RigError(f"{self.machine.name}: the kernel modules of the member disks cannot be loaded again")
        return self._connect()

    def _connect(self) -> AgentConnection:
        # No state is mounted yet; the agent exports a state when a check through the server is requested.
        self.machine.succeed(["mkdir", "--parents", DIRECTORY])
        config = {**self.config, "members": self._members.config}
        others = []
        if self.stack.export.scans:
            service = self.stack.export.server(self.machine).serve_states()
            config["nfsd"] = nfsd_config(self.stack, self.machine, service, self.config["ledger"]["root"])
            others.append(service.module)
        self._agent = line = AgentConnection.start(self.machine, self._listener, self.lab, config, *others)
        self._members.connected(self._ask(line))
        return line

    def _ask(self, line: AgentConnection) -> Ask:
        """Return a function that sends the agent a request of the member disks.

        The machine has not assembled anything of the state: whatever goes wrong is the fault of the rig.
        """

        def ask(request: dict[str, Any], data: Sequence[bytes]) -> dict[str, Any]:
            try:
                return line.ask(request, CONTENT_DEADLINE_S, lambda _: None, data)
            except Lost as lost:
                raise RigError(f"{self.machine.name}: content of the member disks: {lost}") from lost

        return ask

    def _disconnect(self) -> None:
        if self._agent is not None:
            self._agent.close()
            self._agent = None
