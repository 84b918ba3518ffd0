"""The user's own application: the real guest programs and the real receiver, on a directory of this host."""

import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.command import Completed
from raidproof.core.errors import DeadlineExceeded, RequestError
from raidproof.core.waiting import Deadline, wait_until
from raidproof.guest import application as guest
from raidproof.guest import ledger_reader, ledger_writer
from raidproof.guest.ledger_format import ACKNOWLEDGE, APPLICATION, END, FRAME, ISSUE
from raidproof.machine.agent import RemoteCommand
from raidproof.machine.machine import Machine
from raidproof.record.outcome import Outcome
from raidproof.record.run import BlockClass, ScanResult
from raidproof.verdict.checks.application import (
    judge_application_checks,
    judge_application_data,
    judge_application_runs,
)
from raidproof.verdict.checks.blocks import judge_blocks
from raidproof.verdict.checks.invented import judge_nothing_invented
from raidproof.verdict.checks.promises import judge_promises
from raidproof.verdict.conditions import Conditions
from raidproof.verdict.ledger import balance_of
from raidproof.workload.application import LIBRARIES, LIBRARY, ApplicationError, ApplicationSpec, Reports
from raidproof.workload.history import LONGEST_DELAY_NS, Ended, History, Recorder, WorkerSpec
from raidproof.workload.ledger import AckListener, Ledger, LedgerSpec, ServerPlace, application_config
from raidproof.workload.ledger_receiver import Receiver
from tests.workload.local_clients import local_command

TOY = Path(__file__).resolve().parents[2] / "scenarios" / "applications" / "records.py"
PYTHON = sys.executable
ENOUGH = 20
SYNC = Conditions(export_sync=True)


def toy(run: str = "", check: str = "", **settings: Any) -> ApplicationSpec:
    return ApplicationSpec(
        files=(str(TOY),), run=(PYTHON, TOY.name, "run", run), check=(PYTHON, TOY.name, "check", check), **settings
    )


class House:
    """A folder of this host in the role of a machine: the directory of the data, and the folder of the files."""

    def __init__(self, path: Path, spec: ApplicationSpec) -> None:
        self.path = path
        self.root = path / "root"
        self.root.mkdir()
        self.spec = spec
        self.workers = LedgerSpec.of(spec).workers(["client1", "client2"])
        self.history_path = path / "history"
        self.receiver: Receiver | None = None
        self.status = 0
        self.errors = ""

    def config(self, port: int = 0) -> dict[str, Any]:
        config = {
            "root": str(self.root), "seed": 1, "host": "127.0.0.1", "port": port,
            "workers": [one.model_dump() for one in self.workers],
            **application_config(self.spec, self.spec.content()),
        }  # fmt: skip
        config["application"] |= {"home": str(self.path / "home"), "copy": str(self.path / "copy")}
        return config

    def work(self, enough: Callable[[Receiver], bool] = lambda one: one.ended[APPLICATION] >= ENOUGH) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.receiver = receiver = Receiver(listener, Recorder(self.history_path))
            receiver.start()
            file = self.path / "config.json"
            file.write_text(json.dumps(self.config(listener.getsockname()[1])))
            process = subprocess.Popen(
                local_command(ledger_writer, file), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            wait_until(
                lambda: enough(receiver) or process.poll() is not None or receiver.refused is not None,
                Deadline.after(60),
                "reports",
            )
            _, self.errors = process.communicate()
            self.status = process.returncode
            wait_until(lambda: receiver.open_connections == 0, Deadline.after(10), "the last reports")
            receiver.stop()

    @property
    def history(self) -> History:
        return History.read(self.history_path)

    @property
    def records(self) -> Path:
        return self.root / self.workers[0].path / "records"

    def check(self) -> dict[str, Any]:
        return dict(ledger_reader.read_back(self.config()))

    def evidence(self) -> ScanResult:
        return balance_of(self.workers, self.history, self.check()).result()


@pytest.fixture
def house(tmp_path: Path) -> Callable[[ApplicationSpec], House]:
    return lambda spec: House(tmp_path, spec)


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("house"), toy())
    made.work()
    return made


