import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.provider.hosts.snapshot import (
    DEADLINE_S,
    KeeperConfig,
    Remote,
    ask,
    copy_of,
    left_as_found,
    restore,
    restore_all,
    settle,
    take,
    unrestored,
)

CLEAN: dict[str, Any] = {"failed": [], "differences": [], "replaced": {}}
TAKEN: dict[str, Any] = {"snapshot": {"version": 1, "link": None}}


class Fake:
    """A fake machine whose keeper gives scripted answers."""

    def __init__(self, name: str = "server", runs: Sequence[str] = (), **answers: Any) -> None:
        self.name = name
        self.runs = list(runs)
        self.answers = {"take": TAKEN, "settle": {"failed": []}, "restore": CLEAN, **answers}
        self.asked: list[str] = []
        self.brought = b""

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEADLINE_S
    ) -> Completed:
        if argv[0] == "find":
            listed = "".join(f"snapshot.{run}\n" for run in self.runs)
            return Completed(tuple(argv), 0 if self.runs else 1, listed, "")
        if argv[0] == "tar":
            assert isinstance(stdin, bytes)
            self.brought = stdin
        if argv[0] != "env":
            return Completed(tuple(argv), 0, "", "")
        verb, run = argv[-2:]
        self.asked.append(verb)
        answer = self.answers[verb]
        if isinstance(answer, str):
            return Completed(tuple(argv), 0, answer, "")
        if isinstance(answer, int):
            return Completed(tuple(argv), answer, "", "no room")
        if verb == "take" and "snapshot" in answer:
            self.runs.append(run)
        elif verb == "restore" and answer == CLEAN:
            self.runs.remove(run)
        return Completed(tuple(argv), 0, json.dumps(answer), "")


def config(run: str = "r1", **changes: Any) -> KeeperConfig:
    return KeeperConfig(run, "server", ("/dev/disk/by-id/a",), **changes)


def test_the_copy_exists_during_the_run_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    machine: Remote = Fake()
    with left_as_found([(machine, config())], tmp_path):
        copy = copy_of(tmp_path, "r1", "server")
        assert json.loads(copy.read_text()) == TAKEN["snapshot"]
        assert copy.stat().st_mode & 0o077 == 0
        assert unrestored(machine) == ("r1",)
    assert unrestored(machine) == ()
    assert list(tmp_path.iterdir()) == []


def test_the_keeper_is_brought_whole(tmp_path: Path) -> None:
    machine = Fake()
    take(machine, config(), tmp_path)
    assert b"keeper/__main__.py" in machine.brought
    assert b"keeper/store.py" in machine.brought


def test_a_run_that_was_not_put_back_is_in_the_way(tmp_path: Path) -> None:
    machine = Fake(runs=["r0"], take={"unrestored": ["r0"]})
    with pytest.raises(RequestError, match=r"not been restored since run r0 \(\./raidproof hosts restore my\.toml\)"):
        take(machine, config(), tmp_path, "my.toml")
    assert "restore" not in machine.asked
    assert not copy_of(tmp_path, "r1", "server").exists()


def test_queues_of_the_owners_own_are_in_the_way(tmp_path: Path) -> None:
    link = {"qdiscs": [{"kind": "htb", "handle": "1:"}, {"kind": "fq", "handle": "0:"}]}
    machine = Fake(take={"snapshot": {"version": 1, "link": link}})
    with pytest.raises(RequestError, match="qdiscs of its own on eth0, which link conditions would remove: htb 1:"):
        take(machine, config(interface="eth0"), tmp_path)
    assert machine.asked == ["take", "restore"]
    assert unrestored(machine) == ()


def test_a_server_that_serves_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    machine = Fake(settle={"serving": ["rpc.mountd", "nfsdcld"]})
    refused = pytest.raises(RequestError, match=r"already \(rpc\.mountd, nfsdcld\).*stop_nfs = true")
    with refused, left_as_found([(machine, config())], tmp_path):
        pytest.fail("it began")
    assert machine.asked == ["take", "settle", "restore"]


def test_a_server_that_does_not_stop_is_an_error() -> None:
    with pytest.raises(RigError, match=r"its own NFS server does not stop: rpc\.nfsd: busy"):
        settle(Fake(settle={"failed": ["rpc.nfsd: busy"]}), "r1")


def test_clients_are_put_back_before_their_server_whatever_fails(tmp_path: Path) -> None:
    order: list[str] = []

    class Noted(Fake):
        def run(self, argv: Sequence[str], **rest: Any) -> Completed:
            if argv[-2:] == ["restore", "r1"]:
                order.append(self.name)
            return super().run(argv, **rest)

    left = {**CLEAN, "differences": ["/etc/fstab: other content"]}
    machines = [Noted("server"), Noted("client1", restore=left), Noted("client2", restore=1)]
    kept = [(one, config()) for one in machines]
    with pytest.raises(RigError, match="it broke") as raised, left_as_found(kept, tmp_path):
        raise RigError("it broke")
    assert order == ["client2", "client1", "server"]
    assert "client1: /etc/fstab: other content" in raised.value.__notes__[0]
    assert unrestored(machines[0]) == ()
    assert unrestored(machines[1]) == ("r1",)
    assert copy_of(tmp_path, "r1", "client1").exists()


def test_an_end_that_leaves_something_is_an_error(tmp_path: Path) -> None:
    machine = Fake(restore={**CLEAN, "differences": ["still online: md7"]})
    with pytest.raises(RigError, match="server: still online: md7"), left_as_found([(machine, config())], tmp_path):
        pass


def test_all_machines_are_tried_and_failures_are_reported(tmp_path: Path) -> None:
    left = {**CLEAN, "failed": ["umount: busy"]}
    machines = [
        Fake("server", ["r1", "r2"]),
        Fake("client1", ["r1"], restore=left),
        Fake("client2", ["r1"], restore=1),
    ]
    with pytest.raises(RigError, match=r"(?s)client2: .*no room.*client1: umount: busy.*hosts restore my\.toml"):
        restore_all(machines, tmp_path, "my.toml")
    assert unrestored(machines[0]) == ()


def test_a_machine_that_does_not_answer_does_not_delay_others(tmp_path: Path) -> None:
    class Gone(Fake):
        def run(self, argv: Sequence[str], **_rest: Any) -> Completed:
            raise RigError("client1: no connection")

    server = Fake("server", ["r1"])
    with pytest.raises(RigError, match="client1: no connection"):
        restore_all([Gone("client1"), server], tmp_path)
    assert unrestored(server) == ()


def test_an_untouched_machine_is_not_changed(tmp_path: Path) -> None:
    machine = Fake()
    assert restore_all([machine], tmp_path) == []
    assert machine.asked == []


def test_changes_by_others_during_the_run_are_kept(tmp_path: Path) -> None:
    edited = {"/etc/fstab": {"kind": "file", "content": "bmV3"}, "/var/lib/nfs/etab": {"kind": "file"}}
    machine = Fake(runs=["r1"], restore={**CLEAN, "replaced": edited})
    assert restore(machine, "r1", tmp_path).clean
    kept = json.loads((tmp_path / "r1" / "server.replaced.json").read_text())
    assert list(kept) == ["/etc/fstab"]


@pytest.mark.parametrize(
    ("answer", "error", "said"), [(1, CommandFailed, "no room"), ('{"fai', RigError, "keeper restore.* is not JSON")]
)
def test_a_keeper_that_does_not_answer_is_an_error(answer: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        ask(Fake(restore=answer), "/var/lib/raidproof/snapshot.r1", "restore", "r1")
