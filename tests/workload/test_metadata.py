import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import DeadlineExceeded, RequestError, RigError
from raidproof.workload.metadata import Metadata, MetadataSpec, metadata_command, metadata_sample, parse_metadata
from raidproof.workload.workload import Place
from tests.workload.guest import Guest, said

DATA = Path(__file__).parents[1] / "data" / "metadata"
REPORT = (DATA / "report.json").read_text()
SHORT = (DATA / "too-short.json").read_text()


def guest(stdout: str = REPORT, stderr: str = "", status: int = 0, name: str = "client1") -> Guest:
    return Guest(
        name,
        lambda argv: said(argv, "100 4096\n") if argv[0] == "stat" else said(argv, stdout, stderr, status, where=name),
    )


def test_command() -> None:
    python, dash, orders = metadata_command(MetadataSpec(seconds=9, fsync_file=True), "/mnt/x")
    assert (python, dash) == ("python3", "-")
    assert json.loads(orders) == {
        "directory": "/mnt/x",
        "phase_s": 3.0,
        "files": None,
        "directories": 10,
        "size": 0,
        "fsync_file": True,
        "fsync_directory": False,
        "cold": True,
    }
    assert json.loads(metadata_command(MetadataSpec(files=5), "/x")[-1])["phase_s"] is None


def test_how_long_it_takes() -> None:
    assert Metadata(MetadataSpec()).timed_s == 6.0
    assert Metadata(MetadataSpec(seconds=9)).timed_s == 9.0
    assert Metadata(MetadataSpec(files=100)).timed_s is None


def test_real_report() -> None:
    state = parse_metadata(REPORT)
    assert state.values == {
        "creates_s": state.create.done / state.create.seconds,
        "stats_s": state.stat.done / state.stat.seconds,
        "removes_s": state.remove.done / state.remove.seconds,
    }


def test_a_phase_that_is_too_short_for_the_clock_is_left_out() -> None:
    assert parse_metadata(SHORT).values == {}
    with pytest.raises(RigError, match=r"create took less than 0.5 s"):
        Metadata(MetadataSpec()).run(Place([guest(SHORT)], "/mnt"))


@given(st.integers(min_value=0, max_value=len(REPORT) - 1))
def test_an_answer_that_was_cut_off_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_metadata(REPORT[:length])


@pytest.mark.parametrize("field", ["done", "seconds"])
def test_an_answer_that_cannot_be_is_refused(field: str) -> None:
    answer = json.loads(REPORT)
    answer["remove"][field] = -1
    with pytest.raises(RigError):
        parse_metadata(json.dumps(answer) + "\n")
    answer["remove"] = {"done": answer["create"]["done"] + 1, "seconds": 1.0}
    with pytest.raises(RigError, match="truncated, or counts more"):
        parse_metadata(json.dumps(answer) + "\n")


def test_machines_add_up_what_all_of_them_measured() -> None:
    state = parse_metadata(REPORT)
    sample = metadata_sample({"a": state, "b": state}, 100, {})
    assert sample.value == pytest.approx(2 * state.create.done / state.create.seconds)
    assert sample.written_bytes == 200 * state.create.done
    quick = state.model_copy(update={"stat": parse_metadata(SHORT).stat})
    assert set(metadata_sample({"a": state, "b": quick}, 0, {}).values) == {"creates_s", "removes_s"}


def test_the_program_is_sent_by_standard_input_and_ended_in_its_machine() -> None:
    machine = guest()
    metadata = Metadata(MetadataSpec(deadline_s=30))
    place = Place([machine], "/mnt")
    metadata.prepare(place)
    assert [words[0] for words in machine.ran] == ["rm", "mkdir", "stat", "sync"]
    metadata.run(place)
    assert machine.ran[-1][2:7] == ("timeout", "--kill-after=5", "36", "python3", "-")
    metadata.clean(place)
    assert machine.ran[-1] == ("rm", "-rf", "/mnt/metadata-client1")


def test_a_failure_has_the_agents_output() -> None:
    with pytest.raises(RigError, match="No space left on device"):
        Metadata(MetadataSpec()).run(Place([guest("", (DATA / "no-room.txt").read_text(), 1)], "/mnt"))
    with pytest.raises(DeadlineExceeded):
        Metadata(MetadataSpec()).run(Place([guest("", status=124)], "/mnt"))


def test_a_disk_without_room_is_refused_first() -> None:
    with pytest.raises(RigError, match="needs"):
        Metadata(MetadataSpec(files=1000)).prepare(Place([guest()], "/mnt"))


@pytest.mark.parametrize(
    "asked", [{"files": 10, "seconds": 5}, {"files": 0}, {"seconds": 1}, {"directories": 0}, {"size": "2MiB"}]
)
def test_impossible(asked: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        MetadataSpec.model_validate(asked)
