"""Options of exports(5): requested, and as read back from etab and from the kernel of Linux 6.12 (nfs-utils 2.8.3)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.storage.server.export_options import ANONYMOUS, REFUSED, in_effect, read_fsid, read_others
from raidproof.storage.server.ganesha import GaneshaSpec
from raidproof.storage.server.knfsd import ExportSpec

DATA = Path(__file__).parents[2] / "data" / "nfs" / "export-options-linux-6.12.txt"
UUID = "f9a21ff2-5d4c-4b1e-9a2f-000000000001"


class Read(NamedTuple):
    requested: set[str]
    etab: list[str]
    kernel: list[str]


def reads() -> Iterator[Read]:
    lines = DATA.read_text().splitlines()
    for at in range(0, len(lines), 3):
        requested, etab, kernel = (line.split("\t")[-1] for line in lines[at : at + 3])
        listed = (re.findall(r"\((.*)\)", text)[0].split(",") for text in (etab, kernel))
        yield Read(set(requested.split(",")), *listed)


READS = list(reads())
EQUAL = {"no_auth_nlm": "insecure_locks", "mp=/srv/raidproof": "mountpoint=/srv/raidproof"}


def test_what_exportfs_and_the_kernel_list_is_what_was_requested() -> None:
    assert len(READS) == 4
    for read in READS:
        wanted = {EQUAL.get(option, option) for option in read.requested}
        assert wanted <= in_effect(read.etab, None)
        assert wanted <= in_effect(read.etab, read.kernel)


def test_the_kernels_list_has_precedence() -> None:
    for read in READS:
        other = ["ro", "async", "no_wdelay", "no_root_squash", "anonuid=9", "fsid=3"]
        found = in_effect(read.etab, other)
        assert {*other, "subtree_check", "no_all_squash", "secure", "nocrossmnt"} <= found
        assert not found & {"rw", "sync", "wdelay", "root_squash", "all_squash", "insecure", f"anonuid={ANONYMOUS}"}
        assert not any(option.startswith("fsid=") and option != "fsid=3" for option in found)


def test_options_that_only_etab_lists_are_read_there() -> None:
    read = READS[2]
    assert "mountpoint" in in_effect(read.etab, read.kernel)
    assert "mountpoint" not in in_effect([one for one in read.etab if one != "mountpoint"], read.kernel)


def test_a_uuid_must_be_that_of_the_kernel() -> None:
    read = READS[2]
    assert f"fsid={UUID}" in in_effect(read.etab, read.kernel)
    other = [one.replace("uuid=f9a2", "uuid=aaaa") for one in read.kernel]
    assert f"fsid={UUID}" not in in_effect(read.etab, other)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("crossmnt,root_squash", "has a setting of its own: root_squash"),
        ("anonuid=5", "has a setting of its own: anonuid"),
        ("secure", "has a setting of its own: insecure"),
        *((name, re.escape(reason)) for name, reason in REFUSED.items()),
        ("sec=krb5p", "has a setting of its own: sec"),
    ],
)
def test_an_option_with_a_field_or_without_an_effect_is_refused(value: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        ExportSpec.model_validate({"export_options": value})


def test_other_options_are_written_as_etab_lists_them() -> None:
    spec = ExportSpec.model_validate({"export_options": "crossmnt,mp,no_auth_nlm"})
    assert spec.export_options == ("crossmnt", "mountpoint", "insecure_locks")
    assert ExportSpec.model_validate({"export_options": ["nohide"]}).options()[-1] == "nohide"
    assert read_others("") == ()


@pytest.mark.parametrize(("value", "text"), [(0, "0"), ("root", "0"), ("07", "7"), (UUID.upper(), UUID), (None, None)])
def test_an_fsid(value: Any, text: str | None) -> None:
    assert read_fsid(value) == text


@pytest.mark.parametrize("value", [-1, 2**32, "x", "f9a21ff2", True, 1.5])
def test_what_is_no_fsid(value: Any) -> None:
    with pytest.raises(RequestError, match="hexadecimal digits"):
        read_fsid(value)


SPECS = st.builds(
    ExportSpec,
    sync=st.booleans(),
    wdelay=st.booleans(),
    subtree_check=st.booleans(),
    root_squash=st.booleans(),
    all_squash=st.booleans(),
    insecure=st.booleans(),
    anonuid=st.none() | st.integers(0, 2**32 - 1),
    anongid=st.none() | st.integers(0, 2**32 - 1),
    fsid=st.none() | st.integers(0, 2**32 - 1).map(str) | st.uuids().map(str),
    export_options=st.lists(st.sampled_from(["crossmnt", "nohide", "mountpoint", "insecure_locks"]), unique=True),
)


def etab_of(spec: ExportSpec) -> list[str]:
    """The options that exportfs writes: each requested option, and the default of each other pair."""
    names = {option.partition("=")[0] for option in spec.options()}
    pairs = {"hide": "nohide", "nocrossmnt": "crossmnt", "secure": "insecure", "no_all_squash": "all_squash"}
    pairs |= {
        "secure_locks": "insecure_locks",
        "acl": "no_acl",
        "anonuid=65534": "anonuid",
        "anongid=65534": "anongid",
    }
    return [*spec.options(), *(usual for usual, other in pairs.items() if other not in names), "sec=sys"]


def kernel_of(spec: ExportSpec) -> list[str]:
    """The options that the kernel lists (exp_flags in fs/nfsd/export.c)."""
    silent = {"subtree_check", "mountpoint", "anonuid=65534", "anongid=65534"}
    listed = [option for option in spec.options() if option not in silent]
    uuid = spec.fsid.replace("-", "") if spec.fsid is not None and "-" in spec.fsid else None
    words = ":".join(uuid[at : at + 8] for at in range(0, 32, 8)) if uuid else ""
    return [f"uuid={words}" if uuid and option.startswith("fsid=") else option for option in listed] + ["sec=1"]


@given(SPECS)
def test_requested_options_survive_the_way_to_the_kernel_and_back(spec: ExportSpec) -> None:
    assert set(spec.options()) <= in_effect(etab_of(spec), None)
    assert set(spec.options()) <= in_effect(etab_of(spec), kernel_of(spec))
    assert ExportSpec.model_validate(spec.model_dump(mode="json")) == spec


@given(SPECS, SPECS)
def test_other_options_are_seen(spec: ExportSpec, other: ExportSpec) -> None:
    # Only fields that the request sets are compared: a default can differ without an error.
    wanted = {option for option in spec.options() if option not in other.options()}
    found = in_effect(etab_of(other), kernel_of(other))
    default = {f"anonuid={ANONYMOUS}", f"anongid={ANONYMOUS}"}
    assert not (wanted - default) & found


def test_who_owns_the_files_of_a_user() -> None:
    assert [ExportSpec(root_squash=squash).owner_of(0) for squash in (False, True)] == [0, ANONYMOUS]
    assert ExportSpec(root_squash=True, anonuid=99).owner_of(0) == 99
    assert ExportSpec(root_squash=True, anonuid=99).owner_of(1000) == 1000
    assert ExportSpec(all_squash=True, anonuid=99).owner_of(1000) == 99
    assert not ExportSpec(all_squash=True, anonuid=0).squashes_root
    assert GaneshaSpec(root_squash=True).owner_of(0) == ANONYMOUS
    assert GaneshaSpec(root_squash=True).squashes_root
