"""Each parser, given any text, returns a result or refuses the text in one line."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.existing import given as texts
from raidproof.existing.block_devices import parse_lsblk
from raidproof.existing.exports import parse_exports
from raidproof.existing.fstab import parse_fstab, resolved
from raidproof.existing.given import Given
from raidproof.existing.imported import imported
from raidproof.existing.kernel_files import parse_kernel_files
from raidproof.existing.logical_volumes import parse_lvs
from raidproof.existing.md import parse_detail, parse_examine, parse_mdstat
from raidproof.existing.nfs_conf import parse_nfs_conf
from raidproof.existing.reports import Text, reports_of
from raidproof.existing.superblock import parse_dumpe2fs, parse_xfs_info
from tests.existing.servers import SERVERS

SET = SERVERS / "debian-11-raid5-xfs"
REAL: dict[Callable[[Given], Any], str] = {
    parse_detail: (SET / "mdadm.txt").read_text(),
    parse_lsblk: (SET / "lsblk.json").read_text(),
    parse_lvs: (SERVERS.parent / "lvm" / "lvs-import-thin.json").read_text(),
    parse_fstab: (SET / "fstab").read_text(),
    parse_exports: (SET / "exports").read_text(),
    parse_xfs_info: (SET / "xfs_info.txt").read_text(),
    parse_dumpe2fs: (SERVERS / "debian-12-raid6-ext4-async" / "dumpe2fs.txt").read_text(),
    parse_mdstat: (SERVERS / "centos-6-raid5-metadata-0.90" / "mdstat").read_text(),
    parse_examine: (SERVERS.parent / "mdadm" / "examine-4.4-whole.txt").read_text(),
    parse_nfs_conf: (SERVERS / "debian-12-raid6-ext4-async" / "nfs.conf").read_text(),
    parse_kernel_files: (SERVERS / "debian-13-raid10-nvme-xfs" / "sysfs.txt").read_text(),
}
LINES = st.sampled_from([line for text in REAL.values() for line in text.splitlines()])
PIECES = st.one_of(
    LINES, st.text(max_size=40), st.sampled_from(["(", '"', "\\", "\\777", "=", ":", "#", "\t", "[", "9" * 5000])
)
MIXED = st.lists(PIECES, max_size=30).map("\n".join)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """Return a real text with some parts cut out, repeated or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 200)))
        text = text[:begin] + draw(PIECES) + text[end:]
    return text


def answered(parse: Callable[[Given], Any], text: str) -> None:
    try:
        parse(Given("it", text))
    except RequestError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000  # noqa: PT017, PT018  either end is right


@pytest.mark.parametrize("parse", REAL, ids=lambda one: one.__name__)
@given(data=st.data())
def test_a_damaged_text_is_read_or_refused(parse: Callable[[Given], Any], data: st.DataObject) -> None:
    answered(parse, data.draw(damaged(REAL[parse])))


@pytest.mark.parametrize("parse", REAL, ids=lambda one: one.__name__)
@given(text=MIXED)
@example(text="[" * 50_000)
def test_any_text_is_read_or_refused(parse: Callable[[Given], Any], text: str) -> None:
    answered(parse, text)


@given(data=st.binary(max_size=300))
def test_any_bytes_are_a_text_or_refused(data: bytes) -> None:
    try:
        texts.given("it", data)
    except RequestError as error:
        assert "\n" not in str(error)  # noqa: PT017


KEYS = st.sampled_from(["name", "kname", "pkname", "size", "rota", "children", "type"])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["name", "kname", "pkname", "size", "rota", "children", "type"]), inner, max_size=5
        ),
    ),
    max_leaves=12,
)


@given(document=st.lists(JSON, max_size=4))
def test_any_json_is_read_or_refused(document: list[Any]) -> None:
    answered(parse_lsblk, json.dumps({"blockdevices": document}))


@given(pairs=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=6))
def test_bind_mounts_end_or_are_refused(pairs: list[tuple[str, str]]) -> None:
    mounts = parse_fstab(Given("it", "\n".join(f"/{one} /{other} none bind" for one, other in pairs)))
    try:
        assert resolved(mounts, "/a/x").path
    except RequestError as error:
        assert "refers to itself" in str(error)  # noqa: PT017


@given(data=st.data())
def test_a_server_with_damaged_files_gives_a_plan_or_a_refusal(data: st.DataObject) -> None:
    files = {
        "exports": SET / "exports",
        "mdadm": SET / "mdadm.txt",
        "lsblk": SET / "lsblk.json",
        "fstab": SET / "fstab",
        "xfs-info": SET / "xfs_info.txt",
    }
    chosen = data.draw(st.sampled_from(sorted(files)))
    whole = {kind: path.read_text() for kind, path in files.items()}
    whole[chosen] = data.draw(damaged(whole[chosen]))
    try:
        result = imported(
            reports_of([Text(kind, Given(kind, text)) for kind, text in whole.items()]),  # type: ignore[arg-type]
            None,
            several=False,
        )
        assert result.exports[0].plan
    except RequestError as error:
        assert "\n" not in str(error)  # noqa: PT017
