"""A fact about an existing server: a value with its source, or a default with its reason."""

from typing import Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

Value = TypeVar("Value")


class Fact(BaseModel, Generic[Value]):
    """One value: read, with its source in ``source``; or a default, with its reason in ``why_default``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: Value
    source: str | None = None
    """The file with the number of the line, or the command."""
    why_default: str | None = None
    """The reason for a value that was not read."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.source is None) == (self.why_default is None):
            raise ValueError("a fact has either a source or a reason for its default")
        return self

    @property
    def was_read(self) -> bool:
        """Whether the value was read, and is no default."""
        return self.source is not None

    def __str__(self) -> str:
        return f"from {self.source}" if self.source else f"default: {self.why_default}"


class LeftOut(BaseModel):
    """A property of the existing server that the plan does not re-create."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    source: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} ({self.source}): {self.why}"


class StandIn(LeftOut):
    """A property of the existing server that the lab has in another form; ``why``: that form."""


def read(value: Value, source: str) -> Fact[Value]:
    """Return a fact that was read from a source."""
    return Fact(value=value, source=source)


def default(value: Value, why: str) -> Fact[Value]:
    """Return a default with the reason why no value was read."""
    return Fact(value=value, why_default=why)
