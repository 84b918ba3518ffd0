"""Adoption and use of disks, with a machine whose disks are files."""

from collections.abc import Callable, Sequence

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RequirementMissing, RigError
from raidproof.core.layer import Machine
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.provider.hosts import disks as real
from raidproof.provider.hosts import gate
from raidproof.provider.hosts.disks import HostDisks, parse_stat
from raidproof.provider.hosts.gate import (
    Permission,
    adopt,
    blank,
    digest,
    discard_command,
    fingerprint,
    judge,
    propose,
    require_adopted,
    write_marks,
    writer_command,
)
from raidproof.provider.hosts.inventory import BY_ID, HostSpec, Inventory, MemberDisk
from raidproof.provider.hosts.survey import DiskFacts, Mark, Signature, Survey, decode, encode
from tests.guest_files import FilesByCommands

GIB = 1 << 30
PATHS = (f"{BY_ID}ata-A", f"{BY_ID}ata-B")
INVENTORY = Inventory(
    server=HostSpec(name="server", host="nas"),
    client=(HostSpec(name="client1", host="pc"),),
    disk=tuple(MemberDisk(id=path) for path in PATHS),
)


def blank_disks() -> Survey:
    disks = {
        f"8:{16 * (at + 1)}": DiskFacts(
            name=f"sd{'bc'[at]}",
            number=f"8:{16 * (at + 1)}",
            kind="disk",
            size=GIB,
            read_only=False,
            model="DRIVE",
            serial=path[-1],
            blank=True,
        )
        for at, path in enumerate(PATHS)
    }
    return Survey(machine="server", machine_id="abc", links=dict(zip(PATHS, disks, strict=True)), disks=disks)


class Server(FilesByCommands):
    """A fake that stores the marks that it must write and records all calls."""

    name = address = "server"

    def __init__(self, found: Survey) -> None:
        self.found = found
        self.asked: list[tuple[str, ...]] = []
        self.fails: set[str] = set()
        self.members = "sdb\nsdc\n"

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> Completed:
        self.asked.append(tuple(argv))
        if argv[0] in self.fails:
            return Completed(tuple(argv), 1, "", f"{argv[0]}: in use", self.name)
        if argv[0] == "python3":
            words = argv[4:]
            for at in range(0, len(words), 5):
                facts = self.found.disks[words[at + 1]]
                mark = decode(bytes.fromhex(words[at + 4]))
                self.change(facts.number, mark=mark, first_mark=True)
        said = {
            "realpath": "".join(f"/dev/{self.found.disks[self.found.links[path]].name}\n" for path in PATHS),
            "find": self.members,
            "stat": "8:10\n8:20\n",
            "grep": "".join(f"/sys/block/{name}/stat:{' '.join(map(str, range(17)))}\n" for name in ("sdb", "sdc")),
        }
        return Completed(tuple(argv), 0, said.get(argv[0], ""), "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 0) -> str:
        ended = self.run(argv, stdin=stdin)
        if not ended.ok:
            raise RigError(ended.stderr)
        return ended.stdout

    def change(self, number: str, **changes: object) -> None:
        facts = self.found.disks[number].model_copy(update=changes)
        self.found = self.found.model_copy(update={"disks": {**self.found.disks, number: facts}})

    @property
    def writers(self) -> list[tuple[str, ...]]:
        return [argv for argv in self.asked if argv[0] in {"python3", "wipefs", "blkdiscard", "ln", "rm"}]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server(blank_disks())

    def look(machine: Machine, paths: Sequence[str]) -> Survey:
        assert list(paths) == list(PATHS)
        return made.found

    monkeypatch.setattr(gate, "look", look)
    monkeypatch.setattr(real, "survey", look)
    return made


def confirmed(server: Server) -> tuple[Mark, ...]:
    return adopt(INVENTORY, server, show=str, yes=fingerprint(INVENTORY, server.found))


def test_an_adoption_shows_what_is_lost_then_asks_then_marks(server: Server) -> None:
    shown: list[str] = []

    def ask(question: str) -> str:
        assert not server.writers
        assert "DRIVE, 1GiB, serial number A" in "\n".join(shown)
        assert "All data on these disks will be lost" in question
        return f" {fingerprint(INVENTORY, server.found)[:8].upper()} "

    marks = adopt(INVENTORY, server, show=shown.append, ask=ask)
    assert [mark.serial for mark in marks] == ["disk0", "disk1"]
    assert len(require_adopted(INVENTORY, server)) == 2
    assert "adopted before" in propose(INVENTORY, server).lines()[0]


@pytest.mark.parametrize("said", ["", "yes", "y", "0" * 8, "zzzzzzzz"])
def test_anything_but_the_fingerprint_is_no(server: Server, said: str) -> None:
    right = fingerprint(INVENTORY, server.found)
    assert not right.startswith("0" * 8)
    for more in (said, right[:7]):
        with pytest.raises(RequestError, match="not confirmed"):
            adopt(INVENTORY, server, show=str, yes=more)
        with pytest.raises(RequestError, match="not confirmed"):
            adopt(INVENTORY, server, show=str, ask=lambda _, more=more: more)  # type: ignore[misc]
    with pytest.raises(RigError, match="must be confirmed"):
        adopt(INVENTORY, server, show=str)
    assert not server.writers


def test_one_refused_disk_refuses_all(server: Server) -> None:
    server.change("8:32", mounts=("/srv",))
    with pytest.raises(RequestError, match=r"disk1.*mounted on /srv"):
        confirmed(server)
    assert not server.writers


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mounts": ("/srv",)}, "mounted on /srv"),
        ({"serial": "C"}, "changed before the confirmation"),
    ],
)
def test_a_disk_that_changes_while_a_person_thinks_is_not_written(
    server: Server, change: dict[str, object], reason: str
) -> None:
    right = fingerprint(INVENTORY, server.found)

    def ask(_: str) -> str:
        server.change("8:16", **change)
        return right

    with pytest.raises(RequestError, match=reason):
        adopt(INVENTORY, server, show=str, ask=ask)
    assert not server.writers


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"serial": "C"}, "another disk"),
        ({"mark": None, "first_mark": False}, "not adopted"),
        ({"first_mark": False}, "overwritten"),
        ({"holders": ("md0",)}, "in use by md0"),
    ],
)
def test_a_reset_judges_again_before_it_writes(server: Server, change: dict[str, object], reason: str) -> None:
    confirmed(server)
    before = len(server.writers)
    server.change("8:16", **change)
    with pytest.raises(RequestError, match=reason):
        HostDisks(INVENTORY, server).reset()
    assert len(server.writers) == before


