"""A checker and its machine, which is made up here: what it is told, and what becomes of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import Topology, server_and_clients
from raidproof.crash import checker as module
from raidproof.crash.agent_connection import Lost, Silent
from raidproof.crash.checker import MOST_CONTENT, Checker
from raidproof.crash.states import Patch
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import WriteLog
from raidproof.guest import nfsd_threads
from raidproof.machine.machine import Machine
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.exploration import End, Observation
from raidproof.storage.server import SERVERS
from raidproof.storage.server.server import StateService
from raidproof.storage.stack import StackSpec

PID = 7
"""PID of the namespace of each lab."""
LEDGER = {"root": "/srv/raidproof/ledger"}
READ = {"end": End.READ, "said": "", "found": {}, "left": "", "errors": []}


class Server:
    """The machine: it notes what becomes of it."""

    name = "server"
    address = "10.77.0.1"

    def __init__(self, console: Path) -> None:
        self.console = console
        self.consoles = [console]
        self.did: list[str] = []
        self.lacks: set[str] = set()
        """Kernel modules that cannot be loaded."""

    def succeed(self, argv: list[str], stdin: str = "") -> str:
        self.did.append(" ".join(argv) + (f" < {stdin}" if stdin else ""))
        return ""

    def put(self, content: str, path: str) -> None:
        self.did.append(f"{path} < {content}")

    def run(self, argv: list[str]) -> SimpleNamespace:
        self.did.append(" ".join(argv))
        return SimpleNamespace(status=int(argv[1] in self.lacks))

    def start(self) -> None:
        self.did.append("start")

    def crash(self) -> None:
        self.did.append("crash")


class Line:
    """The agent of one boot: it gives the answers that are next."""

    def __init__(
        self, answers: list[dict[str, Any] | Lost], asked: list[dict[str, Any]], config: dict[str, Any]
    ) -> None:
        self.answers, self.asked, self.config = answers, asked, config
        self.sent: list[tuple[str, list[tuple[int, int, int]], list[bytes]]] = []
        """Requests of the member disks: verb, runs, content."""
        self.closed = False
        self.unreachable: Lost | None = None
        """Raised at each request of the member disks."""

    def ask(
        self, request: dict[str, Any], _deadline_s: float, _begun: Callable[[str], None], data: Sequence[bytes] = ()
    ) -> dict[str, Any]:
        if request["verb"] in {"advance", "show"}:
            if self.unreachable is not None:
                raise self.unreachable
            self.sent.append((request["verb"], request["runs"], list(data)))
            return {}
        self.asked.append(request)
        if request["verb"] == "recover":
            _begun("assemble")
            _begun("mount")
        answer = self.answers.pop(0)
        if isinstance(answer, Lost):
            raise answer
        return dict(answer)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_states_without_commands(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each kind of server return the same service without a command on the machine."""
    for _, kind in SERVERS.items():  # noqa: PERF102  a registry has no values()
        made = type(kind.model_validate({}).server(cast("Machine", server)))
        monkeypatch.setattr(made, "serve_states", lambda _: StateService(nfsd_threads, {"nfsd": "/proc"}))


