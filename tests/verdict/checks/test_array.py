from dataclasses import replace
from typing import Any, Literal

import pytest

from raidproof.core.blame import Blame, Culprit
from raidproof.fault.machine import PANIC
from raidproof.record.observation import ArraySeen
from raidproof.record.outcome import Outcome, worst
from raidproof.record.run import CrashTestRecord
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.checks.array import COPIES, judge_array, mirrors_of
from raidproof.verdict.checks.filesystem import judge_filesystem
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.kernel_log import findings, judge_kernel_logs

SYNC = Conditions(export_sync=True)
ASYNC = Conditions(export_sync=False)
LYING = Conditions(export_sync=True, lying_disks=("disk2",))
WHOLE = ArraySeen(mismatch_cnt={"/dev/md0": 0})
CLEAN = FilesystemCheck(outcome="clean", status=0)


def test_a_clean_filesystem_passes() -> None:
    assert judge_filesystem(CLEAN, ASYNC).outcome is Outcome.PASS


@pytest.mark.parametrize("outcome", ["dirty", "corrupt"])
@pytest.mark.parametrize(("conditions", "blame"), [(ASYNC, "the stack"), (LYING, "disk2")])
def test_a_filesystem_that_is_not_clean_fails_and_no_export_option_excuses_it(
    conditions: Conditions, blame: str, outcome: Literal["dirty", "corrupt"]
) -> None:
    verdict = judge_filesystem(FilesystemCheck(outcome=outcome, status=1, reasons=("bad magic",)), conditions)
    assert verdict.outcome is Outcome.FAIL
    assert "bad magic" in verdict.reason
    assert blame in str(verdict.blame)


def test_a_whole_array_passes() -> None:
    assert judge_array(WHOLE, ASYNC).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "change",
    [
        {"degraded": {"/dev/md0": 1}},
        {"mismatch_cnt": {"/dev/md0": 8}},
        {"bad_blocks": {"disk2": "512000 8"}},
    ],
)
def test_a_damaged_array_fails(change: dict[str, Any]) -> None:
    assert judge_array(WHOLE.model_copy(update=change), ASYNC).outcome is Outcome.FAIL


def test_what_a_repair_left_is_told() -> None:
    differs = WHOLE.model_copy(update={"mismatch_cnt": {"/dev/md0": 8}, "repaired": {"/dev/md0": 16}})
    verdict = judge_array(differs, ASYNC)
    assert verdict.outcome is Outcome.FAIL
    assert "after a repair: 16 sectors on /dev/md0" in verdict.reason


@pytest.mark.parametrize("mirrors", [(), ("/dev/md0",)])
def test_a_copy_or_parity_that_was_never_written_fails_on_mirrors_too(mirrors: tuple[str, ...]) -> None:
    row = "row 7 (array byte 28672)"
    change = {"mismatch_cnt": {"/dev/md0": 8}, "repaired": {"/dev/md0": 0}, "never_written": [row]}
    verdict = judge_array(WHOLE.model_copy(update=change), ASYNC, mirrors)
    assert verdict.outcome is Outcome.FAIL
    assert f"a copy or the parity was never written: {row}" in verdict.reason
    assert "the stack" in str(verdict.blame)


BAD = WHOLE.model_copy(update={"bad_blocks": {"disk2": "512000 8"}})
DIFFERS = WHOLE.model_copy(update={"mismatch_cnt": {"/dev/md0": 8}, "repaired": {"/dev/md0": 0}})
LEFT = DIFFERS.model_copy(update={"repaired": {"/dev/md0": 8}})


def by(**effects: Any) -> Conditions:
    """Conditions of a cycle with a fault of these effects, whose blame is said by it."""
    explained = Conditions(export_sync=True, explanation=Blame(culprit=Culprit.DISKS, detail="on purpose"))
    return replace(explained, **effects)


def test_blocks_made_unreadable_have_to_be_known() -> None:
    verdict = judge_array(BAD, by(unreadable_blocks=True))
    assert (verdict.outcome, "512000 8" in verdict.reason) == (Outcome.PASS, True)
    assert judge_array(DIFFERS, by(unreadable_blocks=True)).outcome is Outcome.FAIL


def test_what_was_made_to_differ_has_to_be_found_and_repaired() -> None:
    assert judge_array(DIFFERS, by(content_changed=True)).outcome is Outcome.PASS
    assert judge_array(LEFT, by(content_changed=True)).outcome is Outcome.FAIL
    assert judge_array(BAD, by(content_changed=True)).outcome is Outcome.FAIL


