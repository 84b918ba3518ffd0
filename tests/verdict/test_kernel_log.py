import re
from collections.abc import Sequence

import pytest

from raidproof.core.blame import Blame, Culprit
from raidproof.fault.machine import PANIC
from raidproof.record.observation import KernelSeen
from raidproof.record.outcome import Outcome
from raidproof.verdict.kernel_log import (
    FILE_GONE,
    KERNEL,
    SIGNS,
    blocked,
    findings,
    judge_kernel_logs,
    judge_wrecks,
    trace_of,
)

OOPS = """[   12.100000] md/raid:md0: raid level 5 active with 4 out of 4 devices, algorithm 2
[   12.200000] BUG: unable to handle page fault for address: 0000000000001000
[   12.200100] CPU: 0 PID: 312 Comm: mount Not tainted 6.12.107 #1
[   12.200200] Call Trace:
[   12.200300]  [<60123456>] ? xlog_recover_items_pass2+0x5c/0xa0
[   12.200400]  [<60123457>] xlog_recover+0x10/0x20
"""
WAITS = "[  181.2] INFO: task agent.py:77 blocked for more than 120 seconds.\n"


def test_a_kernel_that_has_failed_is_named_with_its_trace() -> None:
    verdict = judge_wrecks(OOPS)
    assert verdict is not None
    assert (verdict.outcome, str(verdict.blame)) == (Outcome.FAIL, "kernel")
    assert "oops" in verdict.reason
    assert verdict.reason.endswith("trace: xlog_recover_items_pass2 < xlog_recover")


@pytest.mark.parametrize(
    "line",
    [
        "Kernel panic - not syncing: sysrq triggered crash",
        "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
        "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
        "XFS (md0): Metadata corruption detected",
        "all is well",
    ],
)
def test_what_the_rig_did_to_it_is_no_failure_of_a_kernel(line: str) -> None:
    assert judge_wrecks(line, asked_for=[PANIC]) is None


def test_a_panic_that_nobody_asked_for_is_one() -> None:
    assert judge_wrecks("Kernel panic - not syncing: sysrq triggered crash") is not None


def test_without_a_trace_nothing_is_made_up() -> None:
    assert trace_of("Oops: 0000\nfoo+0x1/0x2\n", "Oops: 0000") == ""


def test_a_task_that_waited_for_a_server_that_was_away_is_no_failure() -> None:
    log = f"{WAITS}{WAITS.replace('181', '999')}"
    assert judge_kernel_logs([("client1", WAITS)]).outcome is Outcome.FAIL
    assert judge_kernel_logs([("client1", WAITS)], waited=blocked(WAITS)).outcome is Outcome.PASS
    verdict = judge_kernel_logs([("client1", log)], waited=blocked(WAITS))
    assert verdict.outcome is Outcome.FAIL
    assert "999" in verdict.reason


LOGS = [("console server", "all is well")]
LEVEL = "<3>[   12.5] Invalid ELF header len 7"


def seen(*errors: str, tainted: Sequence[str] = ()) -> dict[str, KernelSeen]:
    return {"server": KernelSeen(errors=[*errors], tainted=[*tainted]), "client1": KernelSeen()}


def test_a_message_is_judged_by_its_level_whatever_its_text() -> None:
    assert judge_kernel_logs(LOGS, seen=seen()).outcome is Outcome.PASS
    verdict = judge_kernel_logs(LOGS, seen=seen(LEVEL, LEVEL))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "kernel server: error: Invalid ELF header len 7")
    assert verdict.blame == KERNEL


def test_a_kernel_that_says_that_it_failed_is_a_failure() -> None:
    verdict = judge_kernel_logs(LOGS, seen=seen(tainted=["warning"]))
    assert (verdict.outcome, verdict.reason) == (Outcome.FAIL, "kernel server: tainted: warning")


@pytest.mark.parametrize(
    "line",
    [
        "md/raid:md0: Operation continuing on 3 devices.",
        "md/raid:md0: starting dirty degraded array with PPL.",
        "md_update_sb: can't update sb for read-only array md0",
    ],
)
def test_a_message_that_reports_no_defect_is_harmless(line: str) -> None:
    assert judge_kernel_logs(LOGS, seen=seen(f"<2>[ 1.0] {line}")).outcome is Outcome.PASS


def test_what_the_fault_causes_is_excused_by_level_too() -> None:
    assert judge_kernel_logs(LOGS, seen=seen(LEVEL), asked_for=["ELF header len 7"]).outcome is Outcome.PASS
    assert judge_kernel_logs(LOGS, seen=seen(LEVEL), asked_for=["ELF header len 8"]).outcome is Outcome.FAIL


def test_a_message_with_a_sign_is_reported_once() -> None:
    line = "XFS (md0): Metadata corruption detected"
    verdict = judge_kernel_logs([("console server", line)], seen=seen(f"<1>[ 1.0] {line}"))
    assert verdict.reason == f"console server: corruption: {line}"


