from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB, KIB, MIB
from raidproof.storage.array import LEVELS, Geometry, MdSpec, assemble_command, capacity
from raidproof.storage.array.superblock import LEAST_CHUNK, USUAL_CHUNK, least_chunk


def disks(count: int) -> tuple[str, ...]:
    return tuple(f"disk{number}" for number in range(count))


@pytest.mark.parametrize("level", [5, "5", "raid5", "RAID5", "RAID-5"])
def test_a_level_may_be_written_as_people_do(level: object) -> None:
    assert MdSpec.model_validate({"level": level, "members": disks(3)}).level == "5"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"level": "55", "members": disks(4)}, "did you mean '5'"),
        ({"level": "raid1+O", "members": disks(4)}, r"did you mean '1\+0'"),
        ({"level": 6, "members": disks(3)}, "RAID6 needs at least 4 members, not 3"),
        ({"level": 0, "members": disks(1)}, "at least 2"),
        ({"level": "1+0", "members": disks(2)}, "at least 4"),
        ({"level": "1+0", "members": disks(5)}, "5 members do not make 2 legs"),
        ({"level": "0+1", "members": disks(6), "legs": 4}, "6 members do not make 4 legs"),
        ({"level": "0+1", "members": disks(4), "legs": 4}, "two or more"),
        ({"level": "1+0", "members": disks(4), "legs": 0}, "do not make 0 legs"),
        ({"level": 5, "members": disks(4), "legs": 2}, "has no legs"),
        ({"members": ("disk0", "disk1", "disk1")}, "only once: disk1"),
        ({"members": disks(3), "spares": ("disk2",)}, "only once: disk2"),
        ({"members": disks(3), "journal": "disk0"}, "only once: disk0"),
        ({"level": 0, "members": disks(3), "spares": ("x",)}, "no redundancy"),
        ({"level": "1+0", "members": disks(4), "spares": ("x",)}, "of one inner array only"),
        ({"level": 1, "members": disks(2), "chunk_size": "64KiB"}, "no chunk size"),
        ({"level": 5, "members": disks(3), "chunk_size": None}, "needs a chunk size"),
        ({"level": 5, "members": disks(3), "chunk_size": "2KiB"}, "page size"),
        ({"level": 5, "members": disks(3), "chunk_size": "12KiB"}, "power of two"),
        ({"level": 0, "members": disks(3), "chunk_size": "6KiB"}, "multiple of the page size"),
        ({"level": 5, "members": disks(3), "chunk_size": "lots"}, "not a size"),
        ({"level": 5, "members": disks(3), "layout": "left-symetric"}, "did you mean 'left-symmetric'"),
        ({"level": 5, "members": disks(3), "layout": "ddf-N-restart"}, "layout of RAID5"),
        ({"level": 10, "members": disks(4), "layout": "n5"}, "layout of RAID10 with 4 members"),
        ({"level": 10, "members": disks(4), "layout": "n1"}, "layout of RAID10"),
        ({"level": 4, "members": disks(4), "layout": "left-symmetric"}, "no layout to choose"),
        ({"level": 0, "members": disks(2), "bitmap": "internal"}, "RAID0 has no redundancy"),
        ({"level": 6, "members": disks(4), "consistency_policy": "ppl"}, "RAID5 only"),
        ({"level": 1, "members": disks(2), "journal": "x"}, "RAID4, 5 and 6 only"),
        ({"level": 5, "members": disks(3), "consistency_policy": "journal"}, "needs a journal device"),
        ({"members": disks(3), "consistency_policy": "ppl", "journal": "x"}, "no use of a journal"),
        ({"members": disks(3), "consistency_policy": "ppl", "bitmap": "internal"}, "contradicts"),
        ({"members": disks(3), "journal": "x", "bitmap": "internal"}, "policy journal contradicts"),
        ({"members": disks(3), "consistency_policy": "bitmap", "bitmap": "none"}, "contradicts"),
        ({"members": disks(3), "consistency_policy": "resync", "bitmap": "internal"}, "contradicts"),
        ({"members": disks(3), "bitmap": "none", "bitmap_chunk": "64KiB"}, "has no bitmap .consistency policy resync"),
        ({"members": disks(3), "consistency_policy": "ppl", "bitmap_chunk": "64KiB"}, "has no bitmap"),
        ({"members": disks(3), "journal": "x", "bitmap_chunk": "64KiB"}, "consistency policy journal"),
        ({"level": 0, "members": disks(2), "bitmap_chunk": "64KiB"}, "consistency policy none"),
        ({"members": disks(3), "bitmap_chunk": "12KiB"}, "power of two from 4KiB to 1GiB"),
        ({"members": disks(3), "bitmap_chunk": "2KiB"}, "power of two from 4KiB"),
        ({"members": disks(3), "bitmap_chunk": "2GiB"}, "power of two from 4KiB to 1GiB"),
        ({"members": disks(3), "consistency_policy": "resinc"}, "did you mean 'resync'"),
        ({"members": disks(3), "bitmap": "internl"}, "did you mean 'internal'"),
        ({"members": disks(3), "chunk": "64KiB"}, "did you mean 'chunk_size'"),
        ({"members": ("/dev/sda", "b", "c")}, "pattern"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        MdSpec.model_validate(asked)


@pytest.mark.parametrize(
    ("asked", "policy"),
    [
        ({}, "bitmap"),
        ({"bitmap": "internal"}, "bitmap"),
        ({"bitmap": "none"}, "resync"),
        ({"consistency_policy": "resync"}, "resync"),
        ({"consistency_policy": "ppl"}, "ppl"),
        ({"journal": "x"}, "journal"),
        ({"level": 0}, "none"),
    ],
)
def test_policy(asked: dict[str, Any], policy: str) -> None:
    assert MdSpec.model_validate({"level": 5, "members": disks(4), **asked}).policy == policy


@pytest.mark.parametrize(
    ("level", "members", "layout", "expected"),
    [
        ("0", 4, None, 4),
        ("1", 3, None, 1),
        ("4", 4, None, 3),
        ("5", 4, None, 3),
        ("6", 5, "left-symmetric-6", 3),
        # As the kernel's optimal_io_size had it on each of these.
        ("10", 4, "n2", 2),
        ("10", 5, "n2", 5),
        ("10", 6, "n3", 2),
        ("10", 4, "f2", 4),
        ("10", 4, "o2", 4),
    ],
)
def test_data_disks(level: str, members: int, layout: str | None, expected: int) -> None:
    assert LEVELS[level].of(members, layout).data_disks == expected


def test_nested_arrays_are_made_of_arrays() -> None:
    leg1, leg2, leg3, top = MdSpec(level="1+0", members=disks(6), chunk_size=64 * KIB).devices
    assert [leg.level for leg in (leg1, leg2, leg3)] == ["1"] * 3
    assert leg2.members == ("/dev/disk/by-id/raidproof-disk2", "/dev/disk/by-id/raidproof-disk3")
    assert (leg2.chunk_size, leg2.consistency_policy) == (None, "bitmap")
    assert top.members == ("/dev/md1", "/dev/md2", "/dev/md3")
    assert (top.device, top.level, top.chunk_size, top.consistency_policy) == (
        "/dev/md0",
        "0",
        64 * KIB,
        "none",
    )


def test_mirrored_stripes() -> None:
    spec = MdSpec(level="0+1", members=disks(6), chunk_size=64 * KIB)
    leg1, leg2, top = spec.devices
    assert (leg1.level, len(leg1.members), leg2.chunk_size) == ("0", 3, 64 * KIB)
    assert (top.level, top.chunk_size, top.consistency_policy) == ("1", None, "bitmap")
    assert spec.geometry == Geometry(64 * KIB, 3)


@st.composite
def specs(draw: st.DrawFn) -> MdSpec:
    level, count = draw(st.sampled_from(MdSpec.named_levels())), draw(st.integers(2, 8))
    asked: dict[str, Any] = {"level": level, "members": disks(count)}
    if LEVELS[level].chunked:
        asked["chunk_size"] = draw(st.sampled_from([4, 8, 12, 64, 512])) * KIB
    if level == "10":
        asked["layout"] = draw(st.sampled_from("nfo")) + str(draw(st.integers(1, 4)))
    asked["bitmap"] = draw(st.sampled_from([None, "none", "internal"]))
    asked["bitmap_chunk"] = draw(st.sampled_from([None, 4 * KIB, 64 * MIB]))
    try:
        return MdSpec.model_validate(asked)
    except RequestError:
        assume(False)
        raise


@given(specs())
def test_every_member_is_used_exactly_once(spec: MdSpec) -> None:
    used = [path for md in spec.devices for path in md.members if not path.startswith("/dev/md")]
    assert sorted(used) == sorted(f"/dev/disk/by-id/raidproof-{serial}" for serial in spec.members)
    assert spec.devices[-1].device == "/dev/md0"
    assert len({md.device for md in spec.devices}) == len(spec.devices)


@given(specs())
def test_a_leg_is_created_before_the_outer_array(spec: MdSpec) -> None:
    there: set[str] = set()
    for md in spec.devices:
        assert {path for path in md.members if path.startswith("/dev/md")} <= there
        there.add(md.device)


@given(specs())
def test_capacity_and_geometry_make_sense(spec: MdSpec) -> None:
    size = 256 * MIB
    assert size <= capacity(spec, size) <= len(spec.members) * size
    if spec.geometry:
        assert 1 <= spec.geometry.data_disks <= len(spec.members)
        assert spec.geometry.stripe_unit == spec.chunk_size


def paths(*serials: str) -> list[str]:
    return [f"/dev/disk/by-id/raidproof-{serial}" for serial in serials]


def test_raid5() -> None:
    spec = MdSpec(level="5", members=disks(3), spares=("hot",), chunk_size=65536, assume_clean=True)
    assert spec.create_commands() == [
        [
            *(
                "mdadm",
                "--create",
                "/dev/md0",
                "--run",
                "--assume-clean",
                "--metadata=1.2",
                "--homehost=raidproof",
                "--level=5",
            ),
            *("--raid-devices=3", "--spare-devices=1", "--chunk=64K", "--layout=left-symmetric"),
            *("--bitmap=internal", *paths("disk0", "disk1", "disk2", "hot")),
        ]
    ]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"journal": "j"}, {f"--write-journal={paths('j')[0]}"}),
        ({"consistency_policy": "ppl"}, {"--consistency-policy=ppl"}),
        ({"bitmap": "none"}, {"--bitmap=none", "--consistency-policy=resync"}),
    ],
)
def test_policies(policy: dict[str, str], words: set[str]) -> None:
    (command,) = MdSpec.model_validate({"level": 5, "members": disks(3), **policy}).create_commands()
    assert words <= set(command)
    assert "--bitmap=internal" not in command


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"level": 5, "members": disks(3)}, [True]),
        ({"level": "1+0", "members": disks(4)}, [True, True, False]),
        ({"level": "0+1", "members": disks(4)}, [False, False, True]),
    ],
)
def test_bitmap_is_as_fine_as_asked_where_there_is_one(asked: dict[str, Any], given: list[bool]) -> None:
    commands = MdSpec.model_validate({**asked, "bitmap_chunk": "64KiB"}).create_commands()
    assert ["--bitmap-chunk=64K" in command for command in commands] == given
    assert ["--bitmap=internal" in command for command in commands] == given


