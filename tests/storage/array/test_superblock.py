import re

import pytest

from raidproof.storage.array.superblock import (
    FAULTY,
    JOURNAL,
    OFFSET,
    SPARE,
    Feature,
    Superblock,
    freshest,
    parse_superblock,
    superblock_of,
)
from tests.crash.md_members import MD, member

NAMES = sorted(path.name.removeprefix("member-").removesuffix(".od") for path in MD.glob("member-*.od"))
LAYOUTS = {"left-symmetric": 2, "near=2": 0x102}


def of(name: str) -> Superblock:
    found = superblock_of(lambda at, length: member(name)[at : at + length])
    assert found is not None
    return found


def said(name: str, what: str) -> str | None:
    text = (MD / f"mdadm-4.4-examine-{name}.txt").read_text()
    found = re.search(rf"^ *{what} : (.*)$", text, re.MULTILINE)
    return found[1] if found else None


@pytest.mark.parametrize("name", NAMES)
def test_the_parsed_superblock_equals_mdadms_output(name: str) -> None:
    found = of(name)
    assert found.uuid == said(name, "Array UUID")
    assert found.name == said(name, "Name")
    assert f"raid{found.level}" == said(name, "Raid Level")
    assert str(found.raid_disks) == said(name, "Raid Devices")
    assert f"{found.data_offset // 512} sectors" == said(name, "Data Offset")
    assert (said(name, "Avail Dev Size") or "").startswith(f"{found.data_size // 512} sectors")
    assert str(found.events) == said(name, "Events")
    assert hex(found.features) == said(name, "Feature Map")
    assert found.clean == (said(name, "State") == "clean")
    assert found.whole
    assert (said(name, "Checksum") or "").endswith("correct")
    if (chunk := said(name, "Chunk Size")) is not None:
        assert f"{found.chunk_size // 1024}K" == chunk
    if (layout := said(name, "Layout")) in LAYOUTS:
        assert found.layout == LAYOUTS[layout]


@pytest.mark.parametrize("name", NAMES)
def test_role_is_the_one_that_mdadm_shows(name: str) -> None:
    found = of(name)
    expected = "Journal" if found.role == JOURNAL else f"Active device {found.role}"
    assert said(name, "Device Role") == expected
    shown = (said(name, "Array State") or "").split()[0]
    assert found.active == tuple(place for place, sign in enumerate(shown) if sign == "A")


def test_places_of_its_own_metadata() -> None:
    assert of("raid5-dirty-disk0").bitmap_offset == OFFSET + 8 * 512
    assert of("raid5-dirty-disk0").ppl_offset is None
    ppl = of("raid5-ppl-disk1")
    assert (ppl.bitmap_offset, ppl.ppl_offset, ppl.ppl_size) == (None, OFFSET + 8 * 512, 2048 * 512)
    assert ppl.bad_blocks_offset == OFFSET + 2056 * 512
    assert of("raid1-disk1").bitmap_offset is None
    assert of("raid5-journal-disk4").features == Feature.JOURNAL


def test_what_is_no_superblock_is_none() -> None:
    data = member("raid1-disk1")
    assert parse_superblock(data[:4096]) is None
    assert parse_superblock(data[OFFSET : OFFSET + 512]) is None
    assert parse_superblock(bytes(4096)) is None


def test_torn_superblock_is_not_whole() -> None:
    data = bytearray(member("raid5-dirty-disk0")[OFFSET : 2 * OFFSET])
    data[200] ^= 1
    found = parse_superblock(bytes(data))
    assert found is not None
    assert not found.whole


def test_freshest_is_the_whole_one_with_the_most_events() -> None:
    left, failed = of("raid5-failed-disk0"), of("raid5-failed-disk2")
    assert freshest({2: failed, 0: left}) is left
    assert 2 not in left.active
    assert FAULTY in left.roles or left.roles.count(0xFFFF) > 0
    assert freshest({0: None}) is None


def test_roles_that_are_no_place_are_those_of_the_kernel() -> None:
    # MD_DISK_ROLE_* in include/uapi/linux/raid/md_p.h
    assert (SPARE, FAULTY, JOURNAL) == (0xFFFF, 0xFFFE, 0xFFFD)
