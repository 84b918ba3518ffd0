"""The reading of a stored record: first the version of its schema, then its content."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from raidproof.core.errors import RequestError

Record = TypeVar("Record", bound=BaseModel)


class SchemaOnly(BaseModel):
    """The field of a record that every version of its schema has."""

    schema_version: int


def read_record(path: Path, model: type[Record], schema: int, what: str) -> Record:
    """Return the record in a file. ``schema``: the version that is read; ``what``: the subject of the record.

    Raises:
        OSError: the file cannot be read.
        RequestError: the file is no such record, or has another schema version.
    """
    data = path.read_bytes()
    try:
        # The version first: a record of another version may have other fields.
        found = SchemaOnly.model_validate_json(data).schema_version
        if found != schema:
            raise RequestError(f"{path}: schema version {found}; this version of raidproof reads {schema}")
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in (".".join(map(str, first["loc"])),) if part)
        raise RequestError(f"{path}: not the record of {what}: {where}{first['msg']}") from error