@pytest.mark.parametrize(
    ("level", "count", "size", "least"),
    [
        # As mdadm 4.4 took and refused them on members of 288 MiB.
        ("5", 4, 288 * MIB, 16 * KIB),
        ("10", 4, 288 * MIB, 32 * KIB),
        ("1+0", 4, 288 * MIB, 16 * KIB),
        ("0+1", 4, 144 * MIB, 16 * KIB),
        ("1", 2, 64 * MIB, 4 * KIB),
        ("5", 4, 8 * GIB, 512 * KIB),
        ("5", 4, 9 * GIB, 32 * KIB),
    ],
)
def test_bitmap_that_has_no_room_is_refused(level: str, count: int, size: int, least: int) -> None:
    def spec(chunk: int) -> MdSpec:
        return MdSpec.model_validate({"level": level, "members": disks(count), "bitmap_chunk": chunk})

    spec(least).refuse_size(size)
    if least > 4 * KIB:
        with pytest.raises(RequestError, match="mdadm has room for chunks of"):
            spec(least // 2).refuse_size(size)


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 44))
def test_least_chunk_is_a_power_of_two_and_its_bits_have_room(synced: int, member: int) -> None:
    chunk = least_chunk(synced, member)
    assert chunk >= LEAST_CHUNK
    assert chunk.bit_count() == 1
    assert synced // chunk // 8 <= 128 * KIB + MIB // chunk


