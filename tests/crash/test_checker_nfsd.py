"""What a checker does with its nfsd, and what becomes of what nfsd gives otherwise."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.crash import exploration as module
from raidproof.crash.checker import nfsd_config
from raidproof.crash.journal import lines_of
from raidproof.guest import nfsd_threads
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.record.exploration import ThroughNfsd
from raidproof.storage.mount import MountSpec, mount_command
from raidproof.storage.server import Export, ExportSpec
from raidproof.storage.server.knfsd import GRACE_ENDED
from raidproof.storage.server.server import StateService
from raidproof.verdict.checks.crash_state import NFSD
from tests.crash.made_up import MadeUp, told, written
from tests.guest_files import FilesByCommands

ROOT = "/srv/raidproof/ledger"
SERVICE = StateService(nfsd_threads, {})


class Server(FilesByCommands):
    """Has an address, and runs what it is told."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.programs: list[str] = []
        self.written: dict[str, str] = {}

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append(argv[-1])
        ended = "Y" if GRACE_ENDED in self.written and argv[0] == "cat" else "N"
        if argv[0] == "tee":
            self.written[argv[-1]] = stdin or ""
        self.programs.append(argv[0])
        return Completed(tuple(argv), 0, ended, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        return self.run(argv, stdin=stdin).stdout


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def honest(tmp_path: Path) -> MadeUp:
    return MadeUp(tmp_path / "honest", written(), told())


def test_it_is_mounted_as_by_the_clients_of_the_run(server: Server) -> None:
    stack = stack_of(root_squash=False).model_copy(update={"mount": MountSpec(vers="3", rsize="64KiB")})
    config = nfsd_config(stack, server, SERVICE, ROOT)
    assert config["mount"] == [mount_command(stack.mount, "10.77.0.10:/srv/raidproof")]
    assert config["unmount"] == ["umount", "/mnt/raidproof"]
    assert config["root"] == "/mnt/raidproof/ledger"


@pytest.mark.parametrize(("vers", "source"), [("4.2", "10.77.0.10:/"), ("3", "10.77.0.10:/srv/raidproof")])
def test_a_root_of_the_name_space_is_mounted_as_such(server: Server, vers: str, source: str) -> None:
    changed = {"export": ExportSpec(fsid="0"), "mount": MountSpec(vers=vers)}
    config = nfsd_config(stack_of().model_copy(update=changed), server, SERVICE, ROOT)
    assert config["mount"][-1][-2] == source


def test_whoever_is_squashed_may_enter(server: Server) -> None:
    stack = stack_of().model_copy(update={"export": ExportSpec()})
    assert nfsd_config(stack, server, SERVICE, ROOT)["mount"][0] == ["chmod", "1777", "/srv/raidproof"]


def test_the_grace_ends_when_it_has_begun(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Export, "activate", lambda _: server.ran.append("begun"))
    assert Export(ExportSpec(), server).serve_states() == SERVICE
    assert server.ran == ["/etc/exports", "begun", *3 * [GRACE_ENDED]]
    assert server.programs == ["tee", "cat", "tee", "cat"]


def test_a_program_that_exports_anew_between_two_states_keeps_the_export(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Export, "activate", lambda _: None)
    Export(ExportSpec(), server).serve_states()
    options = "rw,sync,wdelay,no_subtree_check,root_squash"
    assert server.written["/etc/exports"] == f"/srv/raidproof 10.77.0.0/24({options})\n"


def test_one_in_so_many_different_states_is_read_through_nfsd(honest: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NFSD_EVERY", 3)
    honest.explore()
    lines = list(lines_of(honest.folder / "states.jsonl"))
    checked = [line.observation.through_nfsd for line in lines if line.observation is not None]
    # The digest of a content decides, so that the share is near one third.
    assert len(checked) / 5 < checked.count(ThroughNfsd.SAME) < len(checked) / 2
    assert {*checked} == {ThroughNfsd.SAME, ThroughNfsd.NOT_TRIED}


def test_what_nfsd_gives_otherwise_is_a_failure_counted_once(honest: MadeUp) -> None:
    honest.nfsd = lambda first: ThroughNfsd.DIFFERENT if first == 2 else ThroughNfsd.SAME
    stats = honest.explore().stats
    (group,) = stats.failures()
    assert group.damage.promise == NFSD
    assert 0 < group.count == stats.broken < stats.judged
    assert not stats.cold.differing
    # What an exploration that goes on reads from its journal counts the same.
    (again,) = honest.explore().stats.failures()
    assert (again.count, again.names) == (group.count, group.names)


def test_what_nfsd_gives_otherwise_is_seen_by_both_and_counted_once(
    honest: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NFSD_EVERY", "COLD_EVERY"):
        monkeypatch.setattr(module, name, 1)
    honest.nfsd = lambda _: ThroughNfsd.DIFFERENT
    stats = honest.explore().stats
    (group,) = stats.failures()
    assert group.count == stats.broken == stats.judged
    assert stats.cold.checked == stats.checked
    assert not stats.cold.differing
