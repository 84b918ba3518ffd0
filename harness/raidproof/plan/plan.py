"""Plan files: hardware, configurations, workloads, published figures and options; reading a file validates it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.toml import read_toml
from raidproof.core.topology import Platform, SoftwareSpec
from raidproof.fault.schedule import ScheduledFault
from raidproof.plan.axes import axis_of, read_value
from raidproof.plan.faults import read_faults
from raidproof.plan.hardware import Hardware
from raidproof.plan.members import Members
from raidproof.plan.table import Seconds, Table, Value, reasons, refusal
from raidproof.plan.works import names, read_work
from raidproof.workload.ledger import KINDS

_TOKEN = re.compile(r"\s*(?:([()])|([^\s()]+))")
MOST_COMBINATIONS = 10_000
"""Greatest number of combinations of values in a plan; more are refused as a mistake."""


class Figure(Table):
    """One published measurement, which reports show beside the measured value of a cell."""

    name: str
    cell: str
    """The name of the cell that reproduces the published measurement."""
    published: float = Field(gt=0)
    unit: str
    """The harness's name of the unit: ``read_mb_s`` (10^6 bytes per second), ``write_iops``, ``transactions_s``."""
    source: str = ""
    places_limit: bool = False
    """Whether this figure determined a parameter of the plan's hardware, so that its agreement proves nothing."""
    note: str = ""
    """Remark for reports."""


class Selection:
    """An expression that selects cells by name: words with ``and``, ``or``, ``not`` and parentheses.

    A word with ``=`` matches a whole setting: ``level=1`` does not match ``level=10``. Any other word matches a part
    of the name. Adjacent words must all match, as with ``and``.

    Raises:
        RequestError: the expression is invalid.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._tokens = [parenthesis or word for parenthesis, word in _TOKEN.findall(expression)]
        self.matches("")

    def matches(self, name: str) -> bool:
        """Return whether the expression matches a cell's name."""
        tokens = [*self._tokens, ""]
        found = self._either(tokens, name)
        if tokens != [""]:
            raise self._wrong(f"unexpected {tokens[0]}")
        return found

    def _either(self, tokens: list[str], name: str) -> bool:
        found = self._both(tokens, name)
        while tokens[0] == "or":
            tokens.pop(0)
            # Not `found or ...`: the operand must be parsed in any case.
            found = self._both(tokens, name) or found
        return found

    def _both(self, tokens: list[str], name: str) -> bool:
        found = self._one(tokens, name)
        while tokens[0] not in {"or", ")", ""}:
            if tokens[0] == "and":
                tokens.pop(0)
            found = self._one(tokens, name) and found
        return found

    def _one(self, tokens: list[str], name: str) -> bool:
        match tokens.pop(0):
            case "not":
                return not self._one(tokens, name)
            case "(":
                found = self._either(tokens, name)
                if tokens.pop(0) != ")":
                    raise self._wrong("a parenthesis is not closed")
                return found
            case ("and" | "or" | ")" | "") as token:
                raise self._wrong(f"a word is missing before {token or 'the end of the expression'}")
            case word:
                return word in name.split() if "=" in word else word.lower() in name.lower()

    def _wrong(self, why: str) -> RequestError:
        return RequestError(f"-k {self.expression!r}: {why}", remedy="write for example 'level=5 and not wsize=8KiB'")