class Rig:
    """Stands in for labs, machines and agents."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        console = folder / "console"
        console.write_text("[0.0] Linux version 6.12\n")
        rig = self
        self.folder = folder
        self.server = Server(console)
        self.answers: list[dict[str, Any] | Lost] = []
        self.asked: list[dict[str, Any]] = []
        self.lines: list[Line] = []
        self.modes: list[CacheMode] = []
        self.labs: list[Topology] = []
        self.primed: list[tuple[Path, bool]] = []
        self.cold_orders: list[dict[str, Any]] = []
        self.recorded: list[tuple[list[CacheMode], Path]] = []
        self.engine: list[str] = []
        self.cpu: int | None = 1
        """The CPU that is free for the checker."""
        self.kept: list[tuple[int, int]] = []
        """Processes that were restricted to a CPU."""
        self.others: list[tuple[ModuleType, ...]] = []
        """The modules that each agent gets in addition."""

        class Lab:
            """One lab, with members in the machine's memory or on the engine's disks."""

            def __init__(self, topology: Topology, *, logs: Path) -> None:
                rig.labs.append(topology)
                self.server = rig.server
                self.disks = SimpleNamespace(set_mode=rig.modes.append)
                self.directory = SimpleNamespace(path=folder, name="a9e7f033")
                self.namespace = SimpleNamespace(pid=PID)

            def __enter__(self) -> "Lab":
                return self

            def __exit__(self, *_: object) -> None:
                pass

            @contextmanager
            def listen(self) -> Iterator[None]:
                yield

        def primed(topology: Topology, state: Path, *, logs: Path, keep: bool) -> Lab:
            assert list(WriteLog(state)) == []
            rig.primed.append((state, keep))
            return Lab(topology, logs=logs)

        def recorded(topology: Topology, state: Path, *, logs: Path, modes: list[CacheMode], log: Path) -> Lab:
            assert list(WriteLog(state)) == []
            rig.recorded.append((modes, log))
            lab = Lab(topology, logs=logs)
            did = rig.engine.append
            lab.disks = SimpleNamespace(freeze=lambda: did("freeze"), log_stop=lambda: did("log_stop"))
            return lab

        def start(
            _machine: object, _listener: object, _lab: object, config: dict[str, Any], *others: ModuleType
        ) -> Line:
            rig.others.append(others)
            rig.lines.append(Line(rig.answers, rig.asked, config))
            return rig.lines[-1]

        def check_after_boot(_lab: object, _stack: object, config: dict[str, Any], _deadline_s: float) -> Observation:
            rig.cold_orders.append(config)
            return Observation(end=End.READ)

        for name, stand_in in {
            "NamespaceLab": Lab, "lab_of": Lab, "PreloadedLab": primed, "RecordedLab": recorded,
            "check_after_boot": check_after_boot,
            "AgentConnection": SimpleNamespace(start=start),
            "own_cpu": lambda: nullcontext(rig.cpu), "keep_on": lambda *kept: rig.kept.append(kept),
        }.items():  # fmt: skip
            monkeypatch.setattr(module, name, stand_in)
        serve_states_without_commands(self.server, monkeypatch)

    def checker(
        self, disks: int = 3, provider: str = "uml", stack: StackSpec | None = None, **changes: Any
    ) -> Checker:
        topology = server_and_clients(clients=1, disks=disks).model_copy(update={"provider": provider})
        return Checker(topology, stack or stack_of(), LEDGER, self.folder / "logs", **changes)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def test_a_machine_that_was_lost_is_powered_off_and_started_for_the_next_state_only(rig: Rig) -> None:
    rig.answers = [READ, Lost("kernel panic"), READ, READ]
    with rig.checker() as checker:
        begun = len(rig.server.did)
        ends = [checker.check(Patch()).end for _ in range(2)]
        assert rig.server.did[begun:] == ["crash"]
        assert (checker.reboots, rig.lines[0].closed) == (0, True)
        ends += [checker.check(Patch()).end for _ in range(2)]
        assert rig.server.did[begun : begun + 2] == ["crash", "start"]
        assert "start" not in rig.server.did[begun + 2 :]
        assert (checker.reboots, len(rig.lines)) == (1, 2)
    assert ends == [End.READ, End.WEDGED, End.READ, End.READ]
    assert rig.lines[1].closed


@pytest.mark.parametrize(
    ("content", "cpu", "kept"),
    [
        pytest.param(0, 1, [(PID, 1)], id="a-cpu-is-free"),
        pytest.param(0, None, [], id="no-cpu-is-free"),
        pytest.param(MOST_CONTENT + 1, 1, [], id="the-disk-engine-works-beside-the-machine"),
    ],
)
def test_a_machine_with_its_members_in_memory_has_a_cpu_for_itself(
    rig: Rig, content: int, cpu: int | None, kept: list[tuple[int, int]]
) -> None:
    rig.cpu = cpu
    with rig.checker(content=content):
        assert rig.kept == kept


def test_a_machine_that_something_stays_in_is_of_no_more_use(rig: Rig) -> None:
    rig.answers = [{**READ, "left": "umount: target is busy"}]
    with rig.checker() as checker:
        assert checker.check(Patch()).end is End.WEDGED
        assert rig.server.did[-1] == "crash"


@pytest.mark.parametrize("scans", [True, False])
@pytest.mark.parametrize("server", sorted(SERVERS))
def test_only_a_server_that_can_be_scanned_is_started_and_scanned(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, server: str, scans: bool
) -> None:
    stack = stack_of().model_copy(update={"export": SERVERS[server].model_validate({})})
    monkeypatch.setattr(type(stack.export), "scans", scans)
    rig.answers = [READ]
    with rig.checker(stack=stack) as checker:
        checker.check(Patch(), nfsd=True)
    assert rig.others == [(nfsd_threads,) if scans else ()]
    config = rig.lines[0].config
    assert ("nfsd" in config) is scans
    if scans:
        assert config["nfsd"]["service"] == {"module": "nfsd_threads", "arguments": {"nfsd": "/proc"}}
    assert rig.asked[0]["nfsd"] is scans


@pytest.mark.parametrize("provider", ["uml", "qemu"])
def test_members_are_in_the_memory_of_a_machine_without_disks(rig: Rig, provider: str) -> None:
    with rig.checker(3, provider, content=1 << 20) as checker:
        (lab,) = rig.labs
        assert lab.disks == ()
        assert lab.server.memory > checker.topology.server.memory + (1 << 20)
        assert rig.modes == []
        assert len(rig.lines[0].config["members"]["links"]) == 3


@pytest.mark.parametrize(("content", "lacks"), [(MOST_CONTENT + 1, ""), (0, "brd"), (0, "dm-snapshot")])
def test_members_are_disks_of_the_engine_if_they_cannot_be_in_memory(rig: Rig, content: int, lacks: str) -> None:
    rig.server.lacks = {lacks}
    with rig.checker(content=content):
        assert [len(lab.disks) for lab in rig.labs] == ([0, 3] if lacks else [3])
        assert rig.modes == [CacheMode.LYING]
        assert rig.lines[0].config["members"] == {}


def test_a_machine_gets_the_base_again_after_a_reboot(rig: Rig) -> None:
    rig.answers = [Lost("kernel panic"), READ]
    with rig.checker() as checker:
        checker.advance(Patch({(1, 2): b"a" * 4096}))
        checker.check(Patch())
        checker.advance(Patch({(1, 3): b"b" * 4096}))
        checker.check(Patch())
    assert rig.lines[1].sent[0] == ("advance", [(1, 8192, 8192)], [b"a" * 4096 + b"b" * 4096])
    assert rig.lines[1].sent[-1] == ("show", [], [])


def test_a_lab_that_has_no_disks_of_the_engine_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "lab_of", lambda *_, **__: SimpleNamespace())
    with pytest.raises(RequestError, match="provider hosts"), rig.checker(provider="hosts"):
        pass


@pytest.mark.parametrize("nfsd", [False, True])
@pytest.mark.parametrize("fsck", [False, True])
def test_nfsd_and_the_file_systems_checker_look_where_that_is_asked(rig: Rig, nfsd: bool, fsck: bool) -> None:
    rig.answers = [READ]
    with rig.checker() as checker:
        checker.check(Patch(), nfsd=nfsd, fsck=fsck)
    assert rig.asked == [{"verb": "check", "nfsd": nfsd, "fsck": fsck}]


def test_what_the_file_systems_checker_says_is_read_and_no_answer_is_no_verdict(rig: Rig) -> None:
    sound = "Phase 1 - find superblock\nNo modify flag set, skipping filesystem flush and exiting.\n"
    rig.answers = [{**READ, "fsck": [0, sound]}, {**READ, "fsck": [126, "not found"]}, READ]
    with rig.checker() as checker:
        clean, none, unasked = [checker.check(Patch(), fsck=True).filesystem for _ in range(3)]
    assert clean is not None
    assert (clean.outcome, none, unasked) == ("clean", None, None)


def test_each_cold_machine_has_a_folder_of_its_own_whatever_an_earlier_checker_left(rig: Rig) -> None:
    logs = rig.folder / "logs"
    (logs / "cold2").mkdir(parents=True)
    with rig.checker() as checker:
        checker.cold(Patch())
        checker.cold(Patch())
        held = checker.hold(Patch())
    assert rig.primed == [
        (logs / "cold1" / "state.log", False),
        (logs / "cold3" / "state.log", False),
        (logs / "cold4" / "state.log", True),
    ]
    assert [config["members"] for config in rig.cold_orders] == [{}, {}], "it has disks of the engine"
    assert held.lab == "a9e7f033"
    assert [argv[0] for argv in held.commands] == ["mdadm", "mount"]


def test_a_held_machine_is_ready_to_start_what_the_checker_starts(rig: Rig) -> None:
    with rig.checker(starts_dirty=True) as checker:
        before = len(rig.server.did)
        checker.hold(Patch())
    (said,) = rig.server.did[before:]
    assert said.endswith("/start_dirty_degraded < 1")


def test_a_base_is_what_each_later_state_stands_on(rig: Rig) -> None:
    rig.answers = [READ, READ]
    with rig.checker() as checker:
        checker.advance(Patch({(1, 0): b"a" * 4096}))
        checker.check(Patch({(1, 1): b"b" * 4096}))
        checker.check(Patch())
    assert [(verb, runs) for verb, runs, _ in rig.lines[0].sent if runs or verb == "show"] == [
        ("advance", [(1, 0, 4096)]),
        ("show", [(1, 4096, 4096)]),
        ("show", []),
    ]


@pytest.mark.parametrize("lost", [Lost("the check agent was killed, exit status 137"), Silent("no answer in time")])
def test_a_machine_that_does_not_get_the_content_of_a_state_is_an_error_of_the_rig(rig: Rig, lost: Lost) -> None:
    with rig.checker() as checker:
        rig.lines[0].unreachable = lost
        for action in (checker.check, checker.show, checker.advance):
            with pytest.raises(RigError, match=f"content of the member disks: {lost}"):
                action(Patch({(0, 0): b"1" * 4096}))


RECOVERED = {**READ, "settled": True}


def test_a_recovery_is_executed_on_recording_disks_that_stop_at_its_end(rig: Rig) -> None:
    rig.answers = [dict(RECOVERED)]
    log, modes = rig.folder / "recovery.log", [CacheMode.VOLATILE] * 3
    with rig.checker() as checker:
        recovered = checker.recover(Patch(), modes, log, resync_first_s=4.0)
    assert rig.recorded == [(modes, log)]
    assert rig.engine == ["freeze", "log_stop"]
    assert [stage for stage, _ in recovered.stages] == ["assemble", "mount"]
    assert recovered.stages[0][1] <= recovered.stages[1][1]
    assert (recovered.observation.end, recovered.settled) == (End.READ, True)
    (request,) = rig.asked
    assert (request["verb"], request["resync_first_s"]) == ("recover", 4.0)


def test_a_machine_that_is_lost_during_a_recovery_is_an_observation(rig: Rig) -> None:
    rig.answers = [Lost("kernel panic")]
    with rig.checker() as checker:
        recovered = checker.recover(Patch(), [CacheMode.NONE] * 3, rig.folder / "log", resync_first_s=0.0)
    assert (recovered.observation.end, recovered.observation.said) == (End.WEDGED, "mount: kernel panic")
    assert not recovered.settled
    assert rig.engine == ["freeze", "log_stop"], "the log has what the machine wrote until then"
