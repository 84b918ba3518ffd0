from contextlib import closing
from pathlib import Path

import pytest

from raidproof.crash.exploration import KnownContents
from tests.crash.made_up import MadeUp, told, written


@pytest.mark.parametrize("lies_from", [4, 6])
def test_a_kept_judgement_is_that_of_the_state(tmp_path: Path, lies_from: int) -> None:
    made = MadeUp(tmp_path / "made", written(lies_from=lies_from), told())
    made.explore()
    begun = made.begin()
    with closing(begun.journal):
        known = KnownContents(begun.journal, begun.stats)
        asked = 0
        for line in begun.journal.stored():
            observation = begun.journal.observation(line.digest)
            seen, judgement = known.judge(line.crash, line.digest)
            assert judgement == begun.stats.judge(line.crash, observation)
            assert seen == observation.brief()
            asked += 1
        assert (known.hits > asked / 4) == (lies_from == 6), "the judgement of what a lying disk lost is never kept"
