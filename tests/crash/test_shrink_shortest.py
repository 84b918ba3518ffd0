from pathlib import Path

from raidproof.crash.shrink import Trials, shorten
from raidproof.crash.states import CrashState, Survivor
from raidproof.disk.writelog import Kind
from raidproof.record.failure import ShortestRecord
from raidproof.verdict.crash_states import RECOVERY
from raidproof.verdict.damage import Damage
from tests.crash.conftest import Did
from tests.crash.made_up import MadeUp, half_written, replayer_of, told, written

STALE = Damage("write + fsync", "the block has an older generation", "read")
NOT_MOUNTED = Damage(RECOVERY, "not mounted", "not-mounted")


def shortened(made_up: MadeUp, damage: Damage, state: CrashState, budget: int = 200) -> ShortestRecord:
    """Shrink a state, and then its history."""
    with made_up.begin() as exploration:
        replayer = replayer_of(exploration)
        trials = Trials(lambda one: damage in replayer.judge(one).damages, budget)
        smallest = trials.shrink(state)
        return shorten(trials, damage, replayer, smallest, trials.missing(state, replayer.cursor.window.open))


def test_what_was_lost_at_once_is_shown_right_after_the_word(tmp_path: Path) -> None:
    found = shortened(MadeUp(tmp_path / "lying", written(lies_from=4), told()), STALE, CrashState(18))
    # The word came 100 ns after the lie, which is request 14, and 900 ns before request 15 completed.
    assert (found.cut, found.earlier, found.of, found.not_at) == (15, 3, 18, None)
    assert found.after_word_s is not None
    assert round(found.after_word_s * 1e9) == 899
    assert (found.acknowledged, found.of_acknowledged) == (5, 5)
    assert found.tried == 2
    # All that would have to survive for it is durable, so nothing has to.
    assert CrashState.load(found.dump) == CrashState(15)


def test_what_needs_a_later_write_is_found_between_a_cut_that_fails_and_one_that_does_not(tmp_path: Path) -> None:
    after = [Did(Kind.WRITE, 1, 65536 + 4096 * place) for place in range(20)]
    made_up = MadeUp(tmp_path / "half", [*half_written()[:-1], *after], told(2))
    late = CrashState(len(made_up.recording.records), (Survivor(12),))
    found = shortened(made_up, NOT_MOUNTED, late)
    assert found.not_at is not None
    assert found.not_at < found.cut < late.cut
    assert found.earlier == late.cut - found.cut
    assert found.after_word_s is None
    assert CrashState.load(found.dump).survivors == (Survivor(12),)
    assert CrashState.load(found.dump).name == found.state


def test_what_no_earlier_cut_shows_stays_where_it_is(tmp_path: Path) -> None:
    found = shortened(MadeUp(tmp_path / "lying", written(lies_from=4), told()), STALE, CrashState(15))
    assert (found.cut, found.earlier, found.earlier_s, found.tried, found.not_at) == (15, 0, 0, 0, None)