def test_errors_beside_corruption_by_a_lying_disk_are_blamed_on_the_disk() -> None:
    disks = Blame(culprit=Culprit.DISKS)
    log = [("console server", "XFS (md0): Metadata corruption detected")]
    assert judge_kernel_logs(log, seen=seen(LEVEL), corrupted_by=disks).blame == disks
    assert judge_kernel_logs(log, seen=seen(tainted=["warning"]), corrupted_by=disks).blame == KERNEL


FAILED_READ = "[   49.537591] I/O error, dev vda, sector 549536 op 0x0:(READ) flags 0x3000 phys_seg 1 prio class 2"
SYSRQ = "[   49.478310] sysrq: Power Off"
LOST_ROOT = (
    "[   49.488363] EXT4-fs error (device vda): __ext4_find_entry:1647: inode #4598: comm raidproof-init: reading"
)
OFF, ON = "[   49.535445] reboot: Power down", "[    0.000000] Linux version 6.12.117+deb13-cloud-amd64"


@pytest.mark.parametrize(
    ("lines", "outcome"),
    [
        ((OFF, FAILED_READ), Outcome.PASS),
        ((OFF, FAILED_READ, ON), Outcome.PASS),
        ((FAILED_READ, OFF), Outcome.FAIL),
        ((OFF, ON, FAILED_READ), Outcome.FAIL),
        ((OFF, "[   49.6] Oops: 0002 [#1]"), Outcome.FAIL),
        ((SYSRQ, FAILED_READ, LOST_ROOT, OFF, ON), Outcome.PASS),
        ((LOST_ROOT, SYSRQ), Outcome.FAIL),
    ],
)
def test_a_request_after_the_shutdown_of_the_devices_may_fail(lines: tuple[str, ...], outcome: Outcome) -> None:
    assert judge_kernel_logs([("console server", "\n".join(lines))]).outcome is outcome


def test_only_waiting_is_excused() -> None:
    assert blocked(f"{OOPS}{WAITS}watchdog: BUG: soft lockup - CPU#0 stuck for 26s!\n") == {WAITS.strip()}


GANESHA = "23/11/2026 17:06:10 : epoch 6b047282 : server : nfs-ganesha-1123[{}] {} :{} :{}"


@pytest.mark.parametrize(
    ("words", "bad"),
    [
        (("svc_3", "vfs_commit2", "FSAL", "CRIT :fsync failed"), True),
        (("main", "lower_my_caps", "NFS STARTUP", "FATAL :no capability"), True),
        (("reaper", "reaper_init", "CLIENTID", "MAJ :Unable to start reaper thread"), True),
        (("main", "nfs_start", "NFS STARTUP", "EVENT :NFS SERVER INITIALIZED"), False),
        # Nothing depends on the bus, which the machine does not have.
        (("dbus", "gsh_dbus_thread", "DBUS", "CRIT :DBUS not initialized, service thread exiting"), False),
    ],
)
def test_errors_that_ganesha_logs_are_suspicious(words: tuple[str, ...], bad: bool) -> None:
    verdict = judge_kernel_logs([("server", GANESHA.format(*words))])
    assert (verdict.outcome is Outcome.FAIL) is bad
    if bad:
        assert "NFS server" in verdict.reason


def test_corruption_that_a_kernel_reports_is_blamed_on_what_damaged_the_disks() -> None:
    disks = Blame(culprit=Culprit.DISKS, members=("disk2",))
    corrupt = "BTRFS warning (device vda): csum failed root 5 ino 261 off 0 csum 0xb2 expected csum 0x03 mirror 1\n"
    assert judge_kernel_logs([("server", corrupt)]).blame == KERNEL
    assert judge_kernel_logs([("server", corrupt)], corrupted_by=disks).blame == disks
    assert judge_kernel_logs([("server", f"{corrupt}Oops: 0000\n")], corrupted_by=disks).blame == KERNEL


