"""What all layers of the stack share: refusals, and the comparison of a request with what took effect."""

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

Word = TypeVar("Word")
HOMEHOST = "raidproof"
"""What our arrays are created with (mdadm --homehost): each member's superblock has it before the array's name."""
UUID_PREFIX = "72616964-7072-6f6f-66"
"""``raidproof`` in ASCII: how the UUID of a log or journal that lies on a disk of its own begins, if it is ours."""


class Machine(Protocol):
    """What a layer needs of a machine."""

    @property
    def name(self) -> str:
        """The machine's host name."""

    @property
    def address(self) -> str:
        """Its address on the lab's network."""

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command to its end, whatever its status."""

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        """Run a command that must end with status 0, and return its standard output."""

    def get(self, path: str) -> str:
        """Read a text file."""

    def read_files(self, paths: Iterable[str]) -> dict[str, str]:
        """Read text files, without the last end of line. What cannot be read, or is empty, is left out."""

    def put(self, content: str, path: str) -> None:
        """Write a file."""

    def put_all(self, files: Mapping[str, str]) -> dict[str, str]:
        """Write each of these files, and return why those that were not could not be."""

    def resolve(self, paths: Iterable[str]) -> list[str]:
        """Return paths, all of which lead to something, without symbolic links."""

    def exists(self, path: str) -> bool:
        """Tell whether a path leads to something."""


class Spec(BaseModel):
    """A request: frozen, without unknown fields, refused with a RequestError that says why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _refuse(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            raise RequestError("; ".join(_reason(cls, detail) for detail in error.errors())) from error


class State(BaseModel):
    """What was found: frozen, complete, ready for a record."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Difference(State):
    """One field in which a layer is not what was asked."""

    field: str
    asked: Value
    found: Value

    def __str__(self) -> str:
        return f"{self.field}: asked {self.asked}, found {self.found}"


def differences(asked: Mapping[str, Value], found: Mapping[str, Value]) -> tuple[Difference, ...]:
    """Compare field by field; None in ``asked`` means that it was not asked, so anything will do."""
    return tuple(
        Difference(field=field, asked=value, found=found.get(field))
        for field, value in asked.items()
        if value is not None and value != found.get(field)
    )


def require_effective(layer: str, asked: Mapping[str, Value], found: Mapping[str, Value]) -> None:
    """Make sure that what was asked is what took effect.

    Raises:
        NotEffective: it is not; the message names each field that differs.
    """
    if different := differences(asked, found):
        raise NotEffective(f"{layer} is not as asked: {'; '.join(map(str, different))}")


def one_of(what: str, word: Word, valid: Iterable[Word]) -> Word:
    """Return the word if it is valid.

    Raises:
        RequestError: it is not; the message names the nearest valid one.
    """
    known = list(valid)
    if word not in known:
        raise RequestError(f"{what}: no such thing as {str(word)!r}; {nearest(str(word), map(str, known))}")
    return word


def power_of_two(number: int) -> bool:
    """Whether the number is a power of two."""
    return number > 0 and number & (number - 1) == 0


def found_in(pattern: str, text: str, what: str) -> str:
    """Return the first group of a pattern, which multi-line output of a tool must contain.

    Raises:
        RigError: it does not, so the output is not what it should be, or was cut off.
    """
    if match := re.search(pattern, text, re.MULTILINE):
        return match.group(1)
    raise RigError(f"{what} is missing from: {text.strip()[-500:] or 'nothing'}")


def whole_number(text: str, what: str) -> int:
    """Read a number that a tool or the kernel printed.

    Raises:
        RigError: it is none.
    """
    if not text.isdecimal():
        raise RigError(f"{what} should be a number: {text!r}")
    return int(text)


def try_all(steps: Iterable[Callable[[], object]], failure: str) -> None:
    """Take every step even if another failed.

    Raises:
        ExceptionGroup: what failed.
    """
    failed: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001  raised below, with all others
            failed.append(error)
    if failed:
        raise ExceptionGroup(failure, failed)


def read_files(machine: Machine, paths: Iterable[str]) -> dict[str, str]:
    """Read small files of a machine; files that are not there are left out.

    Raises:
        RigError: none of them could be read.
    """
    wanted = list(paths)
    if content := machine.read_files(wanted):
        return content
    raise RigError(f"{machine.name}: none of these files can be read: {' '.join(wanted)}")


def _reason(model: type[BaseModel], detail: ErrorDetails) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    last = str(detail["loc"][-1]) if detail["loc"] else ""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return f"{model.__name__} has no {last!r}; {nearest(last, model.model_fields)}"
        case "literal_error":
            field = model.model_fields.get(last)
            words = _words(field.annotation) if field else []
            hint = nearest(str(detail["input"]), words) if words else f"valid: {context.get('expected')}"
            return f"{where}: no such thing as {detail['input']!r}; {hint}"
        case "union_tag_invalid":
            tags = str(context["expected_tags"]).replace("'", "").split(", ")
            return f"{where}: no such thing as {context['tag']!r}; {nearest(str(context['tag']), tags)}"
        case _:
            return f"{where}: {detail['msg']}"


def _words(annotation: Any) -> list[str]:
    """All words of a Literal, also inside of an Optional."""
    arguments = get_args(annotation)
    return [word for part in arguments for word in ([str(part)] if isinstance(part, str | int) else _words(part))]


def uuid_of(text: str) -> str:
    """Return a UUID of ours, always the same for a text."""
    digits = sha256(text.encode()).hexdigest()
    return f"{UUID_PREFIX}{digits[:2]}-{digits[2:14]}"
