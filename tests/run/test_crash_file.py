"""Crash states as files: what is exported, what is read again, and what a machine makes of it."""

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import SoftwareSpec
from raidproof.crash.checker_worker import RecordingCursor
from raidproof.crash.states import BLOCK, CrashState, Patch, Survivor
from raidproof.crash.stats import ExplorationStats
from raidproof.disk.writelog import Kind, WriteLog
from raidproof.record.exploration import Observation
from raidproof.record.outcome import Outcome
from raidproof.run import crash_file as module
from raidproof.run.crash_file import CONTENT, TERMS, CrashFile, export, opened, recover
from raidproof.run.source import Source, source_of
from tests.crash.made_up import ROUNDS, FakeChecker
from tests.crash.stored import store_run

LAST = CrashState(3 * ROUNDS)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A crash test whose disks executed each flush."""
    return source_of(store_run(tmp_path / "run", lies_from=ROUNDS))


def content_of(path: Path) -> Patch:
    """Return the blocks of the disks in the write log of a crash file."""
    blocks: dict[tuple[int, int], bytes] = {}
    for record in WriteLog(path):
        if record.kind is Kind.WRITE:
            for at in range(0, record.length, BLOCK):
                blocks[record.member, (record.offset + at) // BLOCK] = bytes(record.data[at : at + BLOCK])
    return Patch(blocks)


def seen_by_a_machine(found: CrashFile) -> Observation:
    return FakeChecker().check(content_of(found.content))


@pytest.mark.parametrize("survivors", [(), (13,)])
def test_the_content_is_that_of_the_state(source: Source, tmp_path: Path, survivors: tuple[int, ...]) -> None:
    state = CrashState(14, tuple(map(Survivor, survivors)))
    cursor = RecordingCursor(source.recording)
    cursor.go(state.cut)
    job = cursor.job(state)
    with opened(export(source, state, tmp_path / "a.crash.zip")) as found:
        whole = job.base.after(None).then(job.patch)
        assert list(content_of(found.content).runs()) == list(whole.runs())
        assert found.terms.rows == job.rows
        assert found.terms.state == state.name
        assert not found.terms.torn


@pytest.mark.parametrize("older", [False, True])
def test_the_verdict_is_that_of_the_exploration(source: Source, tmp_path: Path, older: bool) -> None:
    with opened(export(source, LAST, tmp_path / "a.crash.zip")) as found:
        seen = seen_by_a_machine(found)
        if older:
            seen = seen.model_copy(update={"found": {"f@0": {"blocks": [0, 0, 0, 0], "names": ["f"]}}})
        expected = ExplorationStats(source.recording, source.oracle).judge(LAST, seen)
        judged = found.judge(seen)
    assert (judged.outcome, judged.reason, judged.blame) == (expected.outcome, expected.reason, expected.blame)
    assert judged.outcome is (Outcome.FAIL if older else Outcome.PASS)


def test_a_torn_request_keeps_its_terms(source: Source, tmp_path: Path) -> None:
    state = CrashState(14, (Survivor(13, ((0, 512),)),))
    with opened(export(source, state, tmp_path / "a.crash.zip")) as found:
        assert found.terms.torn


def test_all_files_of_the_verdict_are_kept(source: Source, tmp_path: Path) -> None:
    for name in ("replies", "application"):
        (source.store.path / name).write_text("{}")
        setattr(source.cycle.files, name, name)
    with zipfile.ZipFile(export(source, LAST, tmp_path / "a.crash.zip")) as archive:
        assert {source.cycle.files.history, "replies", "application"} < {*archive.namelist()}


def test_a_state_of_lying_disks_is_refused(tmp_path: Path) -> None:
    lying = source_of(store_run(tmp_path / "run"))
    with pytest.raises(RequestError, match="acknowledged flushes that it did not execute"):
        export(lying, LAST, tmp_path / "a.crash.zip")


def test_a_file_that_exists_is_not_replaced(source: Source, tmp_path: Path) -> None:
    path = tmp_path / "a.crash.zip"
    path.write_text("mine")
    with pytest.raises(RequestError, match="exists"):
        export(source, LAST, path)
    assert path.read_text() == "mine"


def test_a_folder_that_does_not_exist_is_named(source: Source, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be written: No such file"):
        export(source, LAST, tmp_path / "missing" / "a.crash.zip")


def test_nothing_half_written_is_left(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "write", full)
    with pytest.raises(RequestError, match="No space left"):
        export(source, LAST, tmp_path / "a.crash.zip")
    assert {one.name for one in tmp_path.iterdir()} == {"run"}


def changed(path: Path, **terms: object) -> Path:
    """Return a crash file with other terms."""
    other = path.with_name("other.crash.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, json.dumps(json.loads(text) | terms) if name == TERMS else text)
    return other


@pytest.mark.parametrize("what", ["missing", "no archive", "an archive of others", "wrong terms", "later"])
def test_what_is_no_crash_file_is_refused(source: Source, tmp_path: Path, what: str) -> None:
    path = tmp_path / "b.crash.zip"
    if what == "no archive":
        path.write_text("text")
    elif what == "an archive of others":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme", "hello")
    elif what == "wrong terms":
        path = changed(export(source, LAST, tmp_path / "a.crash.zip"), torn="maybe")
    elif what == "later":
        path = changed(export(source, LAST, tmp_path / "a.crash.zip"), schema_version=99)
    refused = pytest.raises(RequestError, match=rf"{path.name}.*(does not exist|lacks|is no crash state|version 99)")
    with refused, opened(path):
        pass


def test_no_member_of_the_archive_is_written_outside(source: Source, tmp_path: Path) -> None:
    path = export(source, LAST, tmp_path / "a.crash.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../outside", "bad")
        archive.writestr("/tmp/raidproof-outside", "bad")
    with opened(path) as found:
        assert not (found.store.path.parent / "outside").exists()
    assert not Path("/tmp/raidproof-outside").exists()


def test_another_kernel_recovers_the_state(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    booted: list[Any] = []

    @contextmanager
    def lab(topology: Any, state: Path, *, logs: Path, keep: bool) -> Iterator[Any]:
        booted.append(topology)
        assert (state.name, logs, keep) == (CONTENT, tmp_path, False)
        yield SimpleNamespace(server=SimpleNamespace(succeed=lambda _: "7.2.7\n"))

    monkeypatch.setattr(module, "PreloadedLab", lab)
    with opened(export(source, LAST, tmp_path / "a.crash.zip")) as found:
        monkeypatch.setattr(module, "check_after_boot", lambda *_: seen_by_a_machine(found))
        record = recover(found, SoftwareSpec(kernel="debian/sid"), tmp_path)
    (server,) = booted[0].machines
    assert cast("SoftwareSpec", server.software).kernel == "debian/sid"
    assert (record.outcome, record.kernel, record.state) == (Outcome.PASS, "7.2.7", LAST.name)
