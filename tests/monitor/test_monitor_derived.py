from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.monitor import Application, Recording, derive, moments, parse_recording
from raidproof.monitor.counters import DiskCount
from raidproof.monitor.monitor import disk_use, host_busy

DATA = Path(__file__).parents[1] / "data" / "monitor"


def text_of(machine: str, what: str) -> str:
    return (DATA / f"linux-6.12-{machine}-{what}.txt").read_text()


def recordings(what: str) -> dict[str, Recording]:
    return {
        "server": parse_recording(text_of("server", what)),
        "client1": parse_recording(text_of("client", what)),
    }


def test_recording() -> None:
    seen = recordings("write")["server"]
    assert [one.at_s for one in seen.snapshots] == [4.90, 5.93, 6.93, 7.94, 8.34]
    assert seen.left_out == 0
    layout = seen.last.layout
    assert layout is not None
    assert layout.serials == {"vda": "disk0", "vdb": "disk1", "vdc": "disk2", "vdd": "disk3"}
    assert layout.parts == {"md0": ("vda", "vdb", "vdc", "vdd")}
    assert layout.limits == {"md0": 1 << 20}


@given(st.floats(0, 0.999))
def test_a_recording_that_is_cut_off_is_refused(kept: float) -> None:
    text = text_of("server", "write")
    with pytest.raises(RigError):
        parse_recording(text[: int(len(text) * kept)])


def test_a_recording_of_something_else_is_refused() -> None:
    with pytest.raises(RigError):
        parse_recording("Traceback\nend 0\n")


def test_one_look_is_not_enough() -> None:
    with pytest.raises(RigError):
        parse_recording("@ 1.00\n.\nend 0\n")


def test_what_could_not_be_read_is_unknown_and_not_zero() -> None:
    seen = parse_recording("@ 1.00\n! /proc/stat 13\n.\n@ 2.00\n! /proc/stat 13\n.\nend 0\n")
    derived = derive("server", {"server": seen})
    assert derived is not None
    assert derived.machines["server"].cpu is None
    assert derived.members is None
    assert derived.syncing is None
    assert {"CPU", "disks", "arrays"} <= derived.unknown.keys()


def test_a_file_that_makes_no_sense_does_not_cost_the_others() -> None:
    text = text_of("server", "write").replace("cpu  ", "cup  ")
    last = parse_recording(text).last
    assert last.cpu is None
    assert last.disks is not None


def test_a_streaming_write() -> None:
    derived = derive("server", recordings("write"))
    assert derived is not None
    assert derived.written_bytes == derived.wire_written_bytes == 209715200
    assert derived.write_amplification == pytest.approx(4 / 3, rel=0.01)
    assert derived.member_reads_per_written is not None
    assert derived.member_reads_per_written < 0.02
    assert derived.mean_write_bytes == 8192
    assert derived.calls_per_mb == pytest.approx(122, rel=0.01)
    assert derived.commits is not None
    assert derived.commits.calls == 8
    assert derived.commits.mean_exec_ms == pytest.approx(2319 / 8)
    assert derived.splitting == pytest.approx(234 / 25600)
    assert derived.slowest == "disk0"
    assert derived.spread == pytest.approx(0.0145, abs=0.001)
    assert derived.machines["server"].dirty_peak == 41021440
    assert derived.machines["client1"].cpu == pytest.approx(0.82, abs=0.01)
    assert derived.syncing == ()
    assert not derived.unknown


def test_synchronous_small_writes() -> None:
    derived = derive("server", recordings("fsync"))
    assert derived is not None
    assert derived.write_amplification == pytest.approx(34, rel=0.01)
    assert derived.member_reads_per_written == pytest.approx(0.67, abs=0.01)
    assert derived.writes is not None
    assert derived.writes.calls == 1073
    assert derived.writes.waiting == pytest.approx(0.76, abs=0.01)


def test_without_counters_of_the_server_no_value_is_derived() -> None:
    assert derive("server", {"client1": recordings("write")["client1"]}, {"server": "off"}) is None


def test_a_client_that_was_not_watched_leaves_the_sums_unknown() -> None:
    derived = derive("server", recordings("write"), {"client2": "it lost its power"})
    assert derived is not None
    assert derived.written_bytes is None
    assert derived.write_amplification is None
    assert derived.commits is None
    assert derived.members is not None
    assert derived.unknown == {"client2": "it lost its power", "mounts": "could not be read"}


