import json
from pathlib import Path

import pytest

from raidproof.core.errors import RequestError
from raidproof.record.lesson import LESSON_SCHEMA, LessonRecord
from raidproof.teach.class_results import gather
from tests.teach.measured import new_record


def put(path: Path, record: LessonRecord) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.model_dump_json())


def test_records_are_gathered_from_all_folders_each_once(tmp_path: Path) -> None:
    ann, ben = new_record(learner="ann", run="r1"), new_record(learner="ben", run="r2")
    put(tmp_path / "ann.json", ann)
    put(tmp_path / "20261122-120649-teach-left" / "lesson.json", ann)
    put(tmp_path / "deep" / "er" / "ben.json", ben)
    (tmp_path / "report.json").write_text('{"run": "r1", "cycles": []}')
    (tmp_path / "list.json").write_text("[1]")
    found = gather(tmp_path)
    assert [one.learner for one in found.lessons] == ["ann", "ben"]
    assert found.unread == []


def test_damaged_files_are_listed_and_the_others_count(tmp_path: Path) -> None:
    put(tmp_path / "ann.json", new_record())
    document = json.loads(new_record().model_dump_json())
    (tmp_path / "cut.json").write_text('{"lesson": ')
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    (tmp_path / "newer.json").write_text(json.dumps(document | {"schema_version": LESSON_SCHEMA + 1}))
    (tmp_path / "odd.json").write_text(json.dumps(document | {"seed": "many"}))
    (tmp_path / "nested.json").write_text("[" * 100_000)
    found = gather(tmp_path)
    assert len(found.lessons) == 1
    assert [one.path for one in found.unread] == ["binary.json", "cut.json", "nested.json", "newer.json", "odd.json"]
    assert found.unread[3].reason == f"schema version {LESSON_SCHEMA + 1}, not {LESSON_SCHEMA}"
    assert found.unread[4].reason.startswith("seed: ")


def test_a_folder_without_records(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="has no record of a lesson"):
        gather(tmp_path)
    with pytest.raises(RequestError, match="is no folder"):
        gather(tmp_path / "none")
