"""Common parts of all layers of the stack: specifications, and the comparison of requested and effective values."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails

from raidproof.core.command import DEFAULT_DEADLINE_S, Completed
from raidproof.core.errors import NotEffective, RequestError, RigError, nearest

PAGE_SIZE = 4096
"""Bytes of a memory page on every architecture that the images are built for."""

Value = str | int | float | bool | tuple[str, ...] | None
"""A requested or effective value of a setting."""

Word = TypeVar("Word")
HOMEHOST = "raidproof"
"""Homehost of the harness's arrays (mdadm --homehost): the prefix of the array's name in each member's superblock."""
UUID_PREFIX = "72616964-7072-6f6f-66"
"""Prefix of the UUIDs of the harness's external logs and journals: ``raidproof`` in ASCII."""


class Machine(Protocol):
    """The part of a machine's interface that the layers of the stack use."""

    @property
    def name(self) -> str:
        """The machine's host name."""

    @property
    def address(self) -> str:
        """The machine's IP address on the lab's network."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command in the machine, and return its result, whatever its exit status."""

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        """Run a command in the machine that must end with status 0, and return its standard output."""

    def get(self, path: str) -> str:
        """Return the content of a text file of the machine."""

    def read_files(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the content of text files by path, without the final newline; omit unreadable and empty files."""

    def put(self, content: str, path: str) -> None:
        """Write a file in the machine."""

    def put_all(self, files: Mapping[str, str]) -> dict[str, str]:
        """Write files, given as content by path; return the error of each file that could not be written, by path."""

    def resolve(self, paths: Iterable[str]) -> list[str]:
        """Return each path with symbolic links resolved; every path must exist."""

    def exists(self, path: str) -> bool:
        """Return whether a path exists in the machine."""

    def require_raid6(self) -> None:
        """If the kernel runs without RAID6 algorithms, reboot the machine with them; no array may be active."""


class Spec(BaseModel):
    """Base class of requested settings: immutable; an unknown field or an invalid value raises RequestError."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _refuse(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise RequestError("; ".join(_reason(cls, detail) for detail in error.errors())) from error

    @classmethod
    def lacks(cls, field: str) -> str:
        """Return a message that these settings have no field of this name, with the nearest valid name."""
        return f"{cls.__name__} has no field {field!r}; {nearest(field, cls.model_fields)}"


class State(BaseModel):
    """Base class of observed values of the stack, which records contain: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Difference(State):
    """One field whose effective value differs from the requested one."""

    field: str
    asked: Value
    found: Value

    def __str__(self) -> str:
        return f"{self.field}: requested {self.asked}, effective {self.found}"


def differences(asked: Mapping[str, Value], found: Mapping[str, Value]) -> tuple[Difference, ...]:
    """Return the fields whose requested and effective values differ, except fields with the requested value None."""
    return tuple(
        Difference(field=field, asked=value, found=found.get(field))
        for field, value in asked.items()
        if value is not None and value != found.get(field)
    )


def require_effective(layer: str, asked: Mapping[str, Value], found: Mapping[str, Value]) -> None:
    """Verify that the effective values of a layer equal the requested values.

    Raises:
        NotEffective: at least one value differs; the message names each field with both values.
    """
    if different := differences(asked, found):
        raise NotEffective(f"{layer} is not as requested: {'; '.join(map(str, different))}")


def one_of(what: str, word: Word, valid: Iterable[Word]) -> Word:
    """Return ``word`` if it is one of the valid words; ``what`` names the setting in the error message.

    Raises:
        RequestError: the word is invalid; the message names the nearest valid word.
    """
    known = list(valid)
    if word not in known:
        raise RequestError(f"{what}: unknown value {str(word)!r}; {nearest(str(word), map(str, known))}")
    return word


def power_of_two(number: int) -> bool:
    """Return whether a number is a power of two."""
    return number > 0 and number & (number - 1) == 0


def found_in(pattern: str, text: str, what: str) -> str:
    """Return the first group of a regular expression in a tool's output; ``what`` names the value in error messages.

    Raises:
        RigError: no part of the output matches: the output is malformed or truncated.
    """
    if match := re.search(pattern, text, re.MULTILINE):
        return match.group(1)
    raise RigError(f"{what} not found in {text.strip()[-500:] or 'empty output'}")


def whole_number(text: str, what: str) -> int:
    """Return the whole number that a tool or the kernel printed; ``what`` names the value in the error message.

    Raises:
        RigError: the text has characters other than digits, or is empty.
    """
    if not text.isdecimal():
        raise RigError(f"{what}: expected a whole number, found {text!r}")
    return int(text)


def try_all(steps: Iterable[Callable[[], object]], failure: str) -> None:
    """Execute every step, even if earlier steps fail; ``failure`` is the message of the group of errors.

    Raises:
        ExceptionGroup: the errors of all steps that failed.
    """
    failed: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001  raised below, in the group
            failed.append(error)
    if failed:
        raise ExceptionGroup(failure, failed)


def read_files(machine: Machine, paths: Iterable[str]) -> dict[str, str]:
    """Return the content of text files of a machine by path; leave out unreadable and empty files.

    Raises:
        RigError: every file is unreadable or empty.
    """
    wanted = list(paths)
    if content := machine.read_files(wanted):
        return content
    raise RigError(f"{machine.name}: none of these files can be read: {' '.join(wanted)}")


def _reason(model: type[Spec], detail: ErrorDetails) -> str:
    """Return the message for users about one error that pydantic found in a specification."""
    where = ".".join(str(part) for part in detail["loc"])
    last = str(detail["loc"][-1]) if detail["loc"] else ""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return model.lacks(last)
        case "missing":
            return f"`{where}` is missing"
        case "tuple_type" | "list_type":
            field = model.model_fields.get(last)
            examples = (field and field.examples) or [["a", "b"]]
            example = json.dumps(examples[0])
            return f"{where} must be a list of words, for example {example}"
        case "too_short":
            return f"{where} must not be empty"
        case "literal_error":
            field = model.model_fields.get(last)
            words = _words(field.annotation) if field else []
            hint = nearest(str(detail["input"]), words) if words else f"valid: {context.get('expected')}"
            return f"{where}: unknown value {detail['input']!r}; {hint}"
        case "union_tag_invalid":
            tags = str(context["expected_tags"]).replace("'", "").split(", ")
            return f"{where}: unknown value {context['tag']!r}; {nearest(str(context['tag']), tags)}"
        case _:
            return f"{where}: {detail['msg']}"


def _words(annotation: Any) -> list[str]:
    """Return all values of a Literal, or of a Literal inside an Optional, as text."""
    arguments = get_args(annotation)
    return [word for part in arguments for word in ([str(part)] if isinstance(part, str | int) else _words(part))]


def uuid_of(text: str) -> str:
    """Return the UUID that begins with ``UUID_PREFIX`` and continues with digits of the text's SHA-256 hash."""
    digits = sha256(text.encode()).hexdigest()
    return f"{UUID_PREFIX}{digits[:2]}-{digits[2:14]}"
