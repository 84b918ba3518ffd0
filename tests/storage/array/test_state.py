from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.errors import NotEffective, RigError
from raidproof.core.layer import differences
from raidproof.storage.array import MdArray, MdSpec, MdState, parse_md
from raidproof.storage.array.array import asked_of
from raidproof.storage.array.state import found_of, state_paths
from raidproof.storage.array.upkeep import FULL_SPEED
from tests.guest_files import FilesByCommands, parse_read

DATA = Path(__file__).parents[2] / "data" / "md"
LETTERS = "defghi"
SPEEDS = "/sys/block/md0/md/stripe_cache_size:256\n/sys/block/md0/md/sync_speed_max:200000 (system)\n"


def spec_of(**asked: Any) -> MdSpec:
    return MdSpec.model_validate({"chunk_size": "64KiB", **asked})


def disks(count: int) -> tuple[str, ...]:
    return tuple(f"disk{number}" for number in range(count))


def names_of(spec: MdSpec, kernel: str) -> dict[str, str]:
    """Names of the disks on the machine of the stored output: ubdd... on 7.2, vda... on 6.12."""
    every = disks(6)
    given_names = [f"ubd{letter}" for letter in LETTERS] if kernel == "7.2" else [f"vd{letter}" for letter in "abcdef"]
    found = {f"/dev/disk/by-id/raidproof-{serial}": name for serial, name in zip(every, given_names, strict=True)}
    return {**found, **{md.device: md.name for md in spec.devices}}


def read(kernel: str, name: str, spec: MdSpec) -> list[MdState]:
    content = parse_read((DATA / f"linux-{kernel}-{name}.txt").read_text())
    return [parse_md(md, names_of(spec, kernel), content) for md in spec.devices]


@pytest.mark.parametrize(
    ("kernel", "name", "asked", "policy", "layout"),
    [
        ("7.2", "raid0", {"level": 0, "members": disks(4)}, "none", None),
        ("7.2", "raid5-spare", {"level": 5, "members": disks(4), "spares": ("disk4",)}, "bitmap", "left-symmetric"),
        ("7.2", "raid5-journal", {"level": 5, "members": disks(4), "journal": "disk5"}, "journal", "left-symmetric"),
        (
            "7.2",
            "raid6-ddf-zero-restart",
            {"level": 6, "members": disks(5), "layout": "ddf-zero-restart"},
            "bitmap",
            "ddf-zero-restart",
        ),
        # Made by mdadm 4.2.
        ("6.12", "raid0", {"level": 0, "members": disks(4)}, "none", None),
        ("6.12", "raid4", {"level": 4, "members": disks(4), "consistency_policy": "resync"}, "resync", None),
        ("6.12", "raid1", {"level": 1, "members": disks(3), "chunk_size": None}, "bitmap", None),
    ],
)
def test_real_arrays_are_read(kernel: str, name: str, asked: dict[str, Any], policy: str, layout: str | None) -> None:
    spec = spec_of(**asked)
    (state,) = read(kernel, name, spec)
    assert state.level == spec.level
    assert state.raid_disks == len(spec.members)
    assert (state.consistency_policy, state.layout) == (policy, layout)
    assert (state.bitmap is not None) == (policy == "bitmap")
    assert state.clean
    assert {member.device for member in state.members} == set(spec.devices[0].inputs)


FINE = spec_of(members=disks(4), bitmap_chunk="16KiB")
FINE_TEXT = (DATA / "linux-6.12-raid5-bitmap-chunk.txt").read_text()


def test_chunk_of_the_bitmap_is_read_and_compared() -> None:
    (md,) = FINE.devices

    def differing(text: str, spec: MdSpec = FINE) -> list[str]:
        found = found_of(parse_md(md, names_of(FINE, "6.12"), parse_read(text)))
        return [one.field for one in differences(asked_of(spec.devices[0], spec), found)]

    assert differing(FINE_TEXT) == []
    assert differing(FINE_TEXT, spec_of(members=disks(4))) == []
    assert differing(FINE_TEXT.replace("chunksize:16384", "chunksize:67108864")) == ["bitmap_chunk"]
    without = "".join(line for line in FINE_TEXT.splitlines(keepends=True) if "/bitmap/" not in line)
    assert differing(without) == ["bitmap", "bitmap_chunk"]