@pytest.fixture
def again(worked: House, tmp_path: Path) -> House:
    """The house in which the application has worked, with data that a test may change."""
    made = House(tmp_path, worked.spec)
    made.workers = worked.workers
    made.history_path = worked.history_path
    made.records.parent.mkdir()
    made.records.write_bytes(worked.records.read_bytes())
    return made


def acknowledged(house: House) -> list[int]:
    return [one.place for one in house.history.acknowledged()]


def test_each_acknowledged_operation_is_recorded_and_found(worked: House) -> None:
    assert worked.status == 0
    numbers = acknowledged(worked)
    assert len(numbers) >= ENOUGH
    assert numbers == list(range(1, len(numbers) + 1))
    evidence = worked.evidence()
    assert evidence.acknowledged == evidence.judged == {APPLICATION: len(numbers)}
    assert (evidence.lost, evidence.invented, evidence.unchecked, evidence.broken_blocks) == ({}, [], [], 0)
    (verdict,) = judge_promises(evidence, SYNC, "on the server")
    assert verdict.outcome is Outcome.PASS
    assert f"{len(numbers)} could have shown a loss" in verdict.reason


def test_the_operation_that_the_end_interrupted_is_unknown(worked: House) -> None:
    last = worked.history.operations[-1]
    assert last.ended in {Ended.UNKNOWN, Ended.OK}
    assert worked.history.ends[0].status == 0


def test_a_missing_operation_is_lost_unless_the_export_is_async(again: House) -> None:
    lines = again.records.read_bytes().splitlines(keepends=True)
    again.records.write_bytes(b"".join(lines[:10] + lines[11:]))
    evidence = again.evidence()
    assert evidence.lost == {APPLICATION: 1}
    assert evidence.examples == ["client1-0-application: operation 11: the operation is "
                                 "missing"]  # fmt: skip
    (verdict,) = judge_promises(evidence, SYNC, "on the server")
    assert verdict.outcome is Outcome.FAIL
    assert str(verdict.blame).startswith("the stack or the application: ")
    (excused,) = judge_promises(evidence, Conditions(export_sync=False), "on the server")
    assert excused.outcome is Outcome.PASS
    assert excused.reason.startswith("measured loss")
    (lying,) = judge_promises(evidence, Conditions(export_sync=True, lying_disks=("disk2",)), "on the server")
    assert str(lying.blame).startswith("the disks: disk2")


def test_a_missing_directory_loses_every_operation(again: House) -> None:
    again.records.unlink()
    again.records.parent.rmdir()
    assert again.evidence().lost == {APPLICATION: len(acknowledged(again))}


def test_an_operation_that_never_began_is_a_failure(again: House) -> None:
    with again.records.open("ab") as file:
        file.write(b"00600000\n00600001\n")
    evidence = again.evidence()
    assert evidence.invented == ["client1-0-application: operation 600000 and 1 others, which never began"]
    assert judge_nothing_invented(evidence, SYNC, "on the server").outcome is Outcome.FAIL
    # A machine that lost power may have reported less than its disks received.
    found = again.check()
    disconnected = balance_of(again.workers, again.history, found, disconnected_clients=["client1"]).result()
    assert disconnected.invented == []


def test_an_operation_that_begins_long_after_the_cut_is_invented(again: House) -> None:
    cut_ns = again.history.operations[0].issued_ns - 2 * LONGEST_DELAY_NS
    evidence = balance_of(again.workers, again.history, again.check(), before_ns=cut_ns, seen_ns=cut_ns).result()
    assert "which never began" in evidence.invented[0]


