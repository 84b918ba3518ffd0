"""What is asked of a checker that is to show a failure again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from raidproof.crash.shrink import Replayer
from raidproof.crash.states import CrashState
from raidproof.record.exploration import End, ThroughNfsd
from raidproof.storage.filesystem.state import FilesystemCheck
from raidproof.verdict.checks.crash_state import FILESYSTEM, NFSD
from raidproof.verdict.damage import Damage
from tests.crash.made_up import CLEAN, STALE, MadeUp, replayer_of, told, written

STATE = CrashState(6)


class Asked(MadeUp):
    """Notes who was asked beside the ledger's scan."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, written(lies_from=4), told())
        self.words: list[str] = []
        self.nfsd = self._through_nfsd
        self.fsck = self._by_fsck

    def _through_nfsd(self, _: int) -> ThroughNfsd:
        self.words.append("nfsd")
        return ThroughNfsd.SAME

    def _by_fsck(self, _: int) -> FilesystemCheck:
        self.words.append("fsck")
        return CLEAN


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path / "run")


@pytest.fixture
def replayer(asked: Asked) -> Iterator[Replayer]:
    exploration = asked.begin()
    with closing(exploration.journal), exploration:
        yield replayer_of(exploration)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (STALE, []),
        (Damage(NFSD, "other content", End.READ), ["nfsd"]),
        (Damage("write + fsync", "the block is missing", End.WEDGED), ["nfsd"]),
        (Damage(FILESYSTEM, "corrupt", End.READ), ["fsck"]),
    ],
    ids=["a lost block", "of nfsd", "no end of a check", "of the file system"],
)
def test_who_saw_a_failure_is_asked_again(asked: Asked, replayer: Replayer, damage: Damage, words: list[str]) -> None:
    assert not replayer.shows(damage, STATE)
    assert asked.words == words


def test_what_was_seen_is_not_checked_again_unless_more_of_it_is_asked_for_or_anew(
    asked: Asked, replayer: Replayer
) -> None:
    for options, checks in (
        ({}, 1),
        ({}, 1),
        ({"fsck": True}, 2),
        ({}, 2),
        ({"fsck": True}, 2),
        ({"nfsd": True}, 3),
        ({"anew": True}, 4),
    ):
        replayer.judge(STATE, **options)
        assert asked.checks == checks
