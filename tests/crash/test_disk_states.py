from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RigError
from raidproof.crash.disk_states import DiskStates
from raidproof.crash.sampler import Choices
from raidproof.crash.states import CrashState, Recording, Survivor
from raidproof.disk.cache import CacheMode, CutPolicy, Member
from raidproof.disk.writelog import Flag, Kind, Records
from tests.crash.conftest import SIZE, Did, Record, write_log

requests = st.lists(
    st.builds(
        Did,
        st.sampled_from([Kind.WRITE, Kind.WRITE, Kind.WRITE, Kind.ZERO, Kind.FLUSH]),
        st.integers(0, 1),
        st.integers(0, 15).map(lambda place: place * 512),
        st.integers(1, 12).map(lambda sectors: sectors * 512),
        st.integers(1, 255),
        st.sampled_from([0, 0, 0, int(Flag.FUA)]),
        st.just(0),
    ),
    min_size=1,
    max_size=30,
)


def content(window: DiskStates, state: CrashState) -> list[bytes]:
    return [window.read(state, member, 0, SIZE) for member in range(2)]


@given(requests, st.data())
def test_drop_and_keep_are_what_a_disk_would_have_left(done: list[Did], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        recording = Recording(write_log(Path(folder) / "log", done))
        cut = data.draw(st.integers(0, len(done)))
        window = DiskStates(recording)
        window.move(cut)
        for policy in (CutPolicy.DROP, CutPolicy.KEEP):
            members = [Member(f"disk{number}", SIZE) for number in range(2)]
            for one in done[:cut]:
                if one.kind is Kind.FLUSH:
                    members[one.member].flush()
                elif one.kind is Kind.WRITE:
                    members[one.member].write(bytes([one.byte]) * one.length, one.offset, bool(one.flags))
                else:
                    members[one.member].zero(one.offset, one.length, bool(one.flags))
            for member in members:
                member.cut(policy, Random())
            images = [bytes(member.image().view(0, SIZE)) for member in members]
            kept = [number for number in window.open if number < cut] if policy is CutPolicy.KEEP else []
            assert content(window, CrashState(cut, tuple(map(Survivor, kept)))) == images


@given(requests, st.data())
def test_a_lost_member_is_blank_and_the_others_are_as_without_the_loss(done: list[Did], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "log", done)
        whole, without = DiskStates(Recording(log)), DiskStates(Recording(log, lost=[1]))
        cut = data.draw(st.integers(0, len(done)))
        base = without.move(cut)
        whole.move(cut)
        assert whole.open == without.open
        state = CrashState(cut, tuple(map(Survivor, whole.open)))
        assert content(without, state) == [content(whole, state)[0], bytes(SIZE)]
        assert {member for member, _ in (*base.blocks, *without.patch(state).blocks)} <= {0}
        alone = [one for one in state.survivors if whole.recording.request(one.request).member == 0]
        assert without.digest(state) == without.digest(CrashState(cut, tuple(alone)))


@given(requests, st.integers(0, 5))
def test_digests_are_equal_where_contents_are(done: list[Did], seed: int) -> None:
    with TemporaryDirectory() as folder:
        recording = Recording(write_log(Path(folder) / "log", done))
        choices = Choices(recording, seed)
        seen: dict[str, list[bytes]] = {}
        window = DiskStates(recording)
        base = {0: bytearray(SIZE), 1: bytearray(SIZE)}
        for choice in sorted(choices.order):
            for member, offset, piece in window.move(choice.cut).runs():
                base[member][offset : offset + len(piece)] = piece
            state = choices.state(choice, window.open)
            found = content(window, state)
            patched = {member: bytearray(held) for member, held in base.items()}
            for member, offset, piece in window.patch(state).runs():
                patched[member][offset : offset + len(piece)] = piece
            assert [bytes(patched[0]), bytes(patched[1])] == found
            assert seen.setdefault(window.digest(state), found) == found
        assert len(set(seen)) == len({tuple(one) for one in seen.values()})


def test_a_flush_owes_nothing_to_what_completed_while_it_was_under_way(record: Record) -> None:
    made = record(Did(Kind.WRITE, byte=1), Did(Kind.WRITE, offset=8192, byte=2), Did(Kind.FLUSH, took=1))
    window = DiskStates(made)
    window.move(3)
    assert window.open == (1,)
    assert window.read(CrashState(3), 0, 0, 1) == b"\1"
    assert window.read(CrashState(3), 0, 8192, 1) == b"\0"


def test_what_is_in_flight_may_be_there(record: Record) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.WRITE, offset=4096, byte=5, took=1), Did(Kind.FLUSH))
    window = DiskStates(made)
    assert window.open == (0, 1)
    assert window.read(CrashState(0, (Survivor(1),)), 0, 4096, 1) == b"\5"


