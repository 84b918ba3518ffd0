"""The preparation of a machine with a user's box at each boot, with a fake of a real machine."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.topology import Role
from raidproof.machine.machine import Machine
from raidproof.provider.vagrant.box import CLIENT_ID, CONSOLE, PROGRAMS, BoxGuest
from tests.guest_files import FilesByCommands

SERIALS = ("disk0", "disk1")
THREADS = "/proc/fs/nfsd/threads"


class Box(FilesByCommands):
    """A fake that records its commands."""

    name = "server"

    def __init__(self, role: Role = Role.SERVER) -> None:
        self.spec = SimpleNamespace(role=role)
        self.asked: list[tuple[str, ...]] = []
        self.files = {CONSOLE: "tty0 ttyS0\n", THREADS: "0\n"}
        self.user = "0"
        self.cache = "write back"
        self.lacks: set[str] = set()

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> Completed:
        self.asked.append(tuple(argv))
        match argv:
            case ["id", "-u"]:
                return Completed(tuple(argv), 0, f"{self.user}\n", "", self.name)
            case ["which", *programs]:
                found = "".join(f"/usr/sbin/{one}\n" for one in programs if one not in self.lacks)
                return Completed(tuple(argv), int(bool(self.lacks)), found, "", self.name)
            case ["realpath", _, *links]:
                said = "".join(f"/dev/vd{'bcdef'[at]}\n" for at in range(len(links)))
                return Completed(tuple(argv), 0, said, "", self.name)
            case ["mdadm", *_]:
                return Completed(tuple(argv), 1, "", "mdadm: stopped /dev/md127\n", self.name)
        return Completed(tuple(argv), 0, "", "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> str:
        completed = self.run(argv)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout

    def get(self, path: str) -> str:
        return f"{self.cache}\n" if path.endswith("/queue/write_cache") else self.files[path]

    def put(self, content: str | bytes, path: str) -> None:
        self.files[path] = str(content)

    def at(self, *words: str) -> int:
        return next(at for at, argv in enumerate(self.asked) if argv[: len(words)] == words)


def prepared(box: Box, guest: BoxGuest | None = None) -> BoxGuest:
    guest = guest or BoxGuest("example/stock", SERIALS if box.spec.role is Role.SERVER else ())
    guest.prepare(cast("Machine", box))
    return guest


def test_members_are_known_by_the_names_that_our_commands_use() -> None:
    box = Box()
    prepared(box)
    links = [argv[-2:] for argv in box.asked if argv[0] == "ln" and argv[-2].startswith("/dev/vd")]
    assert links == [
        ("/dev/vdb", "/dev/disk/by-id/raidproof-disk0"),
        ("/dev/vdc", "/dev/disk/by-id/raidproof-disk1"),
    ]


def test_its_own_server_is_stopped_before_it_forgets_how() -> None:
    box = Box()
    prepared(box)
    assert box.at("systemctl", "stop") < box.at("systemctl", "mask") < box.at("mdadm", "--stop")


def test_what_stays_is_done_once_and_what_a_reboot_undoes_each_time() -> None:
    box = Box()
    guest = prepared(box)
    assert box.asked[-1] == ("sync",)
    box.asked.clear()
    prepared(box, guest)
    told = {argv[:2] for argv in box.asked}
    assert not told & {("systemctl", "mask"), ("sync",), ("id", "-u")}
    assert {("mkdir", "--parents"), ("mdadm", "--stop"), ("systemctl", "stop")} <= told


def test_copies_of_one_box_are_two_clients_to_the_server() -> None:
    said: Any = set()
    for name in ("client1", "client2"):
        box = Box(Role.CLIENT)
        box.name = name
        prepared(box)
        said.add(box.files[CLIENT_ID])
        assert not any("hostname" in word for argv in box.asked for word in argv)
    assert said == {"client1", "client2"}


@pytest.mark.parametrize(("role", "program"), [(Role.SERVER, "nfsdcld"), (Role.CLIENT, "mount.nfs")])
def test_what_a_box_lacks_is_named_with_what_it_is_for(role: Role, program: str) -> None:
    box = Box(role)
    box.lacks = {program, "python3"}
    with pytest.raises(RequirementMissing, match=rf"example/stock lacks python3 \(.*{program} \(") as raised:
        prepared(box)
    assert PROGRAMS[role][program] in str(raised.value)


def test_a_box_whose_user_is_not_root_is_refused() -> None:
    box = Box()
    box.user = "1000"
    with pytest.raises(RequestError, match="not run as root"):
        prepared(box)


def test_a_server_that_cannot_be_stopped_is_refused() -> None:
    box = Box()
    box.files[THREADS] = "16\n"
    with pytest.raises(RigError, match="still runs 16 nfsd threads"):
        prepared(box)


def test_a_member_that_gets_no_flushes_is_refused() -> None:
    box = Box()
    box.cache = "write through"
    with pytest.raises(RigError, match="cache of disk disk0 is 'write through'"):
        prepared(box)


def test_a_kernel_without_console_output_is_reported() -> None:
    box = Box()
    assert not prepared(box).silent
    box.files[CONSOLE] = "tty0\n"
    assert prepared(box).silent