DAMAGE = """
XFS (md0): Metadata CRC error detected at xfs_agf_read_verify+0x5a/0x100 [xfs], xfs_agf block 0x1
XFS (md0): log mount/recovery failed: error -117
XFS (md0): Unmount and run xfs_repair
XFS (md0): failed to locate log tail
XFS (md0): Filesystem has been shut down due to log error (0x2).
XFS (md0): Please unmount the filesystem and rectify the problem(s).
XFS (md0): page discard on page 0000000012345678, inode 0x83, pos 0.
md0: writeback error on inode 131, offset 0, sector 96
JBD2: Detected IO errors 5 while flushing file data on md0-8
Aborting journal on device md0-8.
EXT4-fs (md0): Delayed block allocation failed for inode 12 at logical offset 0 with max blocks 1 with error 28
EXT4-fs (md0): This should not happen!! Data will be lost
EXT4-fs (md0): Remounting filesystem read-only
EXT4-fs (md0): failed to convert unwritten extents to written extents -- potential data loss!  (inode 12, error -5)
EXT4-fs warning (device md0): ext4_clear_journal_err:6000: Filesystem error recorded from previous mount: IO failure
EXT4-fs (md0): warning: mounting fs with errors, running e2fsck is recommended
md/raid:md0: read error NOT corrected!! (sector 8 on vdb).
md/raid1:md0: vdb: unrecoverable I/O read error for block 8
md/raid:md0: Too many read errors, failing device vdb.
md0: failed to create bitmap (-5)
md0: invalid bitmap file superblock: bad magic
md: vdb does not have a valid v1.2 superblock, not importing!
critical space allocation error, dev dm-0, sector 8 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2
timeout error, dev vdb, sector 8 op 0x1:(WRITE)
protection error, dev vdb, sector 8 op 0x0:(READ)
device offline error, dev vdb, sector 8 op 0x1:(WRITE)
device-mapper: crypt: dm-0: INTEGRITY AEAD ERROR, sector 8
NFSv4: state recovery failed for open file d0/a, error = -116
NFSv4: state manager: lease expired failed on NFSv4 server 10.0.0.1 with error 5
NFS: state manager: check lease failed on NFSv4 server 10.0.0.1 with error 10026
NFS: nfs4_reclaim_open_state: unhandled error -10026
NFSD: Unable to end grace period: -5
nfsd: non-standard errno: -117
nfsd4: failed to purge old clients from recovery directory v4recovery
NFSD: unable to find recovery directory /var/lib/nfs/v4recovery
UBSAN: array-index-out-of-bounds in fs/nfsd/nfs4xdr.c:12:3
refcount_t: underflow; use-after-free.
list_del corruption, ffff88 is LIST_POISON1
nfsd: page allocation failure: order:4, mode:0x40cc0
INFO: task nfsd:123 blocked in I/O wait for more than 122 seconds.
rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { P12 } 21002 jiffies
WARNING: possible circular locking dependency detected
""".strip().splitlines()
"""Messages of Linux 6.12 about damage, failed recovery, and broken structures of the kernel."""
HARMLESS = """
md: md0: raid array is not clean -- starting background reconstruction
md/raid456: discard support disabled due to uncertainty.
md/raid:md0: raid level 5 active with 3 out of 4 devices, algorithm 2
operation not supported error, dev dm-0, sector 8 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2
nfs: server 10.0.0.1 not responding, still trying
nfs: server 10.0.0.1 OK
NFSD: attempt to initialize legacy client tracking in a container ignored.
NFSD: Using nfsdcld client tracking operations.
XFS (md0): Starting recovery (logdev: internal)
XFS (md0): Ending recovery (logdev: internal)
EXT4-fs (md0): recovery complete
EXT4-fs (md0): mounted filesystem 12345678-0000-0000-0000-000000000000 r/w with ordered data mode. Quota mode: none.
jbd2/ubda-8: page allocation failure: order:0, mode:0x40820(GFP_ATOMIC|__GFP_COMP), nodemask=(null)
md0: bitmap file is out of date (3 < 5) -- forcing full recovery
created bitmap (1 pages) for device md0
""".strip().splitlines()


@pytest.mark.parametrize("line", DAMAGE)
def test_messages_of_damage_and_of_a_failed_recovery_are_suspicious(line: str) -> None:
    assert findings(line)
    assert judge_kernel_logs([("server", f"[    1.2] {line}\n")]).outcome is Outcome.FAIL


@pytest.mark.parametrize("line", HARMLESS)
def test_messages_of_a_recovery_that_works_are_not(line: str) -> None:
    assert not findings(line)


def test_a_client_whose_open_file_is_gone_says_so_where_a_loss_is_excused() -> None:
    line = "[   12.3] NFSv4: state recovery failed for open file ledger/client1-0-fsync, error = -116"
    assert judge_kernel_logs([("client1", line)]).outcome is Outcome.FAIL
    assert judge_kernel_logs([("client1", line)], asked_for=[FILE_GONE]).outcome is Outcome.PASS
    other = line.replace("-116", "-5")
    assert judge_kernel_logs([("client1", other)], asked_for=[FILE_GONE]).outcome is Outcome.FAIL


def test_with_quiet_a_smaller_time_stamp_is_a_boot() -> None:
    lines = [OFF, "[    0.9] EXT4-fs error (device vdb): ext4_lookup:1855: inode #2: deleted inode referenced: 12"]
    assert [sign for sign, _ in findings("\n".join(lines))] == ["corruption"]
    late = [OFF, "[   48.9] EXT4-fs error (device vdb): ext4_lookup:1855: inode #2: deleted inode referenced: 12"]
    assert not findings("\n".join(late))


def test_a_pattern_with_anchors_finds_its_line_anywhere_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIGNS, "anchored", re.compile("^first word.*last$"))
    assert findings("calm\r\nfirst word to last\r\ncalm\r\n") == [("anchored", "first word to last")]