def test_whatever_changes_in_an_inventory_needs_a_new_adoption(server: Server) -> None:
    confirmed(server)
    other = INVENTORY.model_copy(update={"disk": tuple(reversed(INVENTORY.disk))})
    assert digest(other, "abc") != digest(INVENTORY, "abc") != digest(INVENTORY, "abd")
    with pytest.raises(RequestError, match="adopted by another inventory"):
        HostDisks(INVENTORY.model_copy(update={"client": (HostSpec(name="c", host="x"),)}), server).reset()


def test_a_fingerprint_is_of_what_was_found() -> None:
    found = blank_disks()
    facts = found.disks["8:16"].model_copy(update={"serial": "Z"})
    swapped = found.model_copy(update={"disks": {**found.disks, "8:16": facts}})
    missing = found.model_copy(update={"links": {}})
    assert len({fingerprint(INVENTORY, one) for one in (found, swapped, missing)}) == 3
    with pytest.raises(RigError, match="machine-id"):
        fingerprint(INVENTORY, found.model_copy(update={"machine_id": ""}))


def test_a_reset_marks_first_then_erases_between_the_marks(server: Server) -> None:
    confirmed(server)
    server.asked.clear()
    HostDisks(INVENTORY, server).reset()
    words = [argv[0] for argv in server.writers if argv[0] != "ln"]
    assert words == ["python3", "wipefs", "blkdiscard", "blkdiscard", "python3"]
    assert ("ln", "--symbolic", "--force", "--no-dereference", "/dev/sdb", f"{BY_ID}raidproof-disk0") in server.asked
    for argv in server.writers:
        assert "--force" not in argv or argv[0] == "ln"
        assert not any(word.startswith("/dev/sd") for word in argv) or argv[0] == "ln"


def test_a_disk_that_cannot_discard_is_no_error(server: Server) -> None:
    confirmed(server)
    server.fails = {"blkdiscard"}
    assert blank(server, require_adopted(INVENTORY, server)) == ()


@pytest.mark.parametrize("tool", ["python3", "wipefs"])
def test_a_disk_that_is_in_use_after_all_ends_a_reset(server: Server, tool: str) -> None:
    confirmed(server)
    server.fails = {tool}
    with pytest.raises(RigError, match="in use"):
        HostDisks(INVENTORY, server).reset()


def test_a_link_that_leads_elsewhere_is_an_error(server: Server) -> None:
    confirmed(server)
    moved = server.found.disks["8:16"].model_copy(update={"number": "9:9"})
    links, disks = {**server.found.links, PATHS[0]: "9:9"}, {**server.found.disks, "9:9": moved}
    server.found = server.found.model_copy(update={"links": links, "disks": disks})
    with pytest.raises(RigError, match="another device"):
        HostDisks(INVENTORY, server).link()


