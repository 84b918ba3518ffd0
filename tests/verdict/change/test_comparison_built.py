"""What two sides have built of the same request, from the stored records of a real A/B run."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.record.cell import CellRecord
from raidproof.record.run import RunRecord
from raidproof.verdict.change.comparison import built_differently, difference, starred

DATA = Path(__file__).resolve().parents[2] / "data" / "run"


@pytest.fixture
def pairs() -> list[tuple[CellRecord, CellRecord]]:
    base, new = (RunRecord.model_validate_json((DATA / f"ab-{side}.json").read_text()) for side in ("base", "new"))
    return list(zip(base.cells, new.cells, strict=True))


def test_a_filesystem_made_for_a_newer_kernel_has_other_features(pairs: list[tuple[CellRecord, CellRecord]]) -> None:
    # Neither the array's passing state nor the file system's own name counts, and both differ in these records.
    [only] = built_differently(pairs)
    assert (only.field, only.base, only.new) == ("filesystem.features", "nrext64=0", "nrext64=1")
    assert only.cells == ["export=sync", "export=async"]


def test_cells_that_differ_otherwise_are_told_apart(pairs: list[tuple[CellRecord, CellRecord]]) -> None:
    pairs[0][1].effective["export"]["threads"] = 16
    assert [(one.field, one.new, one.cells) for one in built_differently(pairs)][1:] == [
        ("export.threads", "16", ["export=sync"])
    ]


def test_members_that_differ_alike_share_a_line(pairs: list[tuple[CellRecord, CellRecord]]) -> None:
    for base, new in pairs:
        for side, scheduler in ((base, "mq-deadline"), (new, "none")):
            side.effective["tuning"] = {"members": {f"/dev/vd{one}": {"scheduler": scheduler} for one in "abc"}}
    assert [(one.field, one.base, one.new) for one in built_differently(pairs)][1:] == [
        ("tuning.members.*.scheduler", "mq-deadline", "none")
    ]


def test_fields_that_lie_at_different_depths_share_their_ends() -> None:
    assert starred(["array.a.b.level"]) == "array.a.b.level"
    assert starred(["array.a.b.level", "array.a.level"]) == "array.*.level"


def test_what_was_not_built_is_not_built_otherwise(pairs: list[tuple[CellRecord, CellRecord]]) -> None:
    for _, new in pairs:
        new.effective = {}
    assert built_differently(pairs) == []


def test_a_field_that_one_side_has_not_is_a_dash() -> None:
    assert difference(None, "nfsdcld") == ("-", "nfsdcld")
    assert difference(["rw", "a"], ["rw"]) == ("a", "-")
    assert difference(["uuid=1"], ["uuid=2"]) == ("-", "-")


@given(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text())))
def test_equal_values_are_never_apart(value: Any) -> None:
    ours, theirs = difference(value, value)
    assert ours == theirs
