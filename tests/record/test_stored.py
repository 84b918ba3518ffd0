from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from raidproof.core.errors import RequestError
from raidproof.record.stored import read_record


class Sample(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_version: int
    name: str


def test_a_record_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"schema_version": 3, "name": "one"}')
    assert read_record(path, Sample, 3, "a sample").name == "one"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema_version": 4, "other": 1}', "schema version 4; this version of raidproof reads 3"),
        ("{", "not the record of a sample: Invalid JSON"),
        ("{}", "not the record of a sample: schema_version: Field required"),
        ('{"schema_version": 3}', "not the record of a sample: name: Field required"),
    ],
)
def test_what_is_no_such_record_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=f"{path}: {says}"):
        read_record(path, Sample, 3, "a sample")


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "record.json", Sample, 3, "a sample")