def test_the_bytes_of_a_workload_on_the_server_come_from_its_tool() -> None:
    seen = {"server": recordings("write")["server"]}
    derived = derive("server", seen, application=Application(read_bytes=0, written_bytes=209715200, requests=200))
    assert derived is not None
    assert derived.calls is None
    assert derived.write_amplification == pytest.approx(4 / 3, rel=0.01)
    assert derived.splitting == pytest.approx(234 / 200)
    assert not derived.unknown


def test_reads_of_the_application_are_no_read_modify_write() -> None:
    done = Application(read_bytes=100 << 20, written_bytes=100 << 20)
    derived = derive("server", recordings("fsync"), application=done)
    assert derived is not None
    assert derived.member_reads_per_written is None


def test_a_member_without_a_name_leaves_the_members_unknown() -> None:
    seen = recordings("write")
    layout = seen["server"].last.layout
    assert layout is not None
    serials = {name: serial for name, serial in layout.serials.items() if name != "vdb"}
    last = replace(seen["server"].last, layout=replace(layout, serials=serials))
    seen["server"] = Recording((*seen["server"].snapshots[:-1], last), 0)
    derived = derive("server", seen)
    assert derived is not None
    assert derived.members is None
    assert derived.slowest is None
    assert derived.array is not None


def test_members_of_a_nested_array_are_found_through_its_legs() -> None:
    seen = recordings("write")["server"]
    layout = seen.last.layout
    assert layout is not None
    parts = {"md0": ("md1", "md2"), "md1": ("vda", "vdb"), "md2": ("vdc", "vdd")}
    last = replace(seen.last, layout=replace(layout, parts=parts))
    derived = derive("server", {"server": Recording((*seen.snapshots[:-1], last), 0)})
    assert derived is not None
    assert derived.members is not None
    assert list(derived.members) == ["disk0", "disk1", "disk2", "disk3"]


def test_a_resync_at_any_look_is_seen() -> None:
    seen = recordings("write")["server"]
    looks = list(seen.snapshots)
    looks[2] = replace(looks[2], syncing={"md0": "resync"})
    derived = derive("server", {"server": Recording(tuple(looks), 0)})
    assert derived is not None
    assert derived.syncing == ("resync",)


counts = st.builds(DiskCount, *[st.integers(0, 1 << 40)] * 8, flushes=st.one_of(st.none(), st.integers(0, 1000)))


@given(counts, counts, st.floats(0.1, 1000))
def test_a_disk_that_did_nothing_has_no_mean(first: DiskCount, last: DiskCount, seconds: float) -> None:
    idle = disk_use(first, first, seconds)
    assert idle.busy == idle.in_flight == idle.requests == 0
    assert idle.mean_bytes is None
    assert idle.mean_ms is None
    assert disk_use(first, last, seconds).busy <= 1


def test_moments_add_up_to_the_whole() -> None:
    seen = recordings("write")
    shown = moments("server", seen)
    assert len(shown) == 4
    assert shown[-1].at_s == pytest.approx(3.44)
    spans = [shown[0].at_s, *(two.at_s - one.at_s for one, two in pairwise(shown))]
    written = sum((one.member_write_mb_s or 0) * span for one, span in zip(shown, spans, strict=True))
    derived = derive("server", seen)
    assert derived is not None
    assert derived.members is not None
    assert written == pytest.approx(sum(use.written_bytes for use in derived.members.values()) / 1e6)


def test_moments_of_a_client_that_looked_less_often_are_unknown() -> None:
    seen = recordings("write")
    seen["client1"] = Recording(seen["client1"].snapshots[:2], 3)
    shown = moments("server", seen)
    assert shown[0].client_mb_s is not None
    assert shown[1].client_mb_s is None
    assert shown[1].array_mb_s is not None


def test_moments_without_the_server() -> None:
    assert moments("server", {}) == ()


def test_host_busy() -> None:
    before = {"user": 10.0, "idle": 10.0, "iowait": 1.0, "guest": 5.0}
    after = {"user": 11.5, "idle": 10.4, "iowait": 1.1, "guest": 6.5}
    assert host_busy(before, after) == pytest.approx(0.75)
    assert host_busy(before, before) is None