def test_an_operation_whose_begin_is_reported_after_the_cut_may_be_there(again: House) -> None:
    # The report of a begin can arrive after the data.
    first = again.history.operations[0]
    evidence = balance_of(
        again.workers, again.history, again.check(), before_ns=first.issued_ns, seen_ns=first.issued_ns
    ).result()
    assert evidence.acknowledged == {APPLICATION: 0}
    assert evidence.invented == []
    (verdict,) = judge_promises(evidence, SYNC, "on the server")
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_a_wrong_operation_is_lost_and_damage(again: House) -> None:
    again.records.write_bytes(again.records.read_bytes().replace(b"00000007\n", b"0000007\n"))
    evidence = again.evidence()
    assert evidence.lost == {APPLICATION: 1}
    assert evidence.damaged == ["client1-0-application: operation 7: half"]
    (verdict,) = judge_application_data(evidence, SYNC, "on the server")
    assert (verdict.outcome, verdict.checker) == (Outcome.FAIL, "data of the application, seen on the server")
    # A server that lost acknowledged writes can leave a file with a mixture of old and new content.
    (excused,) = judge_application_data(evidence, Conditions(export_sync=False), "on the server")
    assert (excused.outcome, excused.reason[:14]) == (Outcome.PASS, "measured loss:")


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ("hangs", "did not end within 0.5 s"),
        ("fails", "ended with status 1: the file is strange"),
        ("chatty", "line 1 of its output, 'checking ...': expected 'present ID'"),
    ],
)
def test_a_check_without_a_result_is_an_error_of_the_application(again: House, check: str, says: str) -> None:
    again.spec = toy(check=check, check_s=0.5 if check == "hangs" else 10.0)
    evidence = again.evidence()
    assert evidence.lost == {}
    assert evidence.judged == {APPLICATION: 0}
    (verdict,) = judge_application_checks(evidence, "on the server")
    assert verdict.outcome is Outcome.ERROR
    assert verdict.reason.startswith("the application's own check command gave no result: client1-0-application: it")
    assert says in verdict.reason
    (promise,) = judge_promises(evidence, SYNC, "on the server")
    assert promise.outcome is Outcome.INCONCLUSIVE


def test_a_check_that_does_not_look_at_the_data_has_no_result(again: House) -> None:
    again.spec = again.spec.model_copy(update={"check": ("sh", "-c", "seq -f 'present %g' 0 9")})
    evidence = again.evidence()
    (verdict,) = judge_application_checks(evidence, "on the server")
    assert verdict.outcome is Outcome.ERROR
    assert "it reports operations of an empty directory" in verdict.reason


NOT_EMPTY = 'if [ -n "$(ls -A "$RAIDPROOF_DIRECTORY")" ]; then seq -f "present %g" 0 9; fi'


def test_a_check_that_misses_nothing_that_was_removed_has_no_result(again: House) -> None:
    (sound,) = again.check().values()
    assert not sound["failed"]
    again.spec = again.spec.model_copy(update={"check": ("sh", "-c", NOT_EMPTY)})
    for name in ("a", "b", "c"):
        again.records.with_name(name).touch()
    (found,) = again.check().values()
    assert found["failed"] == guest.MISSES_NOTHING
    assert found["ids"] == []
    (verdict,) = judge_application_checks(again.evidence(), "on the server")
    assert verdict.outcome is Outcome.ERROR


def test_files_without_operations_may_be_missing(again: House) -> None:
    # Only one half of the files has the operations.
    for name in ("a", "b", "zz", "zzz"):
        again.records.with_name(name).touch()
    (found,) = again.check().values()
    assert not found["failed"]


@pytest.mark.parametrize(("status", "outcome"), [(1, Outcome.FAIL), (2, None)])
def test_a_check_that_fails_only_on_the_data_shows_that_they_are_damaged(
    again: House, status: int, outcome: Outcome | None
) -> None:
    script = f'test -z "$(ls -A "$RAIDPROOF_DIRECTORY")" || {{ echo malformed >&2; exit {status}; }}'
    again.spec = again.spec.model_copy(update={"check": ("sh", "-c", script)})
    evidence = again.evidence()
    judged = [*judge_application_data(evidence, SYNC, "on the server"), *judge_application_checks(evidence, "here")]
    (verdict,) = judged
    assert verdict.outcome is (outcome or Outcome.ERROR)
    assert f"it ended with status {status}: malformed" in verdict.reason
    assert evidence.lost == {}


def test_a_check_changes_no_data(again: House) -> None:
    again.spec = again.spec.model_copy(update={"check": ("sh", "-c", 'rm "$RAIDPROOF_DIRECTORY/records"')})
    before = again.records.read_bytes()
    assert again.evidence().lost_total == len(acknowledged(again))
    assert again.records.read_bytes() == before


