"""postmark: its commands, its real reports, and errors."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import Completed
from raidproof.core.errors import RequestError, RigError
from raidproof.workload.postmark import (
    Postmark,
    PostmarkSpec,
    parse_postmark,
    postmark_input,
    postmark_sample,
    require_all_done,
)
from raidproof.workload.workload import Place
from tests.guest_files import FilesByCommands

DATA = Path(__file__).parents[1] / "data" / "postmark"
REPORT = (DATA / "report.txt").read_text()
SPEC = PostmarkSpec(number=1000, transactions=20_000)


class Guest(FilesByCommands):
    """A fake machine with scripted output."""

    address = "10.0.0.1"

    def __init__(self, stdout: str = REPORT, stderr: str = "", status: int = 0, name: str = "client1") -> None:
        self.name, self.free = name, "100000000 4096\n"
        self.said = stdout, stderr, status
        self.stdin = ""
        self.ran: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 60.0) -> Completed:
        self.ran.append(tuple(argv))
        self.stdin = stdin or ""
        stdout, stderr, status = self.said
        return Completed(tuple(argv), status, stdout, stderr, self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 60.0) -> str:
        self.ran.append(tuple(argv))
        return self.free if argv[0] == "stat" else ""


def place(*guests: Guest) -> Place:
    return Place(machines=guests, directory="/mnt")


def test_defaults_are_the_published_settings() -> None:
    lines = postmark_input(PostmarkSpec(), "/mnt/x").splitlines()
    assert {"set size 10240 20480", "set number 10000", "set transactions 100000", "set subdirectories 10"} < {*lines}
    assert lines[-3:] == ["set location /mnt/x", "run", "quit"]


def test_real_report() -> None:
    state = parse_postmark(REPORT)
    assert state.created_mixed + state.deleted_mixed == SPEC.transactions
    assert state.created == state.deleted
    assert state.read_bytes > 0
    require_all_done(SPEC, state)


@given(st.integers(min_value=0, max_value=len(REPORT.rstrip()) - 4))
def test_a_report_that_was_cut_off_is_refused(length: int) -> None:
    with pytest.raises(RigError):
        parse_postmark(REPORT[:length])


def test_out_of_files_names_the_bias() -> None:
    with pytest.raises(RigError, match="bias_create 3"):
        parse_postmark((DATA / "out-of-files.txt").read_text(), "bias_create 3")


def test_a_full_table_is_no_result() -> None:
    spec = PostmarkSpec(number=600, transactions=500, bias_create=10)
    state = parse_postmark((DATA / "full-table.txt").read_text())
    with pytest.raises(RigError, match="bias_create 10"):
        require_all_done(spec, state)


def test_complaints_are_no_result_whatever_the_status() -> None:
    with pytest.raises(RigError, match="cannot open"):
        Postmark(SPEC).run(place(Guest(stderr=(DATA / "no-directory.stderr.txt").read_text())))


def test_crash_and_loop_name_the_bias() -> None:
    with pytest.raises(RigError, match=r"status 136.*bias_create 5"):
        Postmark(SPEC).run(place(Guest(stdout=(DATA / "no-directory.txt").read_text(), status=136)))
    with pytest.raises(RigError, match=r"did not end.*bias_create 5"):
        Postmark(SPEC).run(place(Guest(stdout="", status=124)))


def test_it_is_ended_in_its_machine_and_reads_its_input() -> None:
    guest = Guest()
    Postmark(SPEC).run(place(guest))
    assert guest.ran[-1][2:] == ("timeout", "--kill-after=5", "4400", "postmark")
    assert guest.stdin.endswith("run\nquit\n")


def test_two_machines_add_up() -> None:
    state = parse_postmark(REPORT)
    one = postmark_sample({"a": state}, SPEC.transactions, {})
    both = Postmark(SPEC).run(place(Guest(name="a"), Guest(name="b")))
    assert both.value == pytest.approx(2 * one.value)
    assert both.written_bytes == 2 * one.written_bytes
    assert one.values["uncertainty_percent"] == pytest.approx(100 / state.transaction_seconds)


def test_a_disk_without_room_is_refused_first() -> None:
    guest = Guest()
    guest.free = "10 4096\n"
    with pytest.raises(RigError, match="needs"):
        Postmark(SPEC).prepare(place(guest))
    guest = Guest()
    Postmark(SPEC).prepare(place(guest))
    assert guest.ran[-1] == ("sync",)


@pytest.mark.parametrize(
    "asked",
    [{"bias_create": 3}, {"bias_create": 8}, {"bias_read": 11}, {"smallest": 9, "largest": 8}, {"transactions": 9}],
)
def test_impossible(asked: dict[str, int]) -> None:
    with pytest.raises(RequestError):
        PostmarkSpec.model_validate(asked)
