import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.units import GIB, KIB
from raidproof.storage import array as folder
from raidproof.storage.array import LEVELS, Geometry, MdSpec, capacity, holders_of_old_data
from raidproof.storage.array.level import Level, MemberRequests, Part, listed
from raidproof.storage.array.striping import Striping
from raidproof.storage.array.superblock import least_chunk

KNOWN = json.loads((Path(__file__).parents[2] / "data" / "levels" / "arithmetic.json").read_text())
"""The answers for each level, number of members, layout and number of legs; a dash is the default.

Equal answers stand together: stripe units of data as the kernel counts them, capacity, copies, parity, width, members
with old data, least bitmap chunks, and the cost of reads and writes. Of a mapping there is a digest.
"""
TOY = Path(__file__).with_name("toy.py")
REQUESTS = (4 * KIB, 64 * KIB, 100 * KIB, 192 * KIB, 1024 * KIB)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Level]]:
    """Lays the file into the folder of the levels, before one is asked for."""
    shutil.copy(TOY, tmp_path)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    monkeypatch.setattr(LEVELS, "_loaded", False)
    yield LEVELS["toy"]
    LEVELS.remove("toy")
    del sys.modules[f"{folder.__name__}.toy"]


def spec_of(level: str, members: str, layout: str, legs: str) -> MdSpec:
    return MdSpec.model_validate(
        {
            "level": level,
            "members": tuple(f"disk{number}" for number in range(int(members))),
            "layout": None if layout == "-" else layout,
            "legs": None if legs == "-" else int(legs),
            "chunk_size": 64 * KIB if LEVELS[level].chunked else None,
            "assume_clean": True,
        }
    )


def answers(spec: MdSpec) -> list[Any]:
    def cost(one: MemberRequests) -> list[int]:
        return [int(one.commands), one.width, one.size, int(one.modifies)]

    raid, chunk = spec.raid, spec.chunk_size
    sizes = (3 * GIB + 20 * KIB, 900 * GIB) if spec.policy == "bitmap" else ()
    return [
        spec.geometry.data_disks if spec.geometry else None,
        capacity(spec, 1_000_003),
        raid.copies,
        raid.parity,
        raid.width,
        len(holders_of_old_data(spec)),
        [least_chunk(*raid.synced(size)) for size in sizes],
        [cost(raid.reads(request, chunk)) for request in REQUESTS],
        [cost(raid.writes(request, chunk)) for request in REQUESTS],
    ]


@pytest.mark.parametrize(("names", "known"), KNOWN["arrays"], ids=lambda value: str(value[0]))
def test_arithmetic(names: list[str], known: list[Any]) -> None:
    for name in names:
        assert answers(spec_of(*name.split())) == known, name


@pytest.mark.parametrize("name", KNOWN["mappings"])
def test_mapping(name: str) -> None:
    level, members, layout = map(int, name.split())
    size = 57 * 8192
    striping = Striping(level, layout, size if level == 1 else 8192, members, size)
    chunks = [striping.chunk(role, at) for role in range(members) for at in range(0, size + 8192, 4096)]
    said: list[Any] = [
        striping.capacity,
        striping.raid.copies,
        [striping.places(offset) for offset in range(0, striping.capacity, 4096)],
        [None if one.part is Part.UNUSED else [one.part, one.stripe, one.number, one.offset] for one in chunks],
        [[row.data, row.p, row.q] for row in map(striping.raid.row, range(60))] if striping.raid.parity else None,
    ]
    assert hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12] == KNOWN["mappings"][name]


@pytest.mark.parametrize("name", [name for names, _ in KNOWN["arrays"] for name in names])
def test_bytes_written_in_whole_stripes(name: str) -> None:
    spec = spec_of(*name.split())
    size = spec.stripe_size or 64 * KIB
    assert spec.raid.writes(size, spec.chunk_size).traffic(size) == pytest.approx(spec.raid.written)


@pytest.mark.parametrize(
    ("level", "members", "layout", "most"),
    [
        *(("0", 4, None, 0), ("1", 3, None, 2), ("4", 4, None, 1), ("5", 4, None, 1), ("6", 5, None, 2)),
        *(("10", 4, "n2", 2), ("10", 3, "n2", 1), ("10", 6, "n3", 4), ("10", 4, "f2", 2)),
    ],
)
def test_most_lost(level: str, members: int, layout: str | None, most: int) -> None:
    assert LEVELS[level].of(members, layout).most_lost == most


@pytest.mark.parametrize(("level", "parity"), [("z1", 1), ("z2", 2), ("z3", 3)])
def test_raidz_writes_parity_with_each_block_and_never_reads_first(level: str, parity: int) -> None:
    raid = LEVELS[level].of(6, None)
    width = 6 - parity
    assert (raid.most_lost, raid.data_disks, raid.capacity(100)) == (parity, width, 100 * width)
    assert raid.writes(4 * KIB, None) == MemberRequests(commands=1 + parity, width=1 + parity, size=4 * KIB)
    assert raid.reads(4 * KIB, None) == MemberRequests(commands=1, width=1, size=4 * KIB)
    size = width * 16 * KIB
    assert raid.writes(size, None).traffic(size) == pytest.approx(raid.written)
    assert raid.reads(size, None).width == width


def test_md_has_no_raidz() -> None:
    assert not {"z1", "z2", "z3"} & set(MdSpec.named_levels())
    with pytest.raises(RequestError, match="level of array kind md: unknown value 'z1'"):
        MdSpec.model_validate({"level": "raidz", "members": ("a", "b", "c")})


def test_levels_as_text() -> None:
    assert listed(lambda kind: kind.parity > 0) == "4, 5 and 6"
    assert listed(lambda kind: kind.parts is not None, "or") == "0+1 or 1+0"
    assert listed(lambda kind: "ppl" in kind.logs) == "5"


def test_a_level_of_another_file_takes_part(toy: type[Level]) -> None:
    spec = MdSpec.model_validate({"level": "toy", "members": ("a", "b", "c"), "chunk_size": 64 * KIB})
    assert isinstance(spec.raid, toy)
    assert MdSpec.model_validate_json(spec.model_dump_json()) == spec
    assert spec.policy == "bitmap"
    assert spec.geometry == Geometry(64 * KIB, 2)
    assert capacity(spec, GIB) == 2 * GIB
    (md,) = spec.devices
    assert md.level == "toy"
    assert spec.raid.writes(4 * KIB, 64 * KIB).traffic(4 * KIB) == 1.0
    striping = Striping(77, 0, 64 * KIB, 3, 64 * KIB * 10)
    assert striping.capacity == 2 * 10 * 64 * KIB
    assert striping.places(65 * KIB) == ((1, 1 * KIB),)
    assert striping.chunk(2, 0).part is Part.UNUSED


def test_a_toy_is_refused_what_it_lacks(toy: type[Level]) -> None:
    with pytest.raises(RequestError, match=r"journal device is for RAID4, 5 and 6 only"):
        MdSpec.model_validate({"level": toy.name, "members": ("a", "b"), "journal": "c", "chunk_size": 64 * KIB})
