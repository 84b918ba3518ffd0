import re
from collections.abc import Callable
from pathlib import Path

import pytest

from raidproof.core.errors import RigError
from raidproof.core.units import KIB
from raidproof.monitor.counters import (
    parse_diskstats,
    parse_mdstat,
    parse_meminfo,
    parse_mounts,
    parse_net_dev,
    parse_nfsd,
    parse_stat,
)

DATA = Path(__file__).parents[1] / "data"


def file_of(path: str, recording: str = "linux-6.12-server-write.txt") -> str:
    """Return the last reading of a file."""
    text = (DATA / "monitor" / recording).read_text()
    begin = list(re.finditer(rf"^= {path} (\d+)\n", text, re.MULTILINE))[-1]
    return text[begin.end() : begin.end() + int(begin.group(1))]


def test_diskstats() -> None:
    disks = parse_diskstats(file_of("/proc/diskstats"))
    assert {"vda", "vdb", "vdc", "vdd", "md0"} <= disks.keys()
    vda = disks["vda"]
    assert (vda.reads, vda.read_bytes, vda.writes, vda.written_bytes) == (159, 3697 * 512, 615, 183373 * 512)
    assert (vda.busy_ms, vda.queued_ms, vda.flushes) == (550, 2396, 74)


def test_an_old_kernel_does_not_count_flushes() -> None:
    assert parse_diskstats("8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n")["sda"].flushes is None


def test_mdstat_that_is_idle() -> None:
    assert parse_mdstat(file_of("/proc/mdstat")) == {}


RESYNC = """Personalities : [raid6] [raid5] [raid4] [raid1]
md1 : active raid1 vdb[1] vda[0]
      65536 blocks super 1.2 [2/2] [UU]
      \tresync=DELAYED

md0 : active raid5 vdd[3] vdc[2] vdb[1] vda[0]
      1569792 blocks super 1.2 level 5, 64k chunk, algorithm 2 [4/4] [UUUU]
      [=>...................]  {} =  8.5% (44672/523264) finish=0.1min speed=44672K/sec

unused devices: <none>
"""


@pytest.mark.parametrize("action", ["resync", "recovery", "check", "reshape"])
def test_mdstat_that_is_busy(action: str) -> None:
    assert parse_mdstat(RESYNC.format(action)) == {"md0": action}


def test_stat_counts_waiting_for_a_disk_as_idle() -> None:
    cpu = parse_stat(file_of("/proc/stat"))
    assert (cpu.busy, cpu.total) == (631 + 12 + 1, 631 + 12 + 183 + 23 + 1)


def test_meminfo() -> None:
    memory = parse_meminfo(file_of("/proc/meminfo"))
    assert (memory.total, memory.dirty, memory.writeback) == (745272 * KIB, 252 * KIB, 0)


def test_links() -> None:
    links = parse_net_dev(file_of("/proc/net/dev"))
    assert links.keys() == {"vec0"}
    assert links["vec0"].received > 209715200 > links["vec0"].sent > 0


def test_nfsd() -> None:
    done = parse_nfsd(file_of("/proc/net/rpc/nfsd"))
    assert (done.read_bytes, done.written_bytes) == (0, 209715200)
    assert (done.reads, done.writes, done.commits) == (0, 25600, 8)


def test_mounts() -> None:
    (mount,) = parse_mounts(file_of("/proc/self/mountstats", "linux-6.12-client-write.txt"))
    assert mount.directory == "/mnt/raidproof"
    assert (mount.application_written, mount.wire_written, mount.application_read) == (209715200, 209715200, 0)
    write = mount.operations["WRITE"]
    assert (write.calls, write.transmissions, write.queue_ms, write.rtt_ms) == (25600, 25600, 14744084, 83161)
    assert "READ" not in mount.operations


@pytest.mark.parametrize("version", ["3", "4.0", "4.1", "4.2"])
def test_mounts_of_every_version(version: str) -> None:
    (mount,) = parse_mounts((DATA / "nfs" / f"mountstats-linux-6.12-vers{version}.txt").read_text())
    assert mount.operations["WRITE"].calls > 0


def test_a_server_has_no_mounts() -> None:
    assert parse_mounts(file_of("/proc/self/mountstats")) == ()


@pytest.mark.parametrize(
    ("parse", "path", "kept"),
    [
        (parse_diskstats, "/proc/diskstats", 200),
        (parse_mdstat, "/proc/mdstat", 200),
        (parse_stat, "/proc/stat", 20),
        (parse_meminfo, "/proc/meminfo", 400),
        (parse_net_dev, "/proc/net/dev", 420),
        (parse_nfsd, "/proc/net/rpc/nfsd", 300),
    ],
)
def test_what_is_cut_off_is_refused(parse: Callable[[str], object], path: str, kept: int) -> None:
    with pytest.raises(RigError):
        parse(file_of(path)[:kept])


def test_nfsd_without_its_last_table_entries_is_refused() -> None:
    text = file_of("/proc/net/rpc/nfsd")
    with pytest.raises(RigError):
        parse_nfsd(re.sub(r"(proc4ops .*) 0 0\n", r"\1\n", text))


@pytest.mark.parametrize("kept", [0.5, 0.3, 0.2])
def test_mountstats_that_are_cut_off_are_refused(kept: float) -> None:
    text = file_of("/proc/self/mountstats", "linux-6.12-client-write.txt")
    cut = text[: int(len(text) * kept)]
    with pytest.raises(RigError):
        parse_mounts(cut)


def test_nonsense_is_refused() -> None:
    with pytest.raises(RigError):
        parse_diskstats("8 0 sda 1 2 3 4 5 six 7 8 9 10 11\n")
