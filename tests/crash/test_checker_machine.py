"""A checker and its machine, which is made up here: what it is told, and what becomes of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import Topology, server_and_clients
from raidproof.crash import checker as module
from raidproof.crash.checker import Checker, Lost
from raidproof.crash.member_files import MOST
from raidproof.crash.states import Patch
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import WriteLog
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.exploration import End, Observation

LEDGER = {"root": "/srv/raidproof/ledger"}
READ = {"end": End.READ, "said": "", "found": {}, "left": ""}


class Server:
    """The machine: it notes what becomes of it."""

    name = "server"
    address = "10.77.0.1"

    def __init__(self, console: Path) -> None:
        self.console = console
        self.consoles = [console]
        self.did: list[str] = []

    def succeed(self, argv: list[str], stdin: str = "") -> str:
        self.did.append(" ".join(argv) + (f" < {stdin}" if stdin else ""))
        return ""

    def put(self, content: str, path: str) -> None:
        self.did.append(f"{path} < {content}")

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
        self.closed = False

    def ask(self, request: dict[str, Any], _deadline_s: float, _begun: Callable[[str], None]) -> dict[str, Any]:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Lost):
            raise answer
        return dict(answer)

    def close(self) -> None:
        self.closed = True


class Rig:
    """Stands in for labs, machines and agents."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        console = folder / "console"
        console.touch()
        rig = self
        self.folder = folder
        self.server = Server(console)
        self.answers: list[dict[str, Any] | Lost] = []
        self.asked: list[dict[str, Any]] = []
        self.lines: list[Line] = []
        self.modes: list[CacheMode] = []
        self.on_files: list[bool] = []
        self.primed: list[tuple[Path, bool]] = []
        self.cold_orders: list[dict[str, Any]] = []

        class Lab:
            """One lab, with the provider's machines on files or on the engine's disks."""

            def __init__(self, topology: Topology, *provider: Any, logs: Path) -> None:
                rig.on_files.append(bool(provider))
                for one in provider:
                    one.files.create(folder)
                self.server = rig.server
                self.disks = SimpleNamespace(set_mode=rig.modes.append)
                self.directory = SimpleNamespace(path=folder, name="a9e7f033")

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

        def start(_machine: object, _listener: object, _lab: object, config: dict[str, Any]) -> Line:
            rig.lines.append(Line(rig.answers, rig.asked, config))
            return rig.lines[-1]

        def check_after_boot(_lab: object, _stack: object, config: dict[str, Any], _deadline_s: float) -> Observation:
            rig.cold_orders.append(config)
            return Observation(end=End.READ)

        for name, stand_in in {
            "NamespaceLab": Lab, "lab_of": Lab, "PreloadedLab": primed, "check_after_boot": check_after_boot,
            "UmlOnFiles": lambda files: SimpleNamespace(files=files), "AgentConnection": SimpleNamespace(start=start),
            "start_nfsd": lambda _: None,
        }.items():  # fmt: skip
            monkeypatch.setattr(module, name, stand_in)

    def checker(self, disks: int = 3, provider: str = "uml", **changes: Any) -> Checker:
        topology = server_and_clients(clients=1, disks=disks).model_copy(update={"provider": provider})
        return Checker(topology, stack_of(), LEDGER, self.folder / "logs", **changes)


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


def test_a_machine_that_something_stays_in_is_of_no_more_use(rig: Rig) -> None:
    rig.answers = [{**READ, "left": "umount: target is busy"}]
    with rig.checker() as checker:
        assert checker.check(Patch()).end is End.WEDGED
        assert rig.server.did[-1] == "crash"


@pytest.mark.parametrize(
    ("disks", "provider", "files"), [(MOST, "uml", True), (MOST + 1, "uml", False), (3, "qemu", False)]
)
def test_members_are_files_where_the_kernel_is_a_process_that_has_room_for_them(
    rig: Rig, disks: int, provider: str, files: bool
) -> None:
    with rig.checker(disks, provider):
        assert rig.on_files == [files]
        assert rig.modes == ([] if files else [CacheMode.LYING])
        assert len(rig.lines[0].config["links"]) == (disks if files else 0)


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
    assert [config["links"] for config in rig.cold_orders] == [[], []], "it has made its own"
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
        with (rig.folder / "member1").open("rb", buffering=0) as member:
            shown = member.read(8192)
            checker.check(Patch())
            member.seek(0)
            after = member.read(8192)
    assert (shown, after) == (b"a" * 4096 + b"b" * 4096, b"a" * 4096 + bytes(4096))