def permission() -> Permission:
    found = blank_disks()
    permitted = judge("disk0", INVENTORY.disks, found, None)
    assert isinstance(permitted, Permission)
    return permitted


def test_no_unmarked_disk_is_blanked(server: Server) -> None:
    with pytest.raises(RigError, match="without a mark"):
        blank(server, [permission()])
    assert not server.writers


def test_the_marks_lie_outside_of_what_is_discarded() -> None:
    assert discard_command(permission()) == [
        "blkdiscard", "--offset", "4096", "--length", str(GIB - 8192), PATHS[0],
    ]  # fmt: skip


def test_the_writer_gets_the_expected_content(server: Server) -> None:
    permitted = permission()
    mark = Mark(inventory="0" * 64, serial="disk0", identity=permitted.identity)
    words = writer_command([permitted], [mark], 0)
    assert words[3:] == ["0", PATHS[0], "8:16", str(GIB), "-", encode(mark).hex()]
    write_marks(server, [permitted], [mark])
    assert server.found.disks["8:16"].mark == mark


def test_missing_abilities_of_real_disks_are_reported(server: Server) -> None:
    disks = HostDisks(INVENTORY, server)
    disks.set_mode(CacheMode.VOLATILE)
    disks.set_timing(True)
    refused: list[Callable[[], object]] = [
        disks.use,
        lambda: disks.set_timing(False),
        *(lambda mode=mode: disks.set_mode(mode) for mode in CacheMode if mode is not CacheMode.VOLATILE),
    ]
    for ask in refused:
        with pytest.raises(RequirementMissing, match="hosts:"):
            ask()
    assert disks.log_stop() is None
    assert disks.describe().members == ()
    assert all(text.startswith("hosts:") for text in real.CANNOT_PROVE)


def test_counters_are_the_kernels(server: Server) -> None:
    confirmed(server)
    counted = HostDisks(INVENTORY, server).counters()
    assert list(counted) == ["disk0", "disk1"]
    one = counted["disk1"]
    assert (one.reads, one.read_bytes, one.writes, one.written_bytes) == (0, 1024, 4, 3072)
    assert (one.discards, one.discarded_bytes, one.flushes) == (11, 13 * 512, 15)


@pytest.mark.parametrize("text", ["", "1 2 3", "a " * 17])
def test_counters_that_are_none_are_an_error(text: str) -> None:
    with pytest.raises(RigError, match="lacks some of the 17 numbers"):
        parse_stat("disk0", text)


def test_an_array_of_ours_that_start_up_assembled_is_stopped(server: Server) -> None:
    confirmed(server)
    for number in ("8:16", "8:32"):
        server.change(number, holders=("md127",), claimed=True)
    assert HostDisks(INVENTORY, server).stop_arrays() == ("md127",)
    assert server.asked[-1] == ("mdadm", "--stop", "/dev/md127")


@pytest.mark.parametrize(
    "change",
    [
        {"mounts": ("/srv",)},
        {"swaps": ("/dev/md127",)},
        {"openers": ("qemu (1)",)},
        {"holders": ("dm-0",)},
        {"mark": None},
        {"first_mark": False},
        {"signatures": (Signature(device="sdb", kind="linux_raid_member", label="nas:0"),)},
        {"unknown": ("something",)},
    ],
)
def test_a_possibly_foreign_array_is_not_stopped(server: Server, change: dict[str, object]) -> None:
    confirmed(server)
    for number in ("8:16", "8:32"):
        server.change(number, holders=("md127",), claimed=True)
    server.change("8:16", **change)
    assert HostDisks(INVENTORY, server).stop_arrays() == ()
    assert not any(argv[0] == "mdadm" for argv in server.asked)


def test_an_array_with_a_member_of_its_own_is_not_stopped(server: Server) -> None:
    confirmed(server)
    server.change("8:16", holders=("md127",), claimed=True)
    server.members = "sdb\nsdx\n"
    assert HostDisks(INVENTORY, server).stop_arrays() == ()


def test_only_the_plain_cut_of_the_cache_that_is_there_can_be_asked_for(server: Server) -> None:
    disks = HostDisks(INVENTORY, server)
    disks.require(CacheMode.VOLATILE, CutPolicy.DROP)
    for mode, policy in ((CacheMode.LYING, CutPolicy.DROP), (CacheMode.VOLATILE, CutPolicy.TORN)):
        with pytest.raises(RequirementMissing, match="hosts:"):
            disks.require(mode, policy)
