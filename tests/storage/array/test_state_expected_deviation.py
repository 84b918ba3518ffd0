from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import NotEffective
from raidproof.storage.array import ExpectedDeviation, MdArray
from raidproof.storage.array.state import parse_md
from tests.guest_files import parse_read
from tests.storage.array.test_state import DATA, RAID5, TEXT, ArrayMachine, change, disks, names_of, read, spec_of

WHOLE = ExpectedDeviation()
EXAMINED = (DATA.parent / "mdadm" / "examine-4.4-whole.txt").read_text()
MEMBERS = frozenset(disks(4))


def without(serial: str) -> str:
    name = names_of(RAID5, "7.2")[f"/dev/disk/by-id/raidproof-{serial}"]
    return "".join(line for line in TEXT.splitlines(keepends=True) if f"dev-{name}/" not in line)


def rebuilding(serial: str) -> str:
    name = names_of(RAID5, "7.2")[f"/dev/disk/by-id/raidproof-{serial}"]
    return TEXT.replace(f"dev-{name}/state:in_sync", f"dev-{name}/state:spare")


def activated(text: str, expected_deviation: ExpectedDeviation = WHOLE) -> ArrayMachine:
    machine = ArrayMachine(text)
    array = MdArray(RAID5, machine)
    array.expected_deviation = expected_deviation
    array.activate()
    return machine


def test_a_member_may_be_missing_if_a_fault_took_it() -> None:
    activated(without("disk1"), ExpectedDeviation(absent=frozenset({"disk1"})))


def test_the_member_that_was_taken_may_be_there_all_the_same() -> None:
    activated(TEXT, ExpectedDeviation(absent=frozenset({"disk1"})))


@pytest.mark.parametrize(
    "expected_deviation",
    [
        ExpectedDeviation(),
        ExpectedDeviation(absent=frozenset({"disk2"})),
        ExpectedDeviation(rebuilding=frozenset({"disk1"})),
    ],
)
def test_no_other_member_may_be_missing(expected_deviation: ExpectedDeviation) -> None:
    with pytest.raises(NotEffective, match="inputs"):
        activated(without("disk1"), expected_deviation)


def test_a_member_may_be_rebuilding_if_a_fault_renewed_it() -> None:
    activated(rebuilding("disk1"), ExpectedDeviation(rebuilding=frozenset({"disk1"})))


def test_no_other_member_may_be_rebuilding() -> None:
    with pytest.raises(NotEffective, match="not in sync: disk1"):
        activated(rebuilding("disk1"), ExpectedDeviation(rebuilding=frozenset({"disk2"})))


@given(st.sets(st.sampled_from(sorted(MEMBERS))), st.sets(st.sampled_from(sorted(MEMBERS))))
def test_what_is_missing_must_have_been_taken(missing: set[str], taken: set[str]) -> None:
    text = TEXT
    for serial in missing:
        name = names_of(RAID5, "7.2")[f"/dev/disk/by-id/raidproof-{serial}"]
        text = "".join(line for line in text.splitlines(keepends=True) if f"dev-{name}/" not in line)
    expected_deviation = ExpectedDeviation(absent=frozenset(taken))
    if missing <= taken:
        activated(text, expected_deviation)
    else:
        with pytest.raises(NotEffective):
            activated(text, expected_deviation)


@pytest.mark.parametrize(("file", "value"), [("chunk_size", "524288"), ("layout", "0"), ("raid_disks", "5")])
def test_nothing_else_may_differ(file: str, value: str) -> None:
    expected_deviation = ExpectedDeviation(absent=MEMBERS, rebuilding=MEMBERS)
    with pytest.raises(NotEffective, match=file):
        activated(change(TEXT, file, value), expected_deviation)


def test_an_array_is_started_dirty_only_with_consent_and_never_forced() -> None:
    assert "--run" not in activated(TEXT).ran[1]
    tee, _, assemble, *_ = activated(TEXT, ExpectedDeviation(starts_dirty=True)).ran
    assert tee == ["tee", "/sys/module/md_mod/parameters/start_dirty_degraded"]
    assert assemble[:4] == ["mdadm", "--assemble", "--run", "/dev/md0"]
    assert "--force" not in assemble


