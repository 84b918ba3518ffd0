import re

import pytest

from raidproof.core.blame import Blame, Culprit
from raidproof.fault.machine import PANIC
from raidproof.record.outcome import Outcome
from raidproof.verdict.kernel_log import KERNEL, SIGNS, blocked, findings, judge_kernel_logs, judge_wrecks, trace_of

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


FAILED_READ = "[   49.537591] I/O error, dev vda, sector 549536 op 0x0:(READ) flags 0x3000 phys_seg 1 prio class 2"
SYSRQ = "[  149.478310] sysrq: Power Off"
LOST_ROOT = (
    "[  149.488363] EXT4-fs error (device vda): __ext4_find_entry:1647: inode #4598: comm raidproof-init: reading"
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


def test_a_pattern_with_anchors_finds_its_line_anywhere_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIGNS, "anchored", re.compile("^first word.*last$"))
    assert findings("calm\r\nfirst word to last\r\ncalm\r\n") == [("anchored", "first word to last")]
