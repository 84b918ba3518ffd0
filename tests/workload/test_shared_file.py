import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError, RigError
from raidproof.core.units import MIB
from raidproof.workload.shared_file import (
    ATTEMPTS,
    CheckState,
    NotTogether,
    SharedFile,
    SharedFileSpec,
    WriterState,
    WrongContent,
    overlap_s,
    parse_agent,
    require_content,
    require_overlap,
    shared_command,
)
from raidproof.workload.workload import Place
from tests.workload.guest import Guest, said

SPEC = SharedFileSpec(size=64 * MIB)
# What two clients of a lab printed.
WRITERS = {
    "client1": '{"seconds": 1.73, "begun_ns": 1795239498603580864, "ended_ns": 1795239500333603008, '
    '"bytes": 134217728}\n',
    "client2": '{"seconds": 1.71, "begun_ns": 1795239498623581120, "ended_ns": 1795239500333603008, '
    '"bytes": 134217728}\n',
}
CHECKED = '{"bytes": 67108864, "wrong": {}, "first": null}\n'
ZEROED = '{"bytes": 67108864, "wrong": {"zeroes": 128}, "first": [163840, "zeroes"]}\n'


def writer(begun_s: float, seconds: float, late_s: float = 0.0) -> WriterState:
    ended_s = begun_s + seconds + late_s
    return WriterState(seconds=seconds, begun_ns=int(begun_s * 1e9), ended_ns=int(ended_s * 1e9), bytes=1)


def guests(checked: str = CHECKED, writers: dict[str, str] = WRITERS) -> list[Guest]:
    def client(name: str) -> Guest:
        def answer(argv: tuple[str, ...]) -> Any:
            if "python3" not in argv:
                return None
            return said(argv, writers[name] if "write" in argv else checked, where=name)

        return Guest(name, answer)

    return [client(name) for name in writers]


def part_of(guest: Guest, verb: str) -> int:
    argv = next(argv for argv in guest.ran if verb in argv)
    return int(json.loads(argv[-1])["writer"])


def test_all_write_and_each_checks_what_another_wrote() -> None:
    clients = guests()
    workload, place = SharedFile(SPEC), Place(clients, "/mnt")
    workload.prepare(place)
    sample = workload.run(place)
    assert sample.value == pytest.approx(2 * 134.217728 / 1.73)
    assert (sample.written_bytes, sample.read_bytes) == (4 * 64 * MIB, 2 * 64 * MIB)
    assert [part_of(client, "write") for client in clients] == [0, 1]
    assert [part_of(client, "check") for client in clients] == [1, 0]
    assert sample.output["client1"] == WRITERS["client1"] + CHECKED


def test_a_file_and_markers_are_made_and_removed() -> None:
    clients = guests()
    workload, place = SharedFile(SPEC), Place(clients, "/mnt")
    workload.prepare(place)
    paths = ("/mnt/raidproof-shared", "/mnt/raidproof-shared.0", "/mnt/raidproof-shared.1")
    assert ("touch", *paths) in clients[0].ran
    workload.clean(place)
    assert clients[0].ran[-1] == ("rm", "-f", *paths)


def test_wrong_content_is_the_products_fault() -> None:
    clients = guests(checked=ZEROED)
    with pytest.raises(WrongContent, match=r"zeroes.* at offset 163840"):
        SharedFile(SPEC).run(Place(clients, "/mnt"))


def test_wrong_content_names_the_writer_and_the_reader() -> None:
    with pytest.raises(WrongContent, match=r"client2 reads .*zeroes.* which client1 wrote .* 128 x zeroes"):
        require_content(parse_agent(CheckState, ZEROED), SPEC, "client1", "client2")
    require_content(parse_agent(CheckState, CHECKED), SPEC, "client1", "client2")


def test_a_part_that_was_not_checked_whole() -> None:
    with pytest.raises(RigError, match="67108864 bytes of the part of a were checked"):
        require_content(parse_agent(CheckState, CHECKED), SharedFileSpec(size=MIB), "a", "b")


