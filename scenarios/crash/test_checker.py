"""The result of a check of a crash state does not depend on the states that the checker has checked before."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from raidproof.core.units import SECTOR
from raidproof.crash.checker import Checker
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.states import BLOCK, CrashState, Patch, Survivor
from raidproof.disk.writelog import data_of
from raidproof.fault.array import Degraded
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record.exploration import End, ThroughNfsd
from raidproof.record.outcome import Outcome
from raidproof.run.run import Run
from raidproof.run.source import Source, source_of
from raidproof.storage.array import disk_path
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.storage.server import SERVERS
from raidproof.storage.server.ganesha import CONFIG
from raidproof.storage.server.knfsd import ExportSpec, export_command, unexport_command
from raidproof.verdict.checks.crash_state import DEGRADED, FILESYSTEM

MAGIC = b"XFSB"
SHORT_S = 0.005
"""Deadline of a check in seconds: too short for any check, as a mount alone takes longer."""
HANGS_S = 12.0
"""Deadline of a check in seconds: longer than all steps before the read through nfsd, shorter than nfsd's timeout."""
SAME, DIFFERENT = ThroughNfsd.SAME, ThroughNfsd.DIFFERENT
HEADS = range(512)
"""Numbers of the blocks at the beginning of each member, which hold the superblocks of md and of the file system."""


@pytest.fixture(scope="module")
def source(current_run: Run) -> Source:
    """Return the recording of one crash test, which all tests of this file only read."""
    ended = CrashTestRunner(current_run, "what-checkers-look-at")(stack_of()).must_pass()
    return source_of(current_run.store, ended.record.name)


@pytest.fixture
def checker(source: Source, current_run: Run, tmp_path: Path) -> Iterator[Checker]:
    """Yield a booted checker; the lab that scenarios share is ended before, so that it takes no memory."""
    current_run.discard_lab()
    with source.checker(1, logs=tmp_path) as booted:
        yield booted


@pytest.fixture
def middle(source: Source) -> int:
    """Return a cut in the middle of the recorded requests, as a number of completed requests."""
    return (source.first + len(source.recording.records)) // 2


def test_a_state_does_not_affect_the_check_of_the_next_state(source: Source, checker: Checker, middle: int) -> None:
    window = DiskStates(source.recording)
    checker.advance(window.move(middle))
    early, late = Patch(), window.move(len(source.recording.records))
    wiped = Patch({(member, block): b"\xff" * BLOCK for member in range(4) for block in HEADS})
    first, second = checker.check(early), checker.check(late)
    assert first.end is second.end is End.READ
    assert first.found != second.found
    assert checker.check(wiped).end is End.NOT_ASSEMBLED
    for patch, seen in ((early, first), (late, second)) * 2:
        again = checker.check(patch, nfsd=True)
        assert again.same_as(seen)
        assert again.through_nfsd is ThroughNfsd.SAME
    cold = checker.cold(late)
    assert cold.same_as(second)
    assert cold.through_nfsd is ThroughNfsd.SAME
    assert checker.reboots == 0


def test_the_machine_reads_the_state_byte_for_byte(source: Source, checker: Checker, middle: int) -> None:
    window = DiskStates(source.recording)
    checker.advance(window.move(middle))
    half = CrashState(middle, tuple(Survivor(number) for number in window.open[::2]))
    for state in (CrashState(middle, ()), half):
        checker.check(
            Patch({(member, 0): b"\xff" * BLOCK for member in range(4)})
        )  # the check before writes elsewhere
        checker.show(window.patch(state))
        for number, info in enumerate(source.recording.members):
            digest = checker.machine.succeed(["sha256sum", disk_path(info.serial)]).split()[0]
            assert digest == sha256(window.read(state, number, 0, info.size)).hexdigest(), (state.name, info.serial)


def test_a_difference_through_nfsd_is_reported(source: Source, checker: Checker) -> None:
    window, machine, export = DiskStates(source.recording), checker.machine, source.stack.export
    assert isinstance(export, ExportSpec)
    checker.advance(window.move(len(source.recording.records)))
    assert checker.check(Patch(), nfsd=True).through_nfsd is ThroughNfsd.SAME
    # With all_squash the checker reads as the anonymous user, who may not read some files of the clients.
    machine.succeed(export_command(export.model_copy(update={"all_squash": True})))
    squashed = checker.check(Patch(), nfsd=True)
    assert squashed.through_nfsd is ThroughNfsd.DIFFERENT
    machine.succeed(unexport_command(export))
    nothing = checker.check(Patch(), nfsd=True)
    assert nothing.through_nfsd is ThroughNfsd.DIFFERENT
    assert "mount" in nothing.said
    machine.succeed(export_command(export))
    again = checker.check(Patch(), nfsd=True)
    assert again.through_nfsd is ThroughNfsd.SAME
    assert {one.end for one in (squashed, nothing, again)} == {End.READ}
    assert squashed.found == nothing.found == again.found
    assert checker.reboots == 0


