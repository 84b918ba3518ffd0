"""A kind of volume is one file: no other module imports it, or branches on its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

import raidproof
from raidproof.core.errors import RequestError
from raidproof.plan.axes import axes
from raidproof.storage.member import MEMBER_LAYERS
from raidproof.storage.stack import StackSpec
from raidproof.storage.volume import DEFAULT, VOLUMES
from raidproof.storage.volume.crypt import CryptVolume
from tests.kinds import Kinds

HOME = Path(raidproof.__file__).parent
OURS = Kinds(dict(VOLUMES.items()), ambiguous=frozenset({"cache", "direct"}))
"""All names except ``cache``, which is also the duty of a disk, and ``direct``, also an option of workloads."""
OTHERS = Kinds(dict(MEMBER_LAYERS.items())).files
"""Kinds of another family, of which one has the same name as a volume: ``crypt``."""
READERS = {"existing", "provider", "report"}
"""Rooms that read or write the texts of other programs, in which words such as ``crypt`` have other meanings."""
SOURCES = [path for path in sorted(HOME.rglob("*.py")) if path.relative_to(HOME).parts[0] not in READERS]


def stack_with(name: str) -> dict[str, Any]:
    disks = {field: f"further{number}" for number, field in enumerate(VOLUMES[name].further_disks)}
    return {"array": {"level": 5, "members": ["a", "b", "c"]}, "volume": {"type": name, **disks}}


@pytest.mark.parametrize("path", [path for path in SOURCES if path not in OURS.files | OTHERS], ids=str)
def test_no_other_file_knows_a_kind(path: Path) -> None:
    assert list(OURS.branches(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from raidproof.storage.volume.cache import CacheVolume",
        "import raidproof.storage.volume.writecache",
        "if spec.type == 'writecache': pass",
        "if spec.type in {'crypt', 'other'}: pass",
        "match spec.type:\n    case 'writecache': pass",
        "table['writecache']",
        "isinstance(spec, CacheVolume)",
    ],
)
def test_each_form_of_a_branch_is_found(source: str) -> None:
    assert list(OURS.branches(source))


@pytest.mark.parametrize("name", sorted(VOLUMES))
def test_a_kind_survives_its_record(name: str) -> None:
    stack = StackSpec.model_validate(stack_with(name))
    assert StackSpec.model_validate(stack.model_dump(mode="json")) == stack
    assert stack.volume.type == name
    assert set(stack.volume.disks) <= set(stack.disks)


def test_a_request_without_a_volume_has_the_file_system_on_the_array() -> None:
    stack = StackSpec.model_validate({"array": {"level": 5, "members": ["a", "b", "c"]}})
    assert stack.volume.type == DEFAULT
    assert stack.device == stack.array.device
    assert stack.disks == ("a", "b", "c")


def test_a_volume_may_be_named_by_a_word() -> None:
    stack = StackSpec.model_validate({"array": {"level": 5, "members": ["a", "b", "c"]}, "volume": "crypt"})
    assert stack.device == "/dev/mapper/raidproof_volume"


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"no volume is named 'flashcache'.*writecache"):
        StackSpec.model_validate({"array": {"members": ["a", "b", "c"]}, "volume": "flashcache"})


@pytest.mark.parametrize("serial", ["a", "log"])
def test_a_cache_needs_its_own_disk(serial: str) -> None:
    volume = {"type": "writecache", "cache_disk": serial}
    with pytest.raises(RequestError, match="cannot be a cache"):
        StackSpec.model_validate(
            {"array": {"level": 5, "members": ["a", "b", "c"]}, "volume": volume, "filesystem": {"log": "log"}}
        )


def test_axes_of_a_kind_are_left_out_of_other_kinds() -> None:
    known = axes()
    assert known["cache_mode"].applies({"volume": "cache"})
    assert known["high_watermark"].applies({"volume": "writecache"})
    for name in ("cache_mode", "cache_size", "cache_block", "high_watermark", "low_watermark"):
        assert not known[name].applies({}), name
        assert not known[name].applies({"volume": "crypt"}), name


def test_an_axis_must_be_a_field() -> None:
    with pytest.raises(TypeError, match="axes without fields: speed"):

        class Odd(CryptVolume):
            axes: ClassVar[Mapping[str, str]] = {"speed": "how fast it is"}
            type: Literal["odd"] = "odd"  # type: ignore[assignment]

    assert "odd" not in VOLUMES


def with_writecache(**filesystem: Any) -> StackSpec:
    return StackSpec.model_validate({**stack_with("writecache"), **({"filesystem": filesystem} if filesystem else {})})


def test_the_file_system_has_the_sectors_of_the_volume() -> None:
    assert with_writecache().filesystem.model_dump()["sector_size"] == 4096
    assert with_writecache(type="xfs").filesystem.model_dump()["sector_size"] == 4096
    assert StackSpec.model_validate(stack_with("cache")).filesystem.model_dump()["sector_size"] == 512
    assert with_writecache(type="ext4").filesystem.block_size == 4096
    again = StackSpec.model_validate(with_writecache().model_dump(mode="json"))
    assert again == with_writecache()


@pytest.mark.parametrize("filesystem", [{"type": "xfs", "sector_size": 512}, {"type": "ext4", "block_size": 1024}])
def test_smaller_sectors_than_those_of_the_volume_are_refused(filesystem: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="the volume has sectors of 4KiB"):
        with_writecache(**filesystem)