class Boot(ArrayMachine):
    """A server that boots: some members' superblocks can be read, and commands of mdadm may fail."""

    def __init__(self, text: str, *readable: str, failing: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.readable, self.failing = readable, failing

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        completed = super().run(argv, stdin=stdin, deadline_s=deadline_s)
        if argv[:2] == ["mdadm", "--examine"]:
            parts = EXAMINED.split("/dev/disk/by-id/raidproof-")[1:]
            kept = [f"/dev/disk/by-id/raidproof-{part}" for part in parts if part.startswith(self.readable)]
            return Completed(tuple(argv), 1, "".join(kept), "", self.name)
        if argv[0] == "mdadm" and argv[1] in self.failing:
            return Completed(tuple(argv), 1, "", f"mdadm: no {argv[1]}", self.name)
        return completed


def test_a_member_that_cannot_be_read_is_left_out_as_at_a_boot() -> None:
    machine = Boot(without("disk1"), "disk0", "disk2", "disk3")
    array = MdArray(RAID5, machine)
    array.expected_deviation = ExpectedDeviation(absent=frozenset({"disk1"}))
    array.activate()
    [assemble] = [command for command in machine.ran if command[:2] == ["mdadm", "--assemble"]]
    assert assemble[2:] == ["/dev/md0", *(f"/dev/disk/by-id/raidproof-disk{one}" for one in (0, 2, 3))]


def test_if_no_member_can_be_read_mdadm_says_so() -> None:
    machine = Boot(TEXT, failing=("--assemble", "--run"))
    with pytest.raises(CommandFailed, match="no --assemble"):
        MdArray(RAID5, machine).activate()
    assert [len(command) for command in machine.ran if command[:2] == ["mdadm", "--assemble"]] == [8]


def test_an_array_that_lacks_a_member_for_the_first_time_is_started_without_it() -> None:
    machine = Boot(TEXT, "disk", failing=("--assemble",))
    MdArray(RAID5, machine).activate()
    assert ["mdadm", "--run", "/dev/md0"] in machine.ran


def test_serials_are_added_and_taken_back() -> None:
    one = frozenset({"disk1"})
    expected_deviation = (
        ExpectedDeviation(raid_disks=4).plus(absent=one, renewed=one).plus(rebuilding=frozenset({"disk2"}))
    )
    assert expected_deviation == ExpectedDeviation(
        absent=one, rebuilding=frozenset({"disk2"}), renewed=one, raid_disks=4
    )
    assert expected_deviation.minus("disk1", "disk2") == ExpectedDeviation(renewed=one, raid_disks=4)


RESHAPED = spec_of(level=5, members=disks(3), spares=("disk3",))


def reshaping() -> Any:
    (state,) = read("6.12", "raid5-reshaping", RESHAPED)
    return state


def test_a_reshape_is_under_way() -> None:
    state = reshaping()
    assert (state.raid_disks, state.reshape_position, state.sync_action) == (4, 16896, "reshape")
    assert not state.clean
    # Just assembled, md says `idle`: its position says that it goes on.
    assert not state.model_copy(update={"sync_action": "idle"}).clean


def test_an_array_that_was_reshaped_is_accepted_only_if_that_was_the_fault() -> None:
    class Reshaping(ArrayMachine):
        def run(self, argv: Any, **also: Any) -> Any:
            completed = super().run(argv, **also)
            if argv[0] != "realpath":
                return completed
            names = names_of(RESHAPED, "6.12")
            return replace(completed, stdout="".join(f"/dev/{names[path]}\n" for path in argv[2:]))

    array = MdArray(RESHAPED, Reshaping((DATA / "linux-6.12-raid5-reshaping.txt").read_text()))
    with pytest.raises(NotEffective, match="raid_disks: requested 3, effective 4"):
        array.activate()
    array.expected_deviation = ExpectedDeviation(raid_disks=4)
    array.activate()
    array.expected_deviation = ExpectedDeviation(raid_disks=5)
    with pytest.raises(NotEffective, match="raid_disks"):
        array.activate()


def test_a_rebuild_is_under_way() -> None:
    spec = spec_of(level=5, members=disks(4))
    text = (DATA / "linux-6.12-raid5-rebuilding.txt").read_text()
    state = parse_md(spec.devices[0], names_of(spec, "6.12"), parse_read(text))
    assert [member.recovery_start for member in state.members] == [None, 0, None, None]
    assert ExpectedDeviation().unexpected(state) == ["/dev/disk/by-id/raidproof-disk1"]
    assert ExpectedDeviation(rebuilding=frozenset({"disk1"})).unexpected(state) == []
