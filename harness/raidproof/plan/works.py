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
"""Value of ``on`` for a workload that runs on the server, directly on the array's block device. Other values are
``clients``, ``server`` (the exported directory, locally on the server) and the serial number of a disk."""
_OF_THE_PLAN = ("name", "on")
"""Keys of a table ``[[workload]]`` that are no settings of the workload's tool (key ``tool``)."""


def read_work(table: Mapping[str, Any]) -> WorkloadSpec:
    """Return the workload of one table ``[[workload]]``: its tool (key ``tool``) with the tool's settings.

    Raises:
        RequestError: the tool is unknown, or it has no such setting, or a value is invalid.
    """
    try:
        return _adapter.validate_python({key: value for key, value in table.items() if key not in _OF_THE_PLAN})
    except ValidationError as error:
        raise RequestError(reasons(error)) from error


def where(table: Mapping[str, Any], serials: Collection[str]) -> str:
    """Return where a workload runs: the value of key ``on``, or the default of the workload's tool (key ``tool``).

    Raises:
        RequestError: the value of ``on`` is unknown, or the tool cannot run on it.
    """
    tool = str(table.get("tool"))
    kind = WORKLOADS[tool]
    default = CLIENTS if kind.on_files else ARRAY
    on = one_of("on", str(table.get("on", default)), [CLIENTS, SERVER, ARRAY, *serials])
    if on in {CLIENTS, SERVER} and not kind.on_files:
        raise RequestError(
            f"{tool} reads a block device, but on = {on!r} is a directory",
            remedy=f"write on = {ARRAY!r}, or the name of a disk",
        )
    if on not in {CLIENTS, SERVER} and not kind.on_devices:
        raise RequestError(
            f"{tool} works on files, but on = {on!r} is a block device", remedy=f"write on = {CLIENTS!r} or {SERVER!r}"
        )
    return on


def with_settings(table: Mapping[str, Any], settings: Settings) -> WorkloadSpec:
    """Return the workload of one table with the cell's settings of axes ``workload.*``.

    Raises:
        RequestError: the workload's tool lacks a setting of these axes, or a value is invalid.
    """
    return read_work(
        {**table, **{name.removeprefix(WORKLOAD): of for name, of in settings.items() if name.startswith(WORKLOAD)}}
    )


def names(tables: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the name of each workload: its key ``name``, else its key ``tool``; equal tools are numbered.

    Raises:
        RequestError: a name has an invalid character, or two workloads have the same name.
    """
    for table in tables:
        if not re.fullmatch(r"[\w.-]+", name := str(table.get("name", "workload"))):
            raise RequestError(f"workload name {name!r}: only letters, digits, dots, - and _ are allowed")
    asked = [str(table.get("name", table.get("tool", "workload"))) for table in tables]
    if twice := [
        name for name, times in Counter(table["name"] for table in tables if "name" in table).items() if times > 1
    ]:
        raise RequestError(f"two workloads have the name {twice[0]!r}")
    return tuple(
        f"{name}-{asked[: place + 1].count(name)}" if asked.count(name) > 1 else name
        for place, name in enumerate(asked)
    )
