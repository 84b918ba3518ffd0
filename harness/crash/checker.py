"""A machine on which crash states are looked at one after the other: its disks are switched, it is not rebooted."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from harness.array.command import assemble_command, stop_command
from harness.command import CommandFailed
from harness.crash.agent_line import AgentLine, Lost
from harness.crash.observation import End, Observation, ThroughNfsd
from harness.crash.patch import Patch
from harness.disk.cache import CacheMode
from harness.disk.writelog import MemberInfo
from harness.errors import RequestError, RigError
from harness.export import Export
from harness.filesystem import DIRECTORY
from harness.filesystem.filesystem import mount_command
from harness.lab import EnclosedLab, lab_of
from harness.machine.kernel_log import Moment, moment, said_since
from harness.machine.machine import Machine
from harness.mount import Mount
from harness.stack import StackSpec
from harness.topology import NO_MECHANICS, Topology
from harness.verdict.kernel_log import findings
from harness.waiting import now_ns

DEADLINE_S = 20.0
"""What one state may take. The replay of a full log takes seconds on a busy host."""
_BROKEN = {"oops", "panic", "hung task"}
"""Signs of a kernel of which nothing more can be expected."""
_GRACE_ENDS = ["tee", "/proc/fs/nfsd/v4_end_grace"]
_STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? *")
_NUMBERS = re.compile(r"(?<=\bPID: )\d+|(?<=\btask )(\S+):\d+")


def checker_topology(topology: Topology) -> Topology:
    """Return what a checker of a run consists of: the server with its disks, without their mechanics."""
    bare = {"profile": NO_MECHANICS, "controller": None}
    return topology.model_copy(
        update={
            "machines": (topology.server,),
            "disks": tuple(disk.model_copy(update=bare) for disk in topology.disks),
            "controllers": (),
            "slow_motion": 1.0,
        }
    )


def orders_of(stack: StackSpec, ledger: dict[str, Any]) -> dict[str, Any]:
    """Return what the agent has to do: the very commands by which a run brings its server up, and takes it down."""
    devices = stack.array.devices
    return {
        "assemble": [[md.device, assemble_command(md)] for md in devices],
        "mount": mount_command(stack.filesystem, devices[-1].device),
        "unmount": ["umount", DIRECTORY],
        "stop": stop_command(md.device for md in reversed(devices)),
        "ledger": ledger,
    }


class Checker:
    """A booted server and its disk engine. A context manager; one thread at a time.

    The disks hold a base, which `advance` moves on. Every other method shows a state on top of it, and the next one
    undoes it: the members are LYING, so nothing that the machine flushes becomes part of the base. Once a check is
    over nobody in the machine has a member open, and the last close of a block device empties its page cache. No
    resync begins (md's sync_action is ``frozen``): what is looked at stays what the crash left.

    ``ledger``: what the ledger's scan takes; ``root`` is the folder on the mounted file system.
    """

    def __init__(
        self,
        topology: Topology,
        stack: StackSpec,
        ledger: dict[str, Any],
        logs: Path,
        *,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.topology = checker_topology(topology)
        self.stack = stack
        self.orders = orders_of(stack, ledger)
        self.deadline_s = deadline_s
        self.reboots = 0
        """How often the machine had to be started again."""
        self._logs = logs
        self._members = [
            MemberInfo(disk.serial, disk.size, CacheMode.LYING, CacheMode.VOLATILE) for disk in topology.disks
        ]
        self._line: AgentLine | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        lab = lab_of(self.topology, logs=self._logs)
        if not isinstance(lab, EnclosedLab):
            raise RequestError(
                f"provider {self.topology.provider}: crash states are shown by the disk engine, which it has not",
                remedy="use provider uml or qemu",
            )
        with ExitStack() as undo:
            self.lab = undo.enter_context(lab)
            self._listener = undo.enter_context(lab.listen())
            undo.callback(self._hang_up)
            lab.disks.set_mode(CacheMode.LYING)
            self._connect()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._undo.__exit__(*error)  # type: ignore[arg-type]

    @property
    def machine(self) -> Machine:
        """The machine that looks at the states."""
        return self.lab.server

    def advance(self, patch: Patch) -> None:
        """Move the base on, which every state is shown on top of. It begins blank."""
        self._show(patch, keep=True)

    def check(self, patch: Patch) -> Observation:
        """Look at a state: assemble, mount, read the ledger, unmount, stop.

        Raises:
            RigError: the checker failed, not what it looks at.
        """
        self._require_up()
        since, begun = self._begin(patch)
        look = _Look(self._agent, begun)
        try:
            answer = look.ask(self.deadline_s, "check")
        except Lost as lost:
            return self._wedged(look, lost, since)
        return self._observed(answer, look.ms, since)

    def cold(self, patch: Patch) -> Observation:
        """Look at a state on a machine that boots with it, and read the ledger through nfsd too.

        Raises:
            RigError: the checker failed, not what it looks at.
        """
        if self.machine.boot_id is not None:
            self._crash()
        since, begun = self._begin(patch)
        self._boot()
        look = _Look(self._agent, begun)
        try:
            answer = look.ask(self.deadline_s, "up")
            if answer["end"] == End.READ:
                answer.update(self._through_nfsd(look, answer["found"]))
            answer.update(look.ask(self.deadline_s, "down"))
        except Lost as lost:
            return self._wedged(look, lost, since)
        return self._observed(answer, look.ms, since)

    def hold(self, patch: Patch) -> tuple[list[str], ...]:
        """Put a state on the disks of a lab that goes on when this context is left.

        Returns the commands that bring it up on the machine.
        """
        self._require_up()
        self._show(patch)
        self.lab.keep = True
        return (*(argv for _, argv in self.orders["assemble"]), self.orders["mount"])

    def _begin(self, patch: Patch) -> tuple[Moment, int]:
        since, begun = moment(self.machine), now_ns()
        self._show(patch)
        return since, begun

    def _show(self, patch: Patch, *, keep: bool = False) -> None:
        path = self.lab.directory.path / "state.log"
        path.unlink(missing_ok=True)
        patch.write(path, self._members)
        self.lab.disks.show(path, keep=keep)

    @property
    def _agent(self) -> AgentLine:
        if self._line is None:
            raise RigError(f"{self.machine.name}: the checker's agent is not connected")
        return self._line

    def _require_up(self) -> None:
        if self._line is None:
            self._boot()

    def _boot(self) -> None:
        self.reboots += 1
        self.machine.start()
        self._connect()

    def _connect(self) -> None:
        self._line = AgentLine.start(self.machine, self._listener, self.lab, self.orders)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _crash(self) -> None:
        self._hang_up()
        # What the machine wrote goes with the state: back to the base.
        self.machine.crash()

    def _through_nfsd(self, look: "_Look", direct: object) -> dict[str, Any]:
        """Export, mount here, read once more; whatever of that does not work is said, and is no end of its own."""
        export = Export(self.stack.export, self.machine, DIRECTORY)
        root = self.stack.export.fsid == 0 and self.stack.mount.vers != "3"
        mount = Mount(self.stack.mount, self.machine, f"{self.machine.address}:{'/' if root else export.path}")
        below = Path(self.orders["ledger"]["root"]).relative_to(DIRECTORY)
        look.stage("nfsd")
        try:
            with ExitStack() as undo:
                undo.callback(export.deactivate)
                export.activate()
                # Nobody has anything to reclaim; who was cut off while he read would have to wait it out.
                self.machine.run(_GRACE_ENDS, stdin="Y\n")
                mount.activate()
                undo.callback(mount.deactivate)
                seen = look.ask(self.deadline_s, "look", str(Path(mount.directory) / below))["found"]
        except (CommandFailed, ExceptionGroup) as error:
            return {"said": f"nfsd: {error}"}
        same = seen == direct
        differ = "" if same else f"through nfsd: {', '.join(differing(direct, seen))}"
        return {"through_nfsd": ThroughNfsd.SAME if same else ThroughNfsd.DIFFERENT, "said": differ}

    def _observed(self, answer: dict[str, Any], ms: dict[str, float], since: Moment) -> Observation:
        signs = findings(said_since(self.machine, since))
        left = answer.pop("left")
        if left or any(sign in _BROKEN for sign, _ in signs):
            # Whatever it says next would be said by a machine that is not as booted.
            self._crash()
            answer["said"] = "; ".join(filter(None, (answer["said"], left)))
            answer["end"] = End.WEDGED
        return Observation(**answer, console=alarming(signs), ms=ms)

    def _wedged(self, look: "_Look", lost: Lost, since: Moment) -> Observation:
        self._crash()
        signs = findings(said_since(self.machine, since))
        return Observation(end=End.WEDGED, said=f"{look.at}: {lost}", console=alarming(signs), ms=look.ms)


class _Look:
    """The requests for one state, and how long each stage of it took."""

    def __init__(self, agent: AgentLine, begun_ns: int) -> None:
        self.ms: dict[str, float] = {}
        self.at = "switch"
        self._agent = agent
        self._since = begun_ns

    def ask(self, deadline_s: float, verb: str, *words: str) -> dict[str, Any]:
        answer = self._agent.ask([verb, *words], deadline_s, self.stage)
        self.stage("")
        return answer

    def stage(self, name: str) -> None:
        """Begin a stage, which ends the one before."""
        now = now_ns()
        if self.at:
            self.ms[self.at] = self.ms.get(self.at, 0.0) + (now - self._since) / 1e6
        self.at, self._since = name, now


def differing(direct: Any, seen: Any) -> list[str]:
    """Return the workers whose files were seen in two ways."""
    return sorted(key for key in direct if direct[key] != seen.get(key))


def alarming(signs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return each alarming line once, without what differs from boot to boot."""
    lines = (f"{sign}: {_NUMBERS.sub('*', _STAMP.sub('', line))}" for sign, line in signs)
    return tuple(dict.fromkeys(lines))