def test_roles_of_members() -> None:
    (spare,) = read("7.2", "raid5-spare", spec_of(members=disks(4), spares=("disk4",)))
    assert [member.slot for member in spare.members] == [0, 1, 2, 3, None]
    assert spare.members[4].state == ("spare",)
    (journal,) = read("7.2", "raid5-journal", spec_of(members=disks(4), journal="disk5"))
    assert journal.members[4].state == ("journal",)


NESTED = spec_of(level="1+0", members=disks(6))


def test_a_nested_array_is_read_in_one_go() -> None:
    *legs, top = read("6.12", "striped-mirrors", NESTED)
    assert [leg.level for leg in legs] == ["1"] * 3
    assert [member.kernel_name for member in top.members] == ["md1", "md2", "md3"]
    assert top.optimal_io_size == 3 * 64 * 1024


RAID5 = spec_of(members=disks(4), spares=("disk4",))
TEXT = (DATA / "linux-7.2-raid5-spare.txt").read_text()


@given(st.integers(0, len(TEXT) - 1))
def test_cut_off_output_is_never_taken_for_the_array(length: int) -> None:
    whole = read("7.2", "raid5-spare", RAID5)[0]
    try:
        state = parse_md(RAID5.devices[0], names_of(RAID5, "7.2"), parse_read(TEXT[:length]))
    except RigError:
        return
    # A cut between two lines can only lose members, which the comparison with what was asked then finds.
    assert state.model_copy(update={"members": whole.members}) == whole
    assert len(state.members) < len(whole.members)


def change(text: str, file: str, value: str) -> str:
    lines = [f"{line.split(':')[0]}:{value}" if f"/{file}:" in line else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("file", "value"), [("level", "raid99"), ("raid_disks", "four"), ("degraded", "")])
def test_nonsense_is_the_rigs_fault(file: str, value: str) -> None:
    with pytest.raises(RigError):
        parse_md(RAID5.devices[0], names_of(RAID5, "7.2"), parse_read(change(TEXT, file, value)))


@pytest.mark.parametrize(
    ("file", "value"),
    [("degraded", "1"), ("resync_start", "1024"), ("sync_action", "resync"), ("array_state", "inactive")],
)
def test_unclean(file: str, value: str) -> None:
    assert not parse_md(RAID5.devices[0], names_of(RAID5, "7.2"), parse_read(change(TEXT, file, value))).clean


