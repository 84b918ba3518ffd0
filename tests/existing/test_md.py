from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.units import KIB
from raidproof.existing.given import Given
from raidproof.existing.md import MdArray, parse_detail, parse_examine, parse_mdstat
from tests.existing.servers import SERVERS

MDADM = Path(__file__).parents[1] / "data" / "mdadm"


def detail(name: str) -> tuple[MdArray, ...]:
    return parse_detail(Given("detail", (SERVERS / name / "mdadm.txt").read_text()))


def mdstat(text: str) -> tuple[MdArray, ...]:
    return parse_mdstat(Given("mdstat", f"Personalities : [raid6]\n{text}\nunused devices: <none>\n"))


def test_an_array_of_mdadm_4() -> None:
    (array,) = detail("debian-11-raid5-xfs")
    assert (array.name, array.level, array.raid_devices, array.chunk_size) == ("md0", "raid5", 4, 512 * KIB)
    assert (array.layout, array.policy, array.bitmap, array.degraded) == ("left-symmetric", "bitmap", "internal", 0)
    assert array.active == ("sda1", "sdb1", "sdc1", "sdd1")
    assert array.source == "detail:1"


def test_an_array_of_mdadm_3_which_prints_no_policy() -> None:
    (array,) = detail("centos-6-raid5-metadata-0.90")
    assert (array.metadata, array.policy, array.bitmap) == ("0.90", "resync", "none")


def test_a_journal_and_a_ppl() -> None:
    (array,) = detail("rhel-8-raid5-journal-xfs")
    assert (array.policy, array.named("journal")) == ("journal", ("nvme0n1p1",))
    assert [one.policy for one in detail("rhel-9-raid5-ppl-external-log")] == ["ppl", "bitmap"]


def test_an_array_that_is_degraded_and_rebuilds() -> None:
    (array,) = detail("debian-12-raid5-degraded-rebuilding")
    assert array.degraded == 2
    assert array.active == ("sda1", "sdb1", "sdc1")
    assert (array.named("spare"), array.named("faulty")) == (("sde1",), ("sdd1",))


def test_a_container_and_its_array() -> None:
    array, container = detail("fedora-imsm-raid5")
    assert (array.container, array.layout) == ("/dev/md/imsm0, member 0", "left-asymmetric")
    assert (container.level, container.raid_devices) == ("container", 0)


@pytest.mark.parametrize(
    ("written", "layout"), [("near=2", "n2"), ("near=1, far=2", "f2"), ("offset=2", "o2"), ("near=3, far=1", "n3")]
)
def test_the_layouts_of_raid10(written: str, layout: str) -> None:
    text = (SERVERS / "debian-13-raid10-nvme-xfs" / "mdadm.txt").read_text().replace("near=2", written)
    assert parse_detail(Given("detail", text))[0].layout == layout


@pytest.mark.parametrize(
    ("begun", "other", "said"),
    [
        ("Raid Level", "Unknown", "detail:1: the line 'Raid Level' is missing"),
        ("Raid Devices : 4", "Raid Devices : many", "detail:7: Raid Devices: not a number"),
        ("Chunk Size : 512K", "Chunk Size : big", "Chunk Size: not a size"),
        ("Raid Level : raid5", "Raid Level : ra id", "Raid Level: unexpected value"),
        ("/dev/md0:", "md0", "has no line /dev/md"),
    ],
)
def test_malformed_output_is_refused(begun: str, other: str, said: str) -> None:
    text = (SERVERS / "debian-11-raid5-xfs" / "mdadm.txt").read_text().replace(begun, other)
    with pytest.raises(RequestError, match=said):
        parse_detail(Given("detail", text))


def test_mdstat_of_every_level() -> None:
    found = mdstat(
        "md4 : active (auto-read-only) raid6 sdd1[3] sdc1[2](W) sdb1[1] sda1[0] sdf1[5](F) sdg1[6](S)\n"
        "      7813772288 blocks super 1.2 level 6, 256k chunk, algorithm 2 [4/3] [UUU_]\n"
        "      [==>..................]  recovery = 12.6% (37043392/292945152) finish=127.5min speed=33440K/sec\n"
        "      bitmap: 3/59 pages [12KB], 65536KB chunk\n"
        "\n"
        "md3 : active raid10 sdd[3] sdc[2] sdb[1] sda[0]\n"
        "      7813772288 blocks super 1.2 1024K chunks 2 far-copies [4/4] [UUUU]\n"
        "\n"
        "md2 : active raid0 sdb2[1] sda2[0]\n"
        "      1953519616 blocks super 1.2 512k chunks\n"
        "\n"
        "md1 : active raid1 sdb1[1] sda1[0]\n"
        "      102336 blocks [2/2] [UU]\n"
        "\n"
        "md9 : inactive sdx[0](S)\n"
        "      102336 blocks super 1.2\n"
    )
    assert [(one.name, one.level, one.raid_devices, one.chunk_size, one.layout) for one in found] == [
        ("md4", "raid6", 4, 256 * KIB, "left-symmetric"),
        ("md3", "raid10", 4, 1024 * KIB, "f2"),
        ("md2", "raid0", 2, 512 * KIB, None),
        ("md1", "raid1", 2, None, None),
    ]
    assert [one.policy for one in found] == ["bitmap", "resync", "none", "resync"]
    assert [one.metadata for one in found] == ["1.2", "1.2", "1.2", "0.90"]
    assert (found[0].degraded, found[0].named("faulty"), found[0].named("spare")) == (1, ("sdf1",), ("sdg1",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("md0 : active raid5 sda[0]\n      100 blocks\n", "mdstat:2: the line with the number of members"),
        ("md0 : active (a)b!\n", "mdstat:2: not a RAID level"),
    ],
)
def test_malformed_mdstat_is_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        mdstat(text)


def test_another_text_is_no_mdstat() -> None:
    with pytest.raises(RequestError, match="has no line Personalities"):
        parse_mdstat(Given("mdstat", "hello\n"))


@pytest.mark.parametrize(("name", "policy"), [("examine-4.4-journal", "journal"), ("examine-4.4-whole", "bitmap")])
def test_real_superblocks_that_mdadm_examined(name: str, policy: str) -> None:
    (array,) = parse_examine(Given("examine", (MDADM / f"{name}.txt").read_text()))
    assert (array.level, array.chunk_size, array.policy) == ("raid5", 64 * KIB, policy)
    assert len(array.active) == array.raid_devices
    if policy == "journal":
        assert len(array.named("journal")) == 1


def test_a_text_without_a_superblock_is_refused() -> None:
    with pytest.raises(RequestError, match="has no superblock"):
        parse_examine(Given("examine", "mdadm: No md superblock detected on /dev/sda.\n"))