@given(st.sampled_from(["1", "5", "6", "10", "1+0", "0+1"]), st.integers(16 * MIB, 64 * GIB))
def test_a_bit_of_the_bitmap_covers_some_per_cent_of_a_small_array(level: str, size: int) -> None:
    spec = MdSpec.model_validate({"level": level, "members": disks(4)})
    sized = spec.for_members_of(size)
    synced, member = spec.raid.synced(size)
    chunk = sized.bitmap_chunk
    if chunk is None:
        # mdadm's default does.
        assert USUAL_CHUNK / synced <= 0.04
        return
    assert 0.02 <= chunk / synced <= 0.04
    assert chunk >= least_chunk(synced, member)
    sized.refuse_size(size)
    for_bitmap = [words for words in sized.create_commands() if "--bitmap=internal" in words]
    assert all(f"--bitmap-chunk={chunk // KIB}K" in words for words in for_bitmap)
    assert for_bitmap


@pytest.mark.parametrize(
    "changes", [{"bitmap_chunk": "1MiB"}, {"bitmap": "none"}, {"consistency_policy": "ppl"}, {"level": "0"}]
)
def test_a_requested_chunk_and_an_array_without_bitmap_stay_as_they_are(changes: dict[str, str]) -> None:
    spec = MdSpec.model_validate({"level": "5", "members": disks(4)} | changes)
    assert spec.for_members_of(192 * MIB) == spec


def test_a_stripe_is_never_assumed_clean() -> None:
    spec = MdSpec(level="1+0", members=disks(4), assume_clean=True)
    assert ["--assume-clean" in command for command in spec.create_commands()] == [True, True, False]


@given(specs())
def test_assembly_is_never_forced(spec: MdSpec) -> None:
    for md in spec.devices:
        command = assemble_command(md)
        assert command[:3] == ["mdadm", "--assemble", md.device]
        assert all(word.startswith("/dev/") for word in command[2:])


@given(specs())
def test_no_word_is_none(spec: MdSpec) -> None:
    assert all("None" not in word for command in spec.create_commands() for word in command)
