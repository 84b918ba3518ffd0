"""nfs.conf, files of /sys, and superblocks of file systems."""

import pytest

from raidproof.core.errors import RequestError
from raidproof.existing.given import Given
from raidproof.existing.kernel_files import parse_kernel_files
from raidproof.existing.nfs_conf import NfsConf, parse_nfs_conf
from raidproof.existing.superblock import parse_dumpe2fs, parse_xfs_info
from tests.existing.servers import SERVERS


def conf(text: str) -> NfsConf:
    return parse_nfs_conf(Given("nfs.conf", text))


def test_the_section_of_nfsd() -> None:
    found = conf(
        "[lockd]\nthreads=3\n[nfsd]\n# threads=4\nthreads = 64\nlease-time=60\ngrace-time=30\n[gssd]\nthreads=5\n"
    )
    assert found.threads is not None
    assert (found.threads.value, found.threads.source) == (64, "nfs.conf:5")
    assert found.lease_s is not None
    assert found.lease_s.value == 60
    assert found.grace_s is not None
    assert found.grace_s.value == 30


def test_files_of_a_directory_as_grep_prints_them() -> None:
    found = conf("/etc/nfs.conf.d/a.conf:[nfsd]\n/etc/nfs.conf.d/a.conf:threads=9\n")
    assert found.threads is not None
    assert found.threads.value == 9


def test_an_older_file() -> None:
    found = conf('# Number of servers to start up\nRPCNFSDCOUNT="16"\nNFSD_V4_GRACE=45\nRPCNFSDPRIORITY=0\n')
    assert found.threads is not None
    assert found.grace_s is not None
    assert (found.threads.value, found.grace_s.value, found.lease_s) == (16, 45, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[nfsd\n", "nfs.conf:1: malformed section"), ("[nfsd]\nthreads=all\n", "nfs.conf:2: threads: not a number")],
)
def test_a_malformed_setting_is_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        conf(text)


def test_files_of_the_kernel() -> None:
    text = "/sys/block/sda/queue/write_cache:write back\n\n/sys/block/md0/md/sync_speed_max:200000 (system)\n"
    found = parse_kernel_files(Given("sysfs", text))
    cache, speed = found.values()
    assert (cache.value, cache.number, cache.source) == ("write back", None, "sysfs:1")
    assert (speed.number, speed.source) == (200000, "sysfs:3")
    with pytest.raises(RequestError, match=r"sysfs:1: not /sys/\.\.\.:VALUE"):
        parse_kernel_files(Given("sysfs", "write back\n"))


@pytest.mark.parametrize(
    ("name", "su", "sw", "log"),
    [
        ("debian-11-raid5-xfs", 524288, 3, "internal"),
        ("rhel-7-raid6-xfs-nobarrier", 262144, 6, "internal"),
        ("rhel-9-raid5-ppl-external-log", 524288, 4, "external"),
        ("ubuntu-24.04-raid0-xfs", 0, 0, "internal"),
    ],
)
def test_xfs_info_of_old_and_new_versions(name: str, su: int, sw: int, log: str) -> None:
    found = parse_xfs_info(Given("xfs_info", (SERVERS / name / "xfs_info.txt").read_text()))
    assert (found.su, found.sw, found.log) == (su, sw, log)


@pytest.mark.parametrize(
    ("name", "su", "sw"), [("qnap-raid6-ext4-metadata-1.0", 65536, 2), ("debian-12-raid6-ext4-async", 65536, 4)]
)
def test_dumpe2fs_of_old_and_new_versions(name: str, su: int, sw: int) -> None:
    found = parse_dumpe2fs(Given("dumpe2fs", (SERVERS / name / "dumpe2fs.txt").read_text()))
    assert (found.su, found.sw, found.log) == (su, sw, "internal")


def test_truncated_output_is_refused_in_one_line() -> None:
    whole = (SERVERS / "debian-11-raid5-xfs" / "xfs_info.txt").read_text()
    for end in range(0, len(whole) - 40, 60):
        with pytest.raises(RequestError) as refused:
            parse_xfs_info(Given("xfs_info", whole[:end]))
        assert "\n" not in str(refused.value)
    with pytest.raises(RequestError, match="dumpe2fs: block size not found"):
        parse_dumpe2fs(Given("dumpe2fs", ""))
    with pytest.raises(RequestError, match="a number is malformed"):
        parse_xfs_info(Given("xfs_info", whole.replace("blocks=2930164608", f"blocks={'9' * 5000}")))