def test_a_check_kills_what_it_has_started(again: House, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    again.spec = again.spec.model_copy(update={"check": ("sh", "-c", f"sleep 600 >&- 2>&- & echo $! > {pid}")})
    assert not again.evidence().unchecked

    def gone() -> bool:
        stat = Path(f"/proc/{pid.read_text().strip()}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"

    wait_until(gone, Deadline.after(10), "the process to end")


def test_too_much_data_is_an_error_of_the_application(again: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "LARGEST", 10)
    assert "a check copies at most 10" in again.evidence().unchecked[0]


def test_an_unreadable_directory_is_damage(again: House) -> None:
    again.records.parent.rename(again.root / "elsewhere")
    again.records.parent.symlink_to(again.records.parent.name)  # ELOOP
    evidence = again.evidence()
    assert evidence.blocks[BlockClass.UNREADABLE] == 1
    assert judge_blocks(evidence, SYNC, "on the server").outcome is Outcome.FAIL


def test_a_copy_that_a_signal_ends_is_no_damage(again: House, monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1, 1))
    monkeypatch.setattr(subprocess, "Popen", partial(subprocess.Popen, preexec_fn=small))
    evidence = again.evidence()
    assert BlockClass.UNREADABLE not in evidence.blocks
    assert f"got no data: cp ended with status {-signal.SIGXFSZ}" in evidence.unchecked[0]


def test_a_machine_without_room_for_a_copy_is_no_damage(again: House, monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(f_bavail=1, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    evidence = again.evidence()
    assert BlockClass.UNREADABLE not in evidence.blocks
    assert "the machine has room for 1 bytes" in evidence.unchecked[0]


def test_a_check_that_leaves_a_process_with_its_output_ends(again: House, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"setsid sleep 600 & echo $! > {pid}; sleep 600"
    again.spec = again.spec.model_copy(update={"check": ("sh", "-c", script), "check_s": 0.3})
    try:
        assert "did not end within 0.3 s" in again.evidence().unchecked[0]
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_planted_phantom_is_found(house: Callable[[ApplicationSpec], House]) -> None:
    made = house(toy("phantom"))
    made.work()
    assert made.evidence().invented == ["client1-0-application: operation 500005, which never began"]


def test_a_line_that_is_no_report_is_an_error_of_the_application(house: Callable[[ApplicationSpec], House]) -> None:
    made = house(toy("garbage"))
    made.work()
    assert made.receiver is not None
    assert "b'hello, harness': expected 'begun ID' or 'acknowledged ID'" in str(made.receiver.refused)


def test_a_failed_application_is_seen(house: Callable[[ApplicationSpec], House]) -> None:
    made = house(toy("dies"))
    made.work(lambda receiver: bool(receiver.done))
    assert made.receiver is not None
    assert made.receiver.statuses == {0: 1}
    assert "the application's run command ended with status 1: no more" in made.errors
    history = made.history
    assert history.ends[0].status == 1
    (verdict,) = judge_application_runs(made.workers, history, SYNC, history.ends[0].at_ns - 2_000_000_000)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "ended with status 1 2.0 s after the fault" in verdict.reason
    assert (
        judge_application_runs(made.workers, history, Conditions(export_sync=False), None)[0].outcome is Outcome.PASS
    )


def test_an_application_may_end_by_itself(house: Callable[[ApplicationSpec], House]) -> None:
    made = house(toy("ends"))
    made.work(lambda receiver: bool(receiver.done))
    assert len(acknowledged(made)) == 10
    assert made.history.ends[0].status == 0
    assert judge_application_runs(made.workers, made.history, SYNC, 0) == []


def test_a_command_that_does_not_exist_is_named(house: Callable[[ApplicationSpec], House]) -> None:
    made = house(ApplicationSpec(run=("no-such-program",), check=("true",)))
    made.work(lambda receiver: bool(receiver.done))
    assert made.history.ends[0].status == 127
    assert "no-such-program: No such file or directory" in made.errors


def test_a_failed_preparation_is_named(house: Callable[[ApplicationSpec], House]) -> None:
    made = house(toy(prepare=("sh", "-c", "echo the disk is full >&2; exit 3")))
    made.work()
    assert made.status == 1
    assert "the application's prepare command" in made.errors
    assert "ended with status 3: the disk is full" in made.errors


def test_prepare_has_the_environment_of_run_and_check(house: Callable[[ApplicationSpec], House]) -> None:
    words = 'test -f raidproof_app.h && echo "$RAIDPROOF_SEED" > "$RAIDPROOF_DIRECTORY/seed"'
    made = house(toy(prepare=("sh", "-c", words)))
    made.work()
    assert made.records.with_name("seed").read_text() == "1\n"


def test_a_stubborn_application_is_killed(house: Callable[[ApplicationSpec], House]) -> None:
    words = "trap '' TERM; printf 'begun 1\\nacknowledged 1\\n' >&$RAIDPROOF_FD; while :; do sleep 0.1; done"
    made = house(ApplicationSpec(run=("bash", "-c", words), check=("echo", "present 1"), stop_s=0.2))
    made.work(lambda receiver: receiver.ended[APPLICATION] == 1)
    assert made.status == 0
    assert made.evidence().lost == {}


# --- the reports, as text


def frames(data: bytes) -> list[tuple[int, int, int, int]]:
    return [(what, sequence, number, status) for what, _, _, sequence, number, _, status, _ in FRAME.iter_unpack(data)]


def test_reports_become_frames_however_they_are_cut() -> None:
    text = b"worker 3\nbegun 7\nacknowledged 7\nbegun 0\nended 2\n"
    whole = Reports().take(text, 5)
    pieces = Reports()
    assert b"".join(pieces.take(text[at : at + 1], 5) for at in range(len(text))) == whole
    assert frames(whole) == [(ISSUE, 0, 7, 0), (ACKNOWLEDGE, 0, 7, 0), (ISSUE, 1, 0, 0), (END, 2, 0, 2)]
    assert {fields[2] for fields in FRAME.iter_unpack(whole)} == {3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"worker 0\nacknowledged 4\n", "operation 4 has not begun: send 'begun 4' first"),
        (b"worker 0\nbegun 4\nbegun 4\n", "operation 4 has begun before"),
        (b"worker 0\nbegun 4\nacknowledged 4\nacknowledged 4\n", "acknowledged twice"),
        (b"worker 0\nbegun 4294967296\n", "not a number from 0 to 4294967295"),
        (b"worker 0\nbegun 04\n", "not a number"),
        (b"worker 0\nbegun -1\n", "not a number"),
        (b"worker 0\nbegun \xd9\xa3\n", "not a number"),
        (b"worker 0\nbegun 4 \n", "expected 'begun ID'"),
        (b"worker 0\nworker 1\n", "expected 'begun ID'"),
        (b"worker 0\n" + b"x" * 101, "a line without end"),
        (b"worker 0\n\n", "expected 'begun ID'"),
    ],
)
def test_a_report_that_breaks_the_protocol_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(ApplicationError, match="the application sent") as raised:
        Reports().take(text, 5)
    assert says in str(raised.value)


@given(st.binary(max_size=200))
def test_no_bytes_are_mistaken_for_reports(data: bytes) -> None:
    reports = Reports()
    reports.take(b"worker 0\n", 1)
    try:
        made = frames(reports.take(data, 2))
    except ApplicationError:
        return
    assert all(what in (ISSUE, ACKNOWLEDGE, END) for what, *_ in made)
    assert len(made) == data.count(b"\n")


@given(st.integers())
def test_an_id_is_a_number_of_32_bits(number: int) -> None:
    if 0 <= number <= guest.GREATEST:
        assert guest.number_of(str(number)) == number
    else:
        with pytest.raises(ValueError, match="is not a number"):
            guest.number_of(str(number))


@given(st.sets(st.integers(0, guest.GREATEST)), st.dictionaries(st.integers(0, guest.GREATEST), st.just("half")))
def test_the_output_of_a_check_is_read_back(present: set[int], wrong: dict[int, str]) -> None:
    lines = [*(f"present {one}\n" for one in present), *(f"wrong {one} {why}\n" for one, why in wrong.items())]
    found = guest.read_check("".join(lines))
    assert found["ids"] == sorted(present - {*wrong})
    assert dict(found["wrong"]) == wrong


@pytest.mark.parametrize("text", ["present 1", "present\n", "wrong 1\n", "damaged too many words\n", "present x\n"])
def test_an_incomplete_output_of_a_check_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="of its output"):
        guest.read_check(text)


# --- the settings


def test_the_first_client_runs_the_application_by_default() -> None:
    (worker,) = LedgerSpec.of(toy()).workers(["client1", "client2"])
    assert (worker.client, worker.key, worker.local) == ("client1", "client1-0-application", False)
    both = LedgerSpec.of(toy(all_machines=True)).workers(["client1", "client2"])
    assert [worker.client for worker in both] == ["client1", "client2"]
    (local,) = LedgerSpec.of(toy(on="server")).workers(["client1"], "fileserver")
    assert (local.client, local.local) == ("fileserver", True)


def test_an_application_works_beside_the_ledgers_own_workers() -> None:
    spec = LedgerSpec(kinds=("fsync", APPLICATION), application=toy())
    assert [one.kind for one in spec.workers(["client1", "client2"])] == ["fsync", APPLICATION, "fsync"]


@pytest.mark.parametrize(
    "settings",
    [
        {"kinds": (APPLICATION,)},
        {"application": toy()},
        {"kinds": (APPLICATION, "fsync"), "application": toy(on="server")},
        {"kinds": (APPLICATION,), "application": toy(), "quiet_s": 0.1},
    ],
)
def test_contradictory_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        LedgerSpec(**settings)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    spec = ApplicationSpec(files=(str(tmp_path / "gone.py"),), run=("true",), check=("true",))
    with pytest.raises(RequestError, match=r"gone\.py: No such file"):
        spec.content()
    twice = ApplicationSpec(files=(str(TOY), str(TOY)), run=("true",), check=("true",))
    with pytest.raises(RequestError, match="two files of the application have the name"):
        twice.content()


# --- the client library for C

C_SOURCE = """
#include "raidproof_app.h"
int main(int count, char **words)
{
	(void)words;
	if (count > 1) {
		raidproof_begun(4294967295u);
		return raidproof_acknowledged(4294967295u) || raidproof_seed() != 7;
	}
	raidproof_present(1);
	raidproof_wrong(2, "half");
	raidproof_damaged(raidproof_directory()[0] == '/' ? "index" : "nothing");
	return 0;
}
"""


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c")
    (folder / "a.c").write_text(C_SOURCE)
    warnings = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    compiler = shutil.which("gcc")
    assert compiler, "gcc compiles the client library for C; package gcc"
    subprocess.run([compiler, *warnings, f"-I{LIBRARY}", "-o", "a", "a.c"], cwd=folder, check=True)
    return folder / "a"


def test_the_library_for_c_reports(c_program: Path) -> None:
    ours, its = socket.socketpair()
    environment = {"RAIDPROOF_FD": str(its.fileno()), "RAIDPROOF_SEED": "7"}
    subprocess.run([c_program, "run"], env=environment, pass_fds=[its.fileno()], check=True)
    assert ours.recv(100) == b"begun 4294967295\nacknowledged 4294967295\n"
    subprocess.run([c_program, "run"], env={"RAIDPROOF_SEED": "7"}, check=True)
    ours.close()
    its.close()


def test_the_library_for_c_prints(c_program: Path) -> None:
    ran = subprocess.run([c_program], env={"RAIDPROOF_DIRECTORY": "/x"}, capture_output=True, text=True, check=True)
    assert guest.read_check(ran.stdout) == {
        "ids": [1],
        "wrong": [[2, "half"]],
        "repeated": [],
        "damaged": ["index"],
    }


def test_the_libraries_have_the_words_of_the_protocol() -> None:
    for name in LIBRARIES:
        text = (LIBRARY / name).read_text()
        for word in (guest.DESCRIPTOR, guest.DIRECTORY, guest.SEED, guest.BEGUN, guest.ACKNOWLEDGED):
            assert f'"{word}"' in text
        for word in (guest.PRESENT, guest.WRONG, guest.DAMAGED):
            assert f'"{word} ' in text
        assert str(guest.GREATEST) in text


def test_the_library_for_python_works_without_raidproof(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(LIBRARY)}
    program = "import raidproof_app as r; r.begun(1); r.acknowledged(1); print(r.directory(), r.seed())"
    ran = subprocess.run([PYTHON, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == ". 1\n"


def test_a_binary_frame_is_not_taken_for_an_application(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = Receiver(listener, Recorder(tmp_path / "history"))
        frame = FRAME.pack(ISSUE, 0, 1, 0, 0, 1, 0, 5)
        assert receiver._framed(9, frame, 1) == frame
        assert receiver._framed(8, b"worker 2\nbegun 1\n", 1)[:1] == struct.pack("B", ISSUE)
        receiver._recorder.close()


def test_a_worker_of_an_older_record_uses_no_server_directly() -> None:
    assert not WorkerSpec(number=0, client="client1", kind="fsync", path="x", file=0).local


# --- the ledger with an application


def machine(name: str, boot_id: str = "first") -> Machine:
    return cast("Machine", SimpleNamespace(name=name, boot_id=boot_id))


def ledger_of(tmp_path: Path, spec: ApplicationSpec, **receiver: Any) -> Ledger:
    made = Ledger(
        LedgerSpec.of(spec),
        [machine("client1"), machine("client2")],
        cast("AckListener", None),
        "/mnt/raidproof/ledger",
        tmp_path / "history",
        ServerPlace(machine("server"), "/srv/raidproof/ledger"),
    )
    made._boots = dict.fromkeys(made.clients, "first")
    fields: dict[str, Any] = {
        "done": set(),
        "failure": None,
        "refused": None,
        "statuses": {},
        "ended": Counter(),
        "ended_of": Counter(),
    }
    made._receiver = cast("Receiver", SimpleNamespace(**{**fields, **receiver}))
    return made


def test_an_application_on_the_server_uses_its_file_system(tmp_path: Path) -> None:
    made = ledger_of(tmp_path, toy(on="server"))
    assert set(made.clients) == {"client1", "client2", "server"}
    assert json.loads(made.config("server"))["root"] == "/srv/raidproof/ledger"
    assert json.loads(made.config("client1"))["workers"] == []
    # The reader gets its directory from `scan`.
    assert len(json.loads(made.config(None))["workers"]) == 1
    remote = ledger_of(tmp_path, toy())
    assert set(remote.clients) == {"client1", "client2"}
    assert json.loads(remote.config("client1"))["root"] == "/mnt/raidproof/ledger"


def test_the_files_have_a_folder_of_their_own_for_each_content(tmp_path: Path) -> None:
    one, same, other = (toy().config({"a": text}) for text in ("eA==", "eA==", "eQ=="))
    assert one["home"] == same["home"] != other["home"]
    assert one["home"].startswith("/run/raidproof/application-")


def test_a_ledger_is_idle_when_nothing_can_continue(tmp_path: Path) -> None:
    assert not ledger_of(tmp_path, toy()).is_idle()
    assert ledger_of(tmp_path, toy(), done={0}).is_idle()
    rebooted = ledger_of(tmp_path, toy(on="server"))
    rebooted._boots["server"] = "before the power cut"
    assert rebooted.is_idle()


def test_an_application_that_fails_before_the_fault_ends_the_crash_test(tmp_path: Path) -> None:
    made = ledger_of(tmp_path, toy(), statuses={0: 3}, done={0})
    said = SimpleNamespace(wait=lambda _: Completed((), 0, "", "it ended with status 3: no more\n", "client1"))
    made._commands = {"client1": cast("RemoteCommand", said)}
    with pytest.raises(ApplicationError, match="client1: it ended with status 3: no more"):
        made.work(0.0)

    def goes_on(_: object) -> Completed:
        raise DeadlineExceeded("other workers go on")

    made = ledger_of(tmp_path, toy(), statuses={0: 3}, done={0})
    made._commands = {"client1": cast("RemoteCommand", SimpleNamespace(wait=goes_on))}
    with pytest.raises(ApplicationError, match="client1: the application's run command ended with status 3"):
        made.work(0.0)


def test_a_line_that_is_no_report_ends_the_crash_test(tmp_path: Path) -> None:
    made = ledger_of(tmp_path, toy(), refused=ApplicationError("the application sent the line b'x'"), done={0})
    with pytest.raises(ApplicationError, match="sent the line"):
        made.work(0.0)
