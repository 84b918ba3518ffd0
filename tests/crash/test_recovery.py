"""Recorded recoveries: which states are recovered, the files of a recovery, and its phases."""

from collections import Counter
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.crash.checker import Recovered
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.journal import Line, digest_of
from raidproof.crash.recovery import (
    RESYNC_FIRST_S,
    Recovery,
    RecoveryFiles,
    SecondChoices,
    by_recovery,
    recording_of,
    resync_first_s,
    second_name,
)
from raidproof.crash.sampler import Choices, Policy
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.writelog import Kind
from raidproof.record.exploration import End, Observation, Rows
from raidproof.record.recovery import Phase
from tests.crash.conftest import Did, write_log

READ = Observation(end=End.READ)
STAGES = (("assemble", 100), ("resync", 1500), ("mount", 3500), ("verify", 5500), ("settle", 5600))
FLUSH = Did(Kind.FLUSH)


def recovery(**changes: object) -> Recovery:
    fields = {"state": "[1,[]]", "of_log": "a", "log_digest": "b", "resync_first_s": 0.0, "stages": STAGES}
    return Recovery.model_validate({**fields, "settled": True, "observation": READ, **changes})


def line(cut: int, *, differ: int = 0, changed: int = 0, end: End = End.READ, seen: bool = True) -> Line:
    observation = Observation(end=end, rows=Rows(differ=differ, changed=changed)) if seen else None
    state = CrashState(cut).dump()
    return Line(state=state, policy=Policy.DROP_ALL, number=0, digest=f"{cut}", observation=observation)


@pytest.mark.parametrize(
    ("at_ns", "phase"),
    [(0, Phase.ASSEMBLY), (100, Phase.ASSEMBLY), (1499, Phase.ASSEMBLY), (1500, Phase.RESYNC),
     (3500, Phase.LOG_RECOVERY), (5500, Phase.MOUNTED), (9999, Phase.MOUNTED)],
)  # fmt: skip
def test_the_phase_is_that_of_the_last_stage_that_began(at_ns: int, phase: Phase) -> None:
    assert recovery().phase(at_ns) is phase


def test_before_any_stage_the_machine_has_not_begun_to_assemble() -> None:
    assert recovery(stages=()).phase(5) is Phase.ASSEMBLY


def test_states_with_much_to_recover_tend_to_come_first_and_each_has_a_chance() -> None:
    lines = [line(cut, differ=200 if cut > 20 else 0) for cut in range(1, 41)]
    first = Counter(by_recovery(lines, seed, 1)[0].crash.cut > 20 for seed in range(200))
    assert first[True] > 5 * first[False] > 0


def test_the_order_depends_on_the_seed_and_not_on_the_order_of_the_journal() -> None:
    lines = [line(cut) for cut in range(1, 41)]
    assert by_recovery(lines, 1, 0) == by_recovery(lines[::-1], 1, 0) != by_recovery(lines, 2, 0)
    assert sorted(one.crash.cut for one in by_recovery(lines, 1, 0)) == list(range(1, 41))


def test_only_states_that_were_read_are_recovered() -> None:
    lines = [line(1, seen=False), line(2, end=End.NOT_MOUNTED), line(3, changed=1), line(4)]
    assert [one.crash.cut for one in by_recovery(lines, 1, 0)] == [4]


def test_of_states_with_one_content_the_earliest_is_recovered() -> None:
    lines = [line(cut).model_copy(update={"digest": "equal"}) for cut in (5, 2, 9)]
    assert [one.crash.cut for one in by_recovery(lines, 1, 0)] == [2]


def test_half_of_the_recoveries_resync_before_the_mount() -> None:
    counted = Counter(resync_first_s(CrashState(cut).name) for cut in range(200))
    assert set(counted) == {0.0, RESYNC_FIRST_S}
    assert min(counted.values()) > 70