def test_what_the_runs_own_cut_caught_may_be_there(record: Record) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.FLUSH), Did(Kind.FREEZE), Did(Kind.WRITE, byte=9, flags=Flag.IN_FLIGHT))
    window = DiskStates(made)
    window.move(2)
    assert window.open == ()  # issued after the freeze: it never was under way
    made = record_late(made)
    window = DiskStates(made)
    window.move(2)
    assert window.open == (2,)


def record_late(made: Recording) -> Recording:
    """Let the caught request have been issued before the cut."""
    late = Records(made.log)
    late.append(made.caught[0]._replace(issued_ns=1500))
    made.caught = late
    return made


def test_a_flush_that_lied_covers_nothing(record: Record) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.FLUSH, flags=Flag.LIED))
    window = DiskStates(made)
    window.move(2)
    assert window.open == (0,)


def test_a_disk_without_a_cache_loses_nothing_but_what_is_under_way(record: Record) -> None:
    made = record(Did(Kind.WRITE), Did(Kind.WRITE, offset=4096, took=1), mode=CacheMode.NONE)
    window = DiskStates(made)
    assert window.open == (0, 1)
    window.move(2)
    assert not window.open
    assert window.read(CrashState(2), 0, 0, 1) == b"\1"


def test_an_earlier_survivor_does_not_cover_a_later_durable_write(record: Record) -> None:
    made = record(Did(Kind.WRITE, byte=1), Did(Kind.WRITE, byte=2, flags=Flag.FUA))
    window = DiskStates(made)
    window.move(2)
    assert window.open == (0,)
    assert window.read(CrashState(2, (Survivor(0),)), 0, 0, 1) == b"\2"


def test_a_window_goes_forward_only_and_knows_its_cut(record: Record) -> None:
    window = DiskStates(record(Did(Kind.WRITE), Did(Kind.WRITE)))
    window.move(2)
    with pytest.raises(RigError, match="before the current cut"):
        window.move(1)
    with pytest.raises(RigError, match="the current cut is"):
        window.patch(CrashState(1))


def test_the_same_content_on_another_member_is_another_state(record: Record) -> None:
    made = record(Did(Kind.WRITE, 0, byte=7), Did(Kind.WRITE, 1, byte=7), Did(Kind.WRITE, 1, offset=8192, byte=7))
    window = DiskStates(made)
    window.move(3)
    states = [CrashState(3, tuple(map(Survivor, kept))) for kept in ((), (0,), (1,), (0, 1), (2,), (0, 2))]
    assert len({window.digest(state) for state in states}) == len(states), "of a mirror it says which half is there"


def test_what_is_durable_counts_by_its_member_too(record: Record) -> None:
    digests = set()
    for member in (0, 1):
        window = DiskStates(record(Did(Kind.WRITE, member), Did(Kind.FLUSH, member)))
        window.move(2)
        digests.add(window.digest(CrashState(2)))
        window.recording.log.path.unlink()
    assert len(digests) == 2
