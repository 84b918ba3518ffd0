"""The results of a class: the records of lessons in a folder."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raidproof.core.errors import RequestError
from raidproof.plan.table import reasons
from raidproof.record.lesson import LESSON_SCHEMA, ClassRecord, LessonRecord, UnreadRecord

MOST_BYTES = 64 << 20
"""Greatest size of a record in bytes."""


def gather(folder: Path) -> ClassRecord:
    """Return the records of lessons in a folder and the folders below: results of ``teach --json``, ``lesson.json``.

    A record that several files contain counts once. Other JSON files are ignored; a damaged file is listed.

    Raises:
        RequestError: the folder cannot be read, or has no record of a lesson.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is no folder", remedy="name the folder with the results of `teach --json`")
    found, unread = dict[tuple[str, ...], LessonRecord](), list[UnreadRecord]()
    for path in sorted(folder.rglob("*.json")):
        name = str(path.relative_to(folder))
        try:
            document = _document(path)
            if not _is_lesson(document):
                continue
            record = LessonRecord.model_validate(document)
        except ValidationError as error:
            unread.append(UnreadRecord(path=name, reason=reasons(error).split("; ", 1)[0][:200]))
        except (OSError, ValueError, RecursionError) as error:
            unread.append(UnreadRecord(path=name, reason=str(error)[:200]))
        else:
            found.setdefault((record.run, record.learner, record.started.isoformat(), record.digest), record)
    if not found:
        raise RequestError(
            f"{folder} has no record of a lesson" + (f" ({len(unread)} files are damaged)" if unread else ""),
            remedy="gather the output of `raidproof teach LESSON --json` in this folder",
        )
    lessons = sorted(found.values(), key=lambda one: (one.lesson, one.digest, one.learner, one.run))
    return ClassRecord(folder=str(folder), lessons=lessons, unread=unread)


def _document(path: Path) -> Any:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError("larger than 64 MiB")
    return json.loads(data)


def _is_lesson(document: Any) -> bool:
    """Return whether a document is the record of a lesson, of any version.

    Raises:
        ValueError: the record has another schema version.
    """
    if not isinstance(document, dict) or not {"lesson", "digest", "steps"} <= document.keys():
        return False
    if document.get("schema_version") != LESSON_SCHEMA:
        raise ValueError(f"schema version {document.get('schema_version')!r}, not {LESSON_SCHEMA}")
    return True