class ArrayMachine(FilesByCommands):
    """A fake machine whose array has successive states from a list of texts."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.ran: list[list[str]] = []

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        self.ran.append(list(argv))
        answer = ""
        if argv[0] == "realpath":
            order = {path: f"/dev/{name}" for path, name in names_of(RAID5, "7.2").items()}
            answer = "".join(f"{order[path]}\n" for path in argv[2:])
        elif argv[0] == "grep" and all(path.endswith(tuple(FULL_SPEED)) for path in argv[3:]):
            answer = SPEEDS
        elif argv[0] == "grep":
            answer = self.texts[0]
            if all(path.endswith("/sync_action") for path in argv[3:]):
                answer = "".join(line for line in answer.splitlines(True) if "/sync_action:" in line)
            # What is only asked whether it is idle is read whole after that.
            if len(self.texts) > 1 and not answer.endswith("/sync_action:idle\n"):
                self.texts.pop(0)
        return Completed(tuple(argv), 0, answer, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        completed = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout

    @property
    def mdadm(self) -> list[str]:
        return [command[1] for command in self.ran if command[0] == "mdadm"]


def test_what_was_asked_took_effect() -> None:
    assert MdArray(RAID5, ArrayMachine(TEXT)).activate().clean


@pytest.mark.parametrize(
    ("file", "value", "field"),
    [
        ("chunk_size", "524288", "chunk_size: requested 65536, effective 524288"),
        ("layout", "0", "layout: requested left-symmetric, effective left-asymmetric"),
        ("consistency_policy", "resync", "consistency_policy"),
        ("raid_disks", "5", "raid_disks"),
        ("optimal_io_size", "65536", "stripe_width"),
    ],
)
def test_what_did_not_take_effect_is_named(file: str, value: str, field: str) -> None:
    with pytest.raises(NotEffective, match=field):
        MdArray(RAID5, ArrayMachine(change(TEXT, file, value))).activate()


def test_a_missing_member_is_not_what_was_asked() -> None:
    without = "".join(line for line in TEXT.splitlines(keepends=True) if "dev-ubdg" not in line)
    with pytest.raises(NotEffective, match="inputs"):
        MdArray(RAID5, ArrayMachine(without)).activate()


def test_activation_creates_nothing() -> None:
    machine = ArrayMachine(TEXT)
    MdArray(RAID5, machine).activate()
    assert machine.mdadm == ["--examine", "--assemble"]


def test_a_check_that_ran_is_counted() -> None:
    checked = change(change(TEXT, "last_sync_action", "check"), "mismatch_cnt", "8")
    machine = ArrayMachine(TEXT, change(TEXT, "sync_action", "check"), checked)
    scrub = MdArray(RAID5, machine).scrub()
    assert scrub.mismatches == 8
    # The fake array stays as it is, whatever is repaired.
    assert scrub.repaired == {"/dev/md0": 8}
    assert machine.mdadm == ["--action=check", "--action=repair", "--action=check"]


def test_a_check_goes_as_fast_as_md_can_and_no_longer_than_it_takes() -> None:
    machine = ArrayMachine(change(TEXT, "last_sync_action", "check"))
    MdArray(RAID5, machine).scrub()
    words = [command[0] if command[0] != "tee" else command[1].split("/")[-1] for command in machine.ran]
    changed = ["stripe_cache_size", "sync_speed_max"]
    check = words.index("mdadm")
    assert [word for word in words[:check] if word in changed] == changed
    assert words[-2:] == changed
    assert [word for word in words[check:] if word in changed] == changed


def test_an_array_in_which_nothing_differs_is_not_repaired() -> None:
    machine = ArrayMachine(change(TEXT, "last_sync_action", "check"))
    assert MdArray(RAID5, machine).scrub().repaired == {}
    assert machine.mdadm == ["--action=check"]


def test_mismatches_repaired_by_the_earlier_resync_are_distinguished() -> None:
    resynced = change(change(TEXT, "last_sync_action", "resync"), "mismatch_cnt", "24")
    machine = ArrayMachine(resynced, change(TEXT, "last_sync_action", "check"))
    scrub = MdArray(RAID5, machine).scrub()
    assert (scrub.resynced, scrub.mismatches) == ({"/dev/md0": 24}, 0)


def test_a_wait_looks_up_the_disks_once() -> None:
    waiting = change(TEXT, "sync_action", "resync")
    machine = ArrayMachine(waiting, waiting, waiting, TEXT)
    MdArray(RAID5, machine).wait_clean()
    # Once for what it finds at first, once for all readings after that.
    assert [command[0] for command in machine.ran] == ["realpath", "grep", "realpath", "grep", "grep", "grep", "grep"]


def test_an_array_that_does_not_resync_by_itself_is_made_to_and_read_again() -> None:
    machine = ArrayMachine(change(TEXT, "array_state", "read-auto"), TEXT)
    assert MdArray(RAID5, machine).wait_clean().top.array_state != "read-auto"
    assert machine.mdadm == ["--readwrite"]


def test_a_check_that_never_ran_proves_nothing() -> None:
    with pytest.raises(RigError, match="last_sync_action"):
        MdArray(RAID5, ArrayMachine(TEXT)).scrub()


def test_a_degraded_array_has_nothing_to_compare() -> None:
    scrub = MdArray(RAID5, ArrayMachine(change(TEXT, "degraded", "1"))).scrub()
    assert scrub.mismatch_cnt == {}
    assert "degraded" in scrub.unchecked["/dev/md0"]


def test_an_array_that_was_only_assembled_is_made_writable_before_it_is_waited_for() -> None:
    assembled = change(change(TEXT, "array_state", "read-auto"), "resync_start", "0")
    machine = ArrayMachine(assembled, assembled, TEXT)
    assert MdArray(RAID5, machine).wait_clean().clean
    assert machine.mdadm == ["--readwrite"]


def test_every_input_is_looked_at() -> None:
    paths = state_paths(RAID5.devices[0], names_of(RAID5, "7.2"))
    assert "/sys/block/md0/md/dev-ubdh/state" in paths