class RunSpec(Table):
    """Options of the run for all cells."""

    repeats: int = Field(default=3, ge=1, le=1000)
    """Repetitions of each cell, interleaved so that drift affects all cells equally."""
    seed: int = 1
    """Seed of the order of repetitions and of all other random choices."""
    cut: Literal["power", "explore"] | None = None
    """Whether to cut the server's power once per configuration while clients write. ``explore``: also explore the
    possible crash states of this crash test."""
    states: int = Field(default=60, ge=0, le=1_000_000)
    """Greatest number of crash states at the replies to solo operations that are checked after each power cut, with
    ``cut = "power"``; 0: none."""
    explore_states: int = Field(default=200, ge=1, le=1_000_000)
    """Number of crash states to explore for each configuration."""
    explore_members: tuple[Members, ...] = ()
    """Members that the array has in the explored crash states, for the table of the write hole: ``whole``: all.
    ``lost``: one is lost with the power cut. ``missing``: one is missing while the clients work."""
    workers: tuple[str, ...] = ()
    """Kinds of worker on each client during power cuts and controls: ``["fsync", "fsync"]``. Empty: all kinds."""
    min_seconds: Seconds | None = Field(default=None, gt=0)
    """Least duration of the timed part in seconds; the value of a shorter repetition is flagged."""
    max_seconds: Seconds | None = Field(default=None, gt=0)
    """Greatest duration in seconds of ramp-up and timed part together; a longer repetition is ended and fails."""
    allow_cache: bool = False
    """Whether to rank also cells whose working set fits into a cache, whose values measure the cache."""
    reference: bool = True
    """Whether to measure the speed of the host before each repetition, for about half a second. Without it, a
    comparison of stored runs cannot tell a change from drift of the host, and is INCONCLUSIVE."""
    assume_clean: bool = True
    """Whether to skip the initial resync of the array, as blank members are consistent without a resync."""
    only: str = ""
    """Expression that selects cells, as with ``-k``: ``level=5 or members=3``."""
    provider: str = "uml"
    """The provider of the machines."""
    kernel: str | None = None
    """Kernel of all machines, for example ``debian/sid``. `SoftwareSpec` describes the fields of software."""
    modules: str | None = None
    image: str | None = None
    packages: tuple[str, ...] = ()
    server: SoftwareSpec = SoftwareSpec()
    """Software of the server; its fields override ``kernel``, ``modules``, ``image`` and ``packages`` above."""
    clients: SoftwareSpec = SoftwareSpec()
    """Software of the clients; its fields override ``kernel``, ``modules``, ``image`` and ``packages`` above."""

    @property
    def platform(self) -> Platform:
        """The provider of the machines, and their software."""
        both = SoftwareSpec(kernel=self.kernel, modules=self.modules, image=self.image, packages=self.packages)
        server, clients = (one.over(both) for one in (self.server, self.clients))
        return Platform(provider=self.provider, server=server, clients=clients)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.min_seconds and self.max_seconds and self.min_seconds > self.max_seconds:
            raise ValueError(f"min_seconds, {self.min_seconds:g} s, is more than max_seconds, {self.max_seconds:g} s")
        if self.explore_members and self.cut != "explore":
            raise ValueError('explore_members needs cut = "explore"')
        for kind in self.workers:
            if kind not in KINDS:
                raise ValueError(f"workers: unknown kind of worker {kind!r}; valid: {', '.join(dict.fromkeys(KINDS))}")
        return self


def _read_names(names: Any) -> Any:
    for name in names if isinstance(names, list | tuple) else ():
        refusal(axis_of, str(name))
    return names


AxisNames = Annotated[tuple[str, ...], BeforeValidator(_read_names)]
"""A field with names of axes."""


class AdviseSpec(Table):
    """Options of `raidproof advise`."""

    vary: AxisNames = ()
    """Names of the axes that may be varied; default: those with several values, or the usual ones without any."""
    keep: AxisNames = ()
    """Names of axes that keep their first value."""


def _flat(table: Any) -> dict[str, Any]:
    """Return a table with nested tables flattened: ``workload = { seconds = 5 }`` to ``workload.seconds = 5``."""
    if not isinstance(table, Mapping):
        raise ValueError(f"not a table of axes: {table!r}")  # noqa: TRY004  pydantic reports only a ValueError
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= {f"{name}.{key}": of for key, of in value.items()} if isinstance(value, Mapping) else {name: value}
    return flat


def _read_axes(table: Any) -> dict[str, tuple[Value, ...]]:
    axes: dict[str, tuple[Value, ...]] = {}
    for name, values in _flat(table).items():
        if not isinstance(values, list | tuple) or not values:
            raise ValueError(f"{name}: write the values as a list, or a single value under [fixed]")
        read = [refusal(read_value, name, value) for value in values]
        if len(set(map(repr, read))) < len(read):
            raise ValueError(f"{name}: the list contains a value twice")
        axes[name] = tuple(read)
    return axes


def _read_fixed(table: Any) -> dict[str, Value]:
    return {name: refusal(read_value, name, value) for name, value in _flat(table).items()}