def test_states_are_read_through_ganesha_too(source: Source, current_run: Run, tmp_path: Path) -> None:
    export = SERVERS["ganesha"].model_validate({"lease_s": 10, "grace_s": 10})
    served = replace(source, stack=source.stack.model_copy(update={"export": export}))
    current_run.discard_lab()
    with served.checker(1, logs=tmp_path) as checker:
        checker.advance(DiskStates(source.recording).move(len(source.recording.records)))
        seen = [checker.check(Patch(), nfsd=True) for _ in range(2)]
        assert checker.cold(Patch()).through_nfsd is ThroughNfsd.SAME
        checker.machine.succeed(["sed", "--in-place", "s/root_squash/all_squash/", CONFIG])
        squashed = checker.check(Patch(), nfsd=True)
        checker.machine.succeed(["sed", "--in-place", "s/Name = VFS/Name = NONE/", CONFIG])
        unserved = checker.check(Patch(), nfsd=True)
        assert checker.reboots == 0
    assert [one.through_nfsd for one in (*seen, squashed, unserved)] == 2 * [SAME] + 2 * [DIFFERENT]
    assert all(one.found == seen[0].found for one in (*seen, squashed, unserved))


def without_a_superblock(window: DiskStates) -> Patch:
    """Return a patch that overwrites the last copy of XFS's superblock, which a mount does not read, with zeros."""
    blocks = window.content(CrashState(window.cut)).blocks
    copies = [(block, member) for (member, block), data in blocks.items() if data_of(data)[: len(MAGIC)] == MAGIC]
    block, member = max(copies)
    held = data_of(blocks[member, block])
    # Only the first sector is overwritten: the following sectors have the headers of the allocation group.
    return Patch({(member, block): bytes(SECTOR) + held[SECTOR:]})


def test_damage_that_a_mount_does_not_read_is_found(source: Source, checker: Checker) -> None:
    window = DiskStates(source.recording)
    checker.advance(window.move(len(source.recording.records)))
    whole = checker.check(Patch(), fsck=True)
    assert whole.filesystem == FilesystemCheck(outcome="clean", status=0)
    damaged = checker.check(without_a_superblock(window), fsck=True)
    assert (damaged.end, damaged.found) == (End.READ, whole.found)
    assert damaged.filesystem is not None
    assert damaged.filesystem.outcome == "corrupt", damaged.filesystem
    end_ns = source.recording.end_ns
    assert source.oracle.judge(whole, end_ns).outcome is Outcome.PASS
    assert [one.promise for one in source.oracle.judge(damaged, end_ns).damages] == [FILESYSTEM]


def test_a_missing_member_is_damage_unless_a_fault_removed_it(
    current_run: Run, cycle: CrashTestRunner, tmp_path: Path
) -> None:
    ended = cycle(stack_of("10"), during=[Degraded("disk1")]).must_keep_every_promise()
    source = source_of(current_run.store, ended.record.name)
    current_run.discard_lab()
    with source.checker(1, logs=tmp_path) as checker:
        checker.advance(DiskStates(source.recording).move(len(source.recording.records)))
        seen = checker.check(Patch())
    assert (seen.end, seen.degraded) == (End.READ, {"/dev/md0": 1})
    end_ns = source.recording.end_ns
    assert source.oracle.judge(seen, end_ns).outcome is Outcome.PASS
    careless = replace(source.oracle, incomplete_ns=None)
    assert [one.promise for one in careless.judge(seen, end_ns).damages] == [DEGRADED]


def test_a_hanging_checker_is_reported_and_the_next_state_is_checked(
    source: Source, checker: Checker, middle: int
) -> None:
    checker.advance(DiskStates(source.recording).move(middle))
    before = checker.check(Patch())
    usual, checker.deadline_s = checker.deadline_s, SHORT_S
    wedged = checker.check(Patch())
    assert wedged.end is End.WEDGED
    assert "no answer in time" in wedged.said
    checker.deadline_s = usual
    assert checker.check(Patch()).same_as(before)
    assert checker.reboots == 1
    # Without rpc.mountd nfsd cannot resolve an export, and requests of clients wait.
    checker.machine.succeed(["pkill", "--exact", "rpc.mountd"])
    checker.deadline_s = HANGS_S
    wedged = checker.check(Patch(), nfsd=True)
    assert (wedged.end, wedged.said) == (End.WEDGED, "nfsd: no answer in time")
    checker.deadline_s = usual
    again = checker.check(Patch(), nfsd=True)
    assert again.same_as(before)
    assert again.through_nfsd is ThroughNfsd.SAME
    assert checker.reboots == 2
