"""Logical volumes of LVM: commands, the reports read back, and the checker of crash states."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequestError, RigError
from raidproof.core.units import KIB, MIB, SECTOR
from raidproof.crash.checker import config_of
from raidproof.guest.assembled import DEVICE_MAPPER, SYSFS_MD
from raidproof.storage.array import Geometry
from raidproof.storage.deployment import deployed, lines_of
from raidproof.storage.stack import StackSpec
from raidproof.storage.volume import VOLUMES, Volume
from raidproof.storage.volume.logical import EXTENT, GROUP, LogicalVolume, parse_lvs
from raidproof.storage.volume.thin import POOL_NAME, parse_pool
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[2] / "data" / "lvm"
ARRAY = "/dev/md0"
KINDS = ("linear", "thin")
DEVICE = f"/dev/mapper/{GROUP}-data"
# Linux 6.12.113, LVM 2.03.31
TABLES = {"linear": "0 1753088 linear 9:0 2304\n", "thin": "0 1400832 thin 252:2 1\n"}
STATUS = {"linear": "0 1753088 linear \n", "thin": "0 1400832 thin 0 -\n"}
DEPS = {"linear": "1 dependencies\t: (md0)\n", "thin": "1 dependencies\t: (dm-2)\n"}
POOL_TABLE = "0 1556480 thin-pool 252:0 252:1 128 0 1 no_discard_passdown \n"
POOL_STATUS = "0 1556480 thin-pool 1 112/1024 0/12160 - rw no_discard_passdown queue_if_no_space - 256 \n"
REPORTS = {kind: (DATA / f"lvs-volume-{kind}.json").read_text() for kind in KINDS}


def spec_of(kind: str, **settings: Any) -> LogicalVolume:
    spec = VOLUMES[kind].model_validate(settings).aligned(Geometry(64 * KIB, 3))
    assert isinstance(spec, LogicalVolume)
    return spec


class Server(FilesByCommands):
    """A fake machine whose group of volumes is active or not, with the output of the real tools."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, kind: str) -> None:
        self.table, self.status, self.deps, self.report = TABLES[kind], STATUS[kind], DEPS[kind], REPORTS[kind]
        self.pool_table, self.pool_status = POOL_TABLE, POOL_STATUS
        self.damaged = False
        self.active = False
        self.typed: list[list[str]] = []

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> Completed:
        self.typed.append(list(argv))
        said, status = "", 0
        match list(argv):
            case ["dmsetup", "info", *_]:
                said = f"{POOL_NAME}:dm-2\n" if self.active else ""
            case ["dmsetup", "table", name]:
                said = self.pool_table if name == POOL_NAME else self.table
            case ["dmsetup", "status", name]:
                said = self.pool_status if name == POOL_NAME else self.status
            case ["dmsetup", "deps", *_]:
                said = self.deps
            case ["blockdev", "--getsz", _]:
                said = "1761792\n"
            case ["lvs", *_]:
                said = self.report
            case ["vgck", *_]:
                status = 5 if self.damaged else 0
            case ["vgchange", _, switch, _]:
                self.active = switch == "--activate=y"
            case ["lvcreate", *_]:
                self.active = True
        return Completed(tuple(argv), status, said, "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> str:
        ended = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not ended.ok:
            raise CommandFailed(ended)
        return ended.stdout

    def resolve(self, paths: Any) -> list[str]:
        return list(paths)


@pytest.mark.parametrize("kind", KINDS)
def test_a_volume_is_made_read_back_and_deactivated(kind: str) -> None:
    server = Server(kind)
    volume = Volume(spec_of(kind), server, ARRAY)
    assert volume.device == DEVICE
    volume.create()
    made = [words[0] for words in server.typed if words[0] != "blockdev"]
    assert made[:4] == ["wipefs", "pvcreate", "vgcreate", "lvcreate"]
    assert all(f"--devices={ARRAY}" in words for words in server.typed if words[0][:2] in {"pv", "vg", "lv"})
    volume.deactivate()
    assert not server.active
    typed = len(server.typed)
    state = volume.activate()
    assert server.active
    assert not any(words[0] in {"wipefs", "pvcreate", "lvcreate"} for words in server.typed[typed:])
    assert state.settings["segment"] == kind
    assert state.counters["metadata_sequence"] > 1
    volume.destroy()
    assert server.typed[-1] == ["wipefs", "--all", "--force", ARRAY]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_metadata_of_the_group_is_found_before_the_activation(kind: str) -> None:
    server = Server(kind)
    server.damaged = True
    with pytest.raises(CommandFailed, match="vgck"):
        Volume(spec_of(kind), server, ARRAY).activate()
    assert not server.active


@pytest.mark.parametrize(
    ("kind", "column", "value", "field"),
    [
        ("linear", "segtype", "striped", "segment"),
        ("linear", "lv_health_status", "partial", "health"),
        ("linear", "vg_missing_pv_count", "1", "missing_physical_volumes"),
        ("linear", "vg_free", "4194304", "whole_group"),
        # As lvextend --extents=80%VG makes it, which takes no more than the free extents.
        ("thin", "lv_size", "96468992", "fits_pool"),
        ("thin", "lv_size", "801112064", "fits_pool"),
        ("thin", "segtype", "linear", "segment"),
    ],
)
def test_another_report_of_lvm_than_the_requested_is_refused(kind: str, column: str, value: str, field: str) -> None:
    server = Server(kind)
    report = json.loads(server.report)
    for row in report["report"][0]["lv"]:
        if row["lv_name"] == "data":
            row[column] = value
    server.report = json.dumps(report)
    with pytest.raises(NotEffective, match=field):
        Volume(spec_of(kind), server, ARRAY).create()


def test_a_pool_with_a_problem_is_refused_although_its_volume_has_none() -> None:
    server = Server("thin")
    report = json.loads(server.report)
    next(row for row in report["report"][0]["lv"] if row["lv_name"] == "pool")["lv_health_status"] = "out_of_data"
    server.report = json.dumps(report)
    with pytest.raises(NotEffective, match="health: requested ok, effective pool: out_of_data"):
        Volume(spec_of("thin"), server, ARRAY).create()


@pytest.mark.parametrize(
    ("settings", "right", "wrong", "field"),
    [
        ({}, " 128 0", " 256 0", "chunk_size"),
        ({}, "1 no_discard_passdown", "1 skip_block_zeroing", "zeroes_chunks"),
        ({}, " rw ", " ro ", "mode"),
        ({}, "space - ", "space needs_check ", "needs_check"),
        ({"thin_discards": "passdown"}, "", "", "discards"),
        ({"thin_discards": "nopassdown"}, "no_discard_passdown queue", "ignore_discard queue", "discards"),
    ],
)
def test_another_pool_than_the_requested_is_refused(
    settings: dict[str, Any], right: str, wrong: str, field: str
) -> None:
    server = Server("thin")
    if right:
        assert right in server.pool_table + server.pool_status
        server.pool_table = server.pool_table.replace(right, wrong)
        server.pool_status = server.pool_status.replace(right, wrong)
    with pytest.raises(NotEffective, match=field):
        Volume(spec_of("thin", **settings), server, ARRAY).create()


@pytest.mark.parametrize("kind", KINDS)
def test_a_volume_on_another_device_is_refused(kind: str) -> None:
    server = Server(kind)
    server.deps = server.deps.replace("md0", "md1").replace("dm-2", "dm-3")
    with pytest.raises(NotEffective, match="inputs"):
        Volume(spec_of(kind), server, ARRAY).create()


def test_a_volume_that_begins_elsewhere_is_refused() -> None:
    server = Server("linear")
    server.table = server.table.replace("2304", "2048")
    with pytest.raises(NotEffective, match="first_byte: requested 1179648, effective 1048576"):
        Volume(spec_of("linear"), server, ARRAY).create()


@pytest.mark.parametrize("text", ["", "0 1173504", "0 1 striped 2 8 8:0 0 8:16 0\n"])
def test_truncated_lines_are_refused(text: str) -> None:
    for kind in KINDS:
        with pytest.raises(RigError):
            spec_of(kind).found(text)
    with pytest.raises(RigError, match="dmsetup table"):
        parse_pool(text, POOL_STATUS)
    with pytest.raises(RigError, match="dmsetup status"):
        parse_pool(POOL_TABLE, text)


@given(st.integers(0, len(REPORTS["thin"]) - 4))
def test_a_truncated_report_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_lvs(REPORTS["thin"][:length])


def test_the_counters_of_a_pool_are_in_bytes() -> None:
    _, counters = parse_pool(POOL_TABLE, POOL_STATUS.replace(" 0/12160", " 11/12160"))
    assert counters["pool_used"] == 11 * 64 * KIB
    assert counters["pool_size"] == 12160 * 64 * KIB


@given(st.integers(1, 512), st.integers(1, 30))
def test_the_first_extent_begins_at_a_stripe(sectors: int, disks: int) -> None:
    stripe = sectors * 8 * SECTOR * disks
    (spec,) = (VOLUMES["linear"].model_validate({}).aligned(Geometry(sectors * 8 * SECTOR, disks)),)
    assert spec.data_offset % stripe == 0
    assert MIB <= spec.data_offset < MIB + stripe
    assert spec.data_offset == MIB or MIB % stripe


def test_a_mirror_has_the_usual_first_extent() -> None:
    assert VOLUMES["linear"].model_validate({}).aligned(None).data_offset == MIB


@pytest.mark.parametrize("kind", KINDS)
def test_the_stack_aligns_the_volume_and_its_record_gives_the_same_volume(kind: str) -> None:
    array = {"level": 5, "members": ["a", "b", "c", "d"], "chunk_size": "64KiB"}
    stack = StackSpec.model_validate({"array": array, "volume": kind})
    assert stack.volume.data_offset == 6 * 3 * 64 * KIB
    assert StackSpec.model_validate(stack.model_dump(mode="json")) == stack


@given(st.integers(8 * MIB, 1 << 45))
def test_a_volume_has_whole_extents_and_fits(size: int) -> None:
    linear, thin = (spec_of(kind).room(size) for kind in KINDS)
    assert linear % EXTENT == thin % EXTENT == 0
    assert thin <= linear <= size - spec_of("linear").data_offset


def test_a_thin_volume_has_its_share_of_the_array() -> None:
    server = Server("thin")
    Volume(spec_of("thin"), server, ARRAY).create()
    (words,) = [words for words in server.typed if "--type=thin" in words]
    assert f"--virtualsize={json.loads(REPORTS['thin'])['report'][0]['lv'][0]['lv_size']}b" in words


@pytest.mark.parametrize("chunk", ["32KiB", "96KiB", "2GiB"])
def test_impossible_chunks_of_a_pool_are_refused(chunk: str) -> None:
    with pytest.raises(RequestError, match="not a multiple of 64KiB"):
        VOLUMES["thin"].model_validate({"thin_chunk": chunk})


@pytest.mark.parametrize("kind", KINDS)
def test_a_checker_checks_the_group_activates_it_and_deactivates_it_first(kind: str) -> None:
    stack = StackSpec.model_validate({"array": {"members": ["a", "b", "c"]}, "volume": kind})
    config = config_of(stack, {})
    array, *devices = config["assemble"]
    assert array["interface"] == SYSFS_MD
    assert [one["command"][0] for one in devices] == ["vgck", "vgchange"]
    assert {(one["device"], one["interface"], one["name"]) for one in devices} == {
        (DEVICE, DEVICE_MAPPER, f"{GROUP}-data")
    }
    assert [words[0] for words in config["stop"]] == ["vgchange", "mdadm"]
    assert DEVICE in config["mount"]


def test_lines_for_users_have_no_words_that_only_the_harness_needs() -> None:
    stack = StackSpec.model_validate(
        {"array": {"members": ["a", "b", "c"], "chunk_size": "64KiB"}, "volume": "linear"}
    )
    given_stack = deployed(stack, lease=False, grace=False)
    texts = [line.text for line in lines_of(given_stack, given_stack)]
    assert "lvcreate --type=linear --extents=100%FREE --name=data YOUR-VOLUME" in texts
    assert "pvcreate --dataalignment=1048576b /dev/md/YOUR-ARRAY" in texts
    assert any(text.startswith("/dev/mapper/YOUR-VOLUME-data /YOUR/EXPORT xfs") for text in texts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_volume_group_on_a_logical_volume_is_refused(kind: str) -> None:
    array = {"type": "lvm", "level": 5, "members": ["a", "b", "c"], "chunk_size": "64KiB"}
    with pytest.raises(RequestError, match=f"volume = {kind} cannot be on /dev/dm-100"):
        StackSpec.model_validate({"array": array, "volume": kind})
