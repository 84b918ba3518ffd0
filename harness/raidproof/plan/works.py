"""The workloads of a plan: parsing and naming of the tables ``[[workload]]``."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from raidproof.core.errors import RequestError
from raidproof.core.layer import one_of
from raidproof.plan.axes import WORKLOAD, Settings
from raidproof.plan.table import reasons
from raidproof.workload.workload import CLIENTS, SERVER, WORKLOADS, AnyWorkload, WorkloadSpec

_adapter: TypeAdapter[WorkloadSpec] = TypeAdapter(AnyWorkload)


ARRAY = "array"
"""Where a workload may run: on the clients' mounts, in the server's own directory, on the bare array. Or on the bare
disk of that serial."""
_OF_THE_PLAN = ("name", "on")


def read_work(table: Mapping[str, Any]) -> WorkloadSpec:
    """Read one table; its ``name`` and ``on`` are the plan's, all else the tool's.

    Raises:
        RequestError: it is no workload.
    """
    try:
        return _adapter.validate_python({key: value for key, value in table.items() if key not in _OF_THE_PLAN})
    except ValidationError as error:
        raise RequestError(reasons(error)) from error


def where(table: Mapping[str, Any], serials: Collection[str]) -> str:
    """Return where a workload runs: the value of ``on``, or the default of its tool.

    Raises:
        RequestError: the place is unknown, or unfit for the tool.
    """
    tool = str(table.get("tool"))
    kind = WORKLOADS[tool]
    default = CLIENTS if kind.on_files else ARRAY
    on = one_of("on", str(table.get("on", default)), [CLIENTS, SERVER, ARRAY, *serials])
    if on in {CLIENTS, SERVER} and not kind.on_files:
        raise RequestError(
            f"{tool} reads a device: on = {on!r} has none", remedy=f"say on = {ARRAY!r}, or a disk's name"
        )
    if on not in {CLIENTS, SERVER} and not kind.on_devices:
        raise RequestError(
            f"{tool} works on files: on = {on!r} has none", remedy=f"say on = {CLIENTS!r} or {SERVER!r}"
        )
    return on


def with_settings(table: Mapping[str, Any], settings: Settings) -> WorkloadSpec:
    """Read one table with the axes' settings of the workload.

    Raises:
        RequestError: it is no workload then.
    """
    return read_work(
        {**table, **{name.removeprefix(WORKLOAD): of for name, of in settings.items() if name.startswith(WORKLOAD)}}
    )


def names(tables: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the name of each workload: its name or tool, numbered if several are equal.

    Raises:
        RequestError: two have the same name.
    """
    for table in tables:
        if not re.fullmatch(r"[\w.-]+", name := str(table.get("name", "workload"))):
            raise RequestError(f"workload name {name!r}: letters, digits, dots, - and _ only")
    asked = [str(table.get("name", table.get("tool", "workload"))) for table in tables]
    if twice := [
        name for name, times in Counter(table["name"] for table in tables if "name" in table).items() if times > 1
    ]:
        raise RequestError(f"two workloads with the name {twice[0]!r}")
    return tuple(
        f"{name}-{asked[: place + 1].count(name)}" if asked.count(name) > 1 else name
        for place, name in enumerate(asked)
    )