@pytest.mark.parametrize("found", [BAD, DIFFERS], ids=["unreadable", "differs"])
def test_without_such_an_effect_nothing_explains_it(found: ArraySeen) -> None:
    assert judge_array(found, by(memory_lost=True, torn=True)).outcome is Outcome.FAIL


def test_what_was_not_checked_has_not_passed() -> None:
    assert judge_filesystem(None, ASYNC).outcome is judge_array(None, ASYNC).outcome is Outcome.INCONCLUSIVE


ALARMING = [
    ("oops", "BUG: kernel NULL pointer dereference, address: 0000000000000000"),
    ("panic", "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100"),
    ("warning", "WARNING: arch/um/drivers/virtio_uml.c:830 at vu_interrupt+0x8d/0x9e, CPU#0: swapper/0/0"),
    ("hung task", "INFO: task python3:812 blocked for more than 122 seconds."),
    ("corruption", "XFS (md0): Corruption detected. Unmount and run xfs_repair"),
    ("corruption", "EXT4-fs error (device md0): ext4_lookup:1785: inode #2: comm ls: iget: checksum invalid"),
    ("I/O error", "md/raid1:md0: Disk failure on vdd, disabling device."),
    ("I/O error", "Buffer I/O error on dev md0, logical block 0, lost async page write"),
    ("out of memory", "Out of memory: Killed process 812 (fio)"),
    ("start-up", "raidproof-init: no network on lab0"),
]
CALM = [
    "XFS (md0): Ending clean mount",
    "XFS (md0): Starting recovery (logdev: internal)",
    "md/raid:md0: raid level 5 active with 4 out of 4 devices, algorithm 2",
    "md: resync of RAID array md0",
    "NFSD: starting 90-second grace period (net effffff9)",
    "raidproof-init: ready",
]


@pytest.mark.parametrize(("sign", "line"), ALARMING)
def test_an_alarming_line_fails(sign: str, line: str) -> None:
    assert sign in {found for found, _ in findings(line)}
    verdict = judge_kernel_logs([("server", f"calm\n{line}\n")])
    assert verdict.outcome is Outcome.FAIL
    assert line in verdict.reason


def test_calm_lines_pass() -> None:
    assert judge_kernel_logs([("server", "\n".join(CALM))]).outcome is Outcome.PASS


def test_what_was_asked_for_is_not_alarming() -> None:
    log = [("server", "Kernel panic - not syncing: sysrq triggered crash")]
    assert judge_kernel_logs(log, asked_for=[PANIC]).outcome is Outcome.PASS
    assert judge_kernel_logs([*log, ("client1", "BUG: bad")], asked_for=[PANIC]).outcome is Outcome.FAIL
    assert judge_kernel_logs(log).outcome is Outcome.FAIL


def test_without_consoles_nothing_is_known() -> None:
    assert judge_kernel_logs([]).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("mirrors", "left", "conditions", "outcome"),
    [
        (["/dev/md0"], 0, SYNC, Outcome.INCONCLUSIVE),
        ([], 0, SYNC, Outcome.FAIL),
        (["/dev/md0"], 8, SYNC, Outcome.FAIL),
        (["/dev/md0"], 0, LYING, Outcome.FAIL),
    ],
)
def test_copies_may_differ_where_a_page_changed(
    mirrors: list[str], left: int, conditions: Conditions, outcome: Outcome
) -> None:
    check = DIFFERS.model_copy(update={"repaired": {"/dev/md0": left}})
    verdict = judge_array(check, conditions, mirrors)
    assert verdict.outcome is outcome
    assert (verdict.checker == COPIES) == (outcome is Outcome.INCONCLUSIVE)


def test_copies_with_checksums_may_not_differ() -> None:
    devices = [
        {"device": "/dev/md1", "level": "1"},
        {"device": "/dev/md0", "level": "5"},
        {"device": "/dev/vda", "level": "1", "checksummed": True},
    ]
    shared = {"name": "n", "title": "t", "asked": {}, "cache_mode": "volatile", "fault": "power-cut", "seed": 1}
    record = CrashTestRecord.model_validate({**shared, "effective": {"array": {"devices": devices}}})
    assert mirrors_of(record) == ["/dev/md1"]


def test_the_worst_end_speaks_for_all() -> None:
    assert worst([Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE]) is Outcome.FAIL
    assert worst([Outcome.ERROR, Outcome.FAIL]) is Outcome.FAIL
    assert worst(Outcome) is Outcome.FAIL
    assert worst([]) is Outcome.INCONCLUSIVE
