"""The plan: what a user writes down of the hardware, of the configurations, and of the work."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from raidproof.core.errors import RequestError
from raidproof.plan.axes import read_value
from raidproof.plan.figure import Figure
from raidproof.plan.hardware import Hardware
from raidproof.plan.run import RunSpec
from raidproof.plan.table import Table, reasons, refusal
from raidproof.plan.values import Value
from raidproof.plan.works import names, read_work

MOST_COMBINATIONS = 10_000
"""Combinations of values beyond which a plan is taken for a mistake."""


def _flat(table: Any) -> dict[str, Any]:
    """Read ``workload = { seconds = 5 }`` and ``workload.seconds = 5`` alike."""
    if not isinstance(table, Mapping):
        raise ValueError(f"not a table of axes: {table!r}")  # noqa: TRY004  what pydantic takes for a refusal
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= {f"{name}.{key}": of for key, of in value.items()} if isinstance(value, Mapping) else {name: value}
    return flat


def _read_axes(table: Any) -> dict[str, tuple[Value, ...]]:
    axes: dict[str, tuple[Value, ...]] = {}
    for name, values in _flat(table).items():
        if not isinstance(values, list | tuple) or not values:
            raise ValueError(f"{name}: write the values to try as a list, or a single one under [fixed]")
        read = [refusal(read_value, name, value) for value in values]
        if len(set(map(repr, read))) < len(read):
            raise ValueError(f"{name}: a value is there twice")
        axes[name] = tuple(read)
    return axes


def _read_fixed(table: Any) -> dict[str, Value]:
    return {name: refusal(read_value, name, value) for name, value in _flat(table).items()}


def _read_works(tables: Any) -> tuple[dict[str, Any], ...]:
    works = [tables] if isinstance(tables, Mapping) else tables
    if not isinstance(works, list | tuple) or not works or not all(isinstance(work, Mapping) for work in works):
        raise ValueError("write one or more tables [[workload]]")
    for place, work in enumerate(works, 1):
        try:
            read_work(work)
        except RequestError as error:
            raise ValueError(f"the {place}. of {len(works)}: {error}" if len(works) > 1 else str(error)) from error
    refusal(names, works)
    return tuple(dict(work) for work in works)


class Plan(Table):
    """What is asked: every combination of the axes' values, on this hardware, under each workload."""

    name: str = Field(default="plan", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    """The file's name, if nothing else is said."""
    title: str = ""
    hardware: Hardware = Hardware()
    axes: Annotated[dict[str, tuple[Value, ...]], BeforeValidator(_read_axes)] = Field(default={})
    fixed: Annotated[dict[str, Value], BeforeValidator(_read_fixed)] = Field(default={})
    """Values that all cells share, under the names of axes."""
    workload: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_read_works)]
    run: RunSpec = RunSpec()
    figure: tuple[Figure, ...] = ()
    """What others have measured of the same cells."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if both := sorted(set(self.axes) & set(self.fixed)):
            raise ValueError(f"{', '.join(both)}: under [axes] and under [fixed]")
        if self.combinations > MOST_COMBINATIONS:
            raise ValueError(f"{self.combinations} combinations, more than {MOST_COMBINATIONS}")
        return self

    @property
    def combinations(self) -> int:
        """How many combinations of values there are, possible or not."""
        number = len(self.workload)
        for values in self.axes.values():
            number *= len(values)
        return number


def read_plan(document: Mapping[str, Any], *, source: str, name: str = "plan") -> Plan:
    """Read a plan.

    Raises:
        RequestError: it cannot be; the message names the source, the key, and the nearest valid one.
    """
    try:
        return Plan.model_validate({"name": name, **document})
    except ValidationError as error:
        raise RequestError(f"{source}: {reasons(error)}") from error


def load_plan(path: Path, changes: Mapping[str, Any] | None = None) -> Plan:
    """Read a plan from a TOML file; ``changes`` go over what its table ``[run]`` says.

    Raises:
        RequestError: there is no such file, or what it asks cannot be.
    """
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise RequestError(f"{path} is not TOML: {error}") from error
    if changes and isinstance(run := document.get("run", {}), dict):
        document["run"] = {**run, **changes}
    return read_plan(document, source=str(path), name=re.sub(r"[^A-Za-z0-9_]+", "-", path.stem).strip("-_") or "plan")