def _read_faults(tables: Any) -> tuple[dict[str, Any], ...]:
    faults = [tables] if isinstance(tables, Mapping) else tables
    if not isinstance(faults, list | tuple) or not all(isinstance(one, Mapping) for one in faults):
        raise ValueError("write tables [[fault]]")
    refusal(read_faults, faults)
    return tuple(dict(one) for one in faults)


def _read_works(tables: Any) -> tuple[dict[str, Any], ...]:
    works = [tables] if isinstance(tables, Mapping) else tables
    if not isinstance(works, list | tuple) or not works or not all(isinstance(work, Mapping) for work in works):
        raise ValueError("write one or more tables [[workload]]")
    for place, work in enumerate(works, 1):
        try:
            read_work(work)
        except RequestError as error:
            raise ValueError(f"table {place} of {len(works)}: {error}" if len(works) > 1 else str(error)) from error
    refusal(names, works)
    return tuple(dict(work) for work in works)


class Plan(Table):
    """A plan: every combination of the axes' values, on this hardware, under each workload."""

    name: str = Field(default="plan", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    """Name of the plan; default: the file's name."""
    title: str = ""
    hardware: Hardware = Hardware()
    axes: Annotated[dict[str, tuple[Value, ...]], BeforeValidator(_read_axes)] = Field(default={})
    fixed: Annotated[dict[str, Value], BeforeValidator(_read_fixed)] = Field(default={})
    """Values that all cells share, under the names of axes."""
    workload: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_read_works)]
    fault: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_read_faults)] = ()
    """The faults of each crash test in their order; empty: a power cut (``run.cut``)."""
    run: RunSpec = RunSpec()
    advise: AdviseSpec = AdviseSpec()
    figure: tuple[Figure, ...] = ()
    """Published figures to compare with the measured values."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.fault and self.run.cut is None:
            raise ValueError('fault: the plan has no crash tests; write cut = "power" under [run]')
        if self.fault and self.run.explore_members:
            raise ValueError("fault: explore_members is not possible with a schedule of faults; remove one of the two")
        if both := sorted(set(self.axes) & set(self.fixed)):
            raise ValueError(f"{', '.join(both)}: both under [axes] and under [fixed]; remove one of the two entries")
        if self.combinations > MOST_COMBINATIONS:
            raise ValueError(
                f"{self.combinations:,} combinations of values; at most {MOST_COMBINATIONS:,} are allowed"
            )
        return self

    @property
    def faults(self) -> tuple[ScheduledFault, ...]:
        """The faults of each crash test in their order, repetitions included; empty: a power cut."""
        return read_faults(self.fault)

    @property
    def combinations(self) -> int:
        """Number of combinations of values, including impossible ones."""
        number = len(self.workload)
        for values in self.axes.values():
            number *= len(values)
        return number


def read_plan(document: Mapping[str, Any], *, source: str, name: str = "plan") -> Plan:
    """Return the plan in a TOML document.

    Raises:
        RequestError: the plan is invalid; the message names the source, the key, and the nearest valid key or value.
    """
    try:
        return Plan.model_validate({"name": name, **document})
    except ValidationError as error:
        raise RequestError(f"{source}: {reasons(error)}") from error


def load_plan(path: Path, changes: Mapping[str, Any] | None = None, defaults: Mapping[str, Any] | None = None) -> Plan:
    """Read a plan from a TOML file; ``changes`` override values of its table ``[run]``, ``defaults`` add missing ones.

    Raises:
        RequestError: the file cannot be read, the plan is invalid, or a file that a workload needs cannot be read.
    """
    document = read_toml(path)
    if (changes or defaults) and isinstance(run := document.get("run", {}), dict):
        document["run"] = {**(defaults or {}), **run, **(changes or {})}
    plan = read_plan(document, source=str(path), name=default_name(path))
    for place, work in enumerate(plan.workload, 1):
        try:
            read_work(work).refuse_files()
        except RequestError as error:
            number = f"[{place}]" if len(plan.workload) > 1 else ""
            raise RequestError(f"{path}: workload{number}.files: {error}") from error
    return plan


def default_name(path: Path) -> str:
    """Return the name of a plan whose file has this path, if the file does not name the plan."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", path.stem).strip("-_") or "plan"