def test_the_phases_take_turns(tmp_path: Path) -> None:
    done = [one for turn in range(6) for one in (Did(Kind.WRITE, 0, 4096 * turn), Did(Kind.WRITE, 1), FLUSH)]
    recording = Recording(write_log(tmp_path / "log", done))
    found = recovery(stages=(("assemble", 0), ("mount", 3500), ("verify", 7500)))
    choices = SecondChoices(recording, found, 1, unit=512, by_interest=False)
    phases = [found.phase(recording.instant_ns(one.cut)) for one in choices.order]
    assert set(phases[:3]) == set(phases[3:6]) == {Phase.ASSEMBLY, Phase.LOG_RECOVERY, Phase.MOUNTED}
    assert sorted(choices.order) == sorted(Choices(recording, 1, first=1).order)


def recovered(folder: Path, name: str = "1-0000abcd") -> tuple[RecoveryFiles, Recovery]:
    """Record a recovery of one request, and store it."""
    files = RecoveryFiles(folder, name)
    write_log(files.begin(), [Did(Kind.WRITE)], blank=False)
    return files, files.keep(CrashState(1), "of", 0.0, Recovered(READ, STAGES, settled=True))


def test_a_stored_recovery_is_read_back(tmp_path: Path) -> None:
    files, stored = recovered(tmp_path)
    assert files.read(CrashState(1), "of") == stored
    assert stored.log_digest == digest_of(files.log)
    assert not files.draft.exists()
    assert RecoveryFiles(tmp_path, "2-0").read(CrashState(1), "of") is None


def test_of_two_recordings_of_one_state_the_first_is_used(tmp_path: Path) -> None:
    files, stored = recovered(tmp_path)
    write_log(files.begin(), [Did(Kind.WRITE), FLUSH], blank=False)
    again = files.keep(CrashState(1), "of", 0.0, Recovered(READ, (), settled=False))
    assert again == stored
    assert not files.draft.exists()


def test_a_dropped_recording_leaves_nothing(tmp_path: Path) -> None:
    files = RecoveryFiles(tmp_path, "1-0")
    files.begin().touch()
    files.drop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "of_log", "said"),
    [(CrashState(2), "of", "of a state of another write log"), (CrashState(1), "other", "of another write log")],
)
def test_a_recovery_of_something_else_is_refused(tmp_path: Path, state: CrashState, of_log: str, said: str) -> None:
    files, _ = recovered(tmp_path)
    with pytest.raises(RequestError, match=said):
        files.read(state, of_log)


def test_a_changed_log_is_refused(tmp_path: Path) -> None:
    files, _ = recovered(tmp_path)
    with files.log.open("ab") as file:
        file.write(b"x")
    with pytest.raises(RequestError, match="was changed"):
        files.read(CrashState(1), "of")


def test_a_recovery_begins_with_the_content_of_the_recovered_state(tmp_path: Path) -> None:
    """The second state has what survived the first cut, whole or torn, and nothing that was lost in it."""
    done = [Did(Kind.WRITE, 0, 0, byte=1), FLUSH, Did(Kind.WRITE, 0, 0, byte=2), Did(Kind.WRITE, 0, 4096, byte=3)]
    first = Recording(write_log(tmp_path / "first", done))
    state = CrashState(4, (Survivor(2, ((0, 512),)),))
    write_log(tmp_path / "second", [Did(Kind.WRITE, 0, 8192, byte=4), FLUSH], blank=False)
    second = recording_of(tmp_path / "second", first, state)
    assert second.origin is not None
    assert (second.origin.torn, second.origin.acknowledged_ns) == (True, first.acknowledged_ns(4))
    disks = DiskStates(second)
    disks.move(len(second.records))
    dropped = CrashState(len(second.records))
    assert [disks.read(dropped, 0, at, 1)[0] for at in (0, 512, 4096, 8192)] == [2, 1, 0, 4]
    third = recording_of(tmp_path / "second", second, dropped)
    assert third.origin is not None
    assert (third.origin.torn, third.origin.acknowledged_ns) == (True, first.acknowledged_ns(4))


def test_names_of_states_of_a_second_cut() -> None:
    assert second_name(None, "1-0") == "1-0"
    assert second_name(second_name("1-0", "2-0"), "3-0") == "1-0+2-0+3-0"