@pytest.mark.parametrize("kept", range(0, len(CHECKED) - 2, 7))
def test_truncated_output_is_not_read(kept: int) -> None:
    with pytest.raises(RigError, match="output of the agent of shared_file is malformed"):
        parse_agent(CheckState, CHECKED[:kept])


def test_an_agent_that_failed() -> None:
    def answer(argv: tuple[str, ...]) -> Any:
        error = "Traceback\nOSError: [Errno 28] No space left on device\n"
        return said(argv, stderr=error, status=1) if "python3" in argv else None

    with pytest.raises(RigError, match="No space left"):
        SharedFile(SPEC).run(Place([Guest("client1", answer), Guest("client2")], "/mnt"))


@pytest.mark.parametrize(
    "writers",
    [
        (writer(0.0, 1.0), writer(1.1, 1.0)),
        (writer(0.0, 1.0), writer(0.6, 1.0)),
        # The stamps overlap, but the writing may have been at their far ends.
        (writer(0.0, 1.0, late_s=3.0), writer(0.0, 1.0, late_s=3.0)),
        (writer(0.0, 0.0), writer(0.0, 1.0)),
    ],
)
def test_writers_that_were_not_together(writers: tuple[WriterState, ...]) -> None:
    with pytest.raises(NotTogether, match="at the same time for"):
        require_overlap(writers)


@pytest.mark.parametrize("late", [1, ATTEMPTS - 1, ATTEMPTS])
def test_writers_that_were_not_together_write_again_in_a_new_file(late: int) -> None:
    alone = writer(100.0, 1.0).model_dump_json()

    def second(argv: tuple[str, ...]) -> Any:
        if "python3" not in argv:
            return None
        writes = sum("write" in ran for ran in clients[1].ran)
        text = CHECKED if "check" in argv else alone if writes <= late else WRITERS["client2"]
        return said(argv, text, where="client2")

    clients = [guests()[0], Guest("client2", second)]
    workload, place = SharedFile(SPEC), Place(clients, "/mnt")
    workload.prepare(place)
    if late == ATTEMPTS:
        with pytest.raises(NotTogether, match="set a larger size, or more rounds"):
            workload.run(place)
    else:
        assert workload.run(place).output["client2"] == WRITERS["client2"] + CHECKED
    steps = [argv[0] for argv in clients[0].ran if argv[0] == "touch" or "write" in argv]
    assert steps == ["touch", "env"] * min(late + 1, ATTEMPTS)


def test_writers_that_were_together() -> None:
    require_overlap([writer(0.0, 1.0), writer(0.4, 1.0), writer(0.3, 9.0)])
    require_overlap([parse_agent(WriterState, text) for text in WRITERS.values()])


TIMES = st.floats(0, 1000)


@given(st.lists(st.tuples(TIMES, TIMES, TIMES, TIMES), min_size=2, max_size=5))
def test_no_overlap_is_claimed_that_was_not_there(spans: list[tuple[float, float, float, float]]) -> None:
    states = [
        WriterState(
            seconds=took, begun_ns=int(begun * 1e9), ended_ns=int((begun + early + took + late) * 1e9), bytes=1
        )
        for begun, early, took, late in spans
    ]
    real = min(b + e + t for b, e, t, _ in spans) - max(b + e for b, e, _, _ in spans)
    assert overlap_s(states) <= real + 1e-6


def test_one_client_shares_nothing() -> None:
    with pytest.raises(RequestError, match="needs at least 2 clients, not 1"):
        SharedFile(SPEC).prepare(Place([Guest()], "/mnt"))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"record": 1000}, "NFS promises nothing"),
        ({"size": "100k"}, "no multiple of record"),
        ({"rounds": 0}, "greater than or equal to 1"),
        ({"layout": "block"}, "did you mean 'blocks'"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        SharedFileSpec.model_validate(asked)


def test_the_command() -> None:
    command = shared_command("check", SharedFileSpec(layout="blocks", record=4096, size=8192), "/mnt/f", 1, 2)
    assert command[2] == "check"
    assert json.loads(command[3]) == {
        "path": "/mnt/f", "writer": 1, "writers": 2, "interleaved": False, "record": 4096, "count": 2, "rounds": 2,
        "seed": 1,
    }  # fmt: skip
