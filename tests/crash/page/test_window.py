from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.crash.page import window as page_window
from raidproof.crash.page.window import Window, lifetimes
from raidproof.crash.states import Caches, Recording
from raidproof.disk.cache import CacheMode
from raidproof.disk.writelog import Flag, Kind
from tests.crash.conftest import Did, write_log


def random_log(path: Path, seed: int) -> Recording:
    # The first requests have no time to be issued earlier.
    draw, done = Random(seed), [Did(Kind.FLUSH)] * 5
    for _ in range(40):
        member, took = draw.randrange(2), draw.randrange(4)
        match draw.randrange(12):
            case 0 | 1 | 2:
                flags = int(Flag.LIED) if draw.randrange(4) == 0 else 0
                done.append(Did(Kind.FLUSH, member, flags=flags, took=took))
            case 3:
                done.append(Did(Kind.DISCARD, member, 4096 * draw.randrange(4), took=took))
            case 4:
                mode = draw.choice([CacheMode.VOLATILE, CacheMode.NONE])
                done.append(Did(Kind.MODE, member, mode=mode))
            case _:
                flags = int(Flag.FUA) if draw.randrange(4) == 0 else 0
                done.append(Did(Kind.WRITE, member, 4096 * draw.randrange(8), flags=flags, took=took))
    done += [Did(Kind.WRITE, 0, 0, flags=int(Flag.IN_FLIGHT), took=2)]
    path.unlink(missing_ok=True)
    return Recording(write_log(path, done))


@given(seed=st.integers(0, 1 << 32))
def test_lifetimes_are_those_of_the_caches(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    recording = random_log(tmp_path_factory.getbasetemp() / "lifetimes.log", seed)
    lives, caches, durable = lifetimes(recording), Caches(recording), set()
    for cut in range(len(recording.records) + 1):
        durable |= set(caches.roll(cut))
        opened = [
            number for number, life in lives.items() if life.opens <= cut and (life.sure is None or life.sure > cut)
        ]
        assert opened == list(caches.open)
        sure = {number for number, life in lives.items() if life.sure is not None and life.sure <= cut}
        assert sure == durable | set(caches.kept)
        assert {n for n, life in lives.items() if life.durable is not None and life.durable <= cut} == durable


def writes(path: Path, count: int) -> Recording:
    """Return a log of writes, each of them flushed."""
    done = [one for place in range(count) for one in (Did(Kind.WRITE, 0, 4096 * place), Did(Kind.FLUSH))]
    return Recording(write_log(path, done))


def test_a_short_log_is_shown_whole(tmp_path: Path) -> None:
    window = Window(writes(tmp_path / "log", 10), 4, [6])
    assert (window.first, window.last) == (4, 20)
    assert window.requests == tuple(range(4, 20, 2))


def test_a_long_log_is_shown_around_the_first_focus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_window, "MOST_REQUESTS", 5)
    window = Window(writes(tmp_path / "log", 20), 0, [20, 24, 2])
    assert window.first <= 20
    assert window.last >= 24
    assert len(window.requests) == 5
    assert not window.first <= 2


def test_too_many_volatile_writes_cannot_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_window, "MOST_REQUESTS", 5)
    recording = Recording(write_log(tmp_path / "log", [Did(Kind.WRITE, 0, 4096 * place) for place in range(10)]))
    with pytest.raises(RequestError, match="no checked state has at most 5 volatile requests"):
        Window(recording, 0, [8, 9])
    assert Window(recording, 0, [8, 3]).first <= 3
