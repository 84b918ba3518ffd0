"""The workloads of a plan: what each table ``[[workload]]`` asks, and how it is called."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.errors import RequestError
from harness.plan.axes import WORKLOAD, Settings
from harness.plan.table import reasons
from harness.workload.tools import WorkloadSpec

_adapter: TypeAdapter[WorkloadSpec] = TypeAdapter(WorkloadSpec)


def read_work(table: Mapping[str, Any]) -> WorkloadSpec:
    """Read one table; its ``name`` is the plan's, all else the tool's.

    Raises:
        RequestError: it is no workload.
    """
    try:
        return _adapter.validate_python({key: value for key, value in table.items() if key != "name"})
    except ValidationError as error:
        raise RequestError(reasons(error)) from error


def with_settings(table: Mapping[str, Any], settings: Settings) -> WorkloadSpec:
    """Read one table with what the axes say of the workload.

    Raises:
        RequestError: it is no workload then.
    """
    return read_work(
        {**table, **{name.removeprefix(WORKLOAD): of for name, of in settings.items() if name.startswith(WORKLOAD)}}
    )


def names(tables: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what each workload is called: its name, or its tool, counted where there are several.

    Raises:
        RequestError: two have the same name.
    """
    asked = [str(table.get("name", table.get("tool", "workload"))) for table in tables]
    if twice := [
        name for name, times in Counter(table["name"] for table in tables if "name" in table).items() if times > 1
    ]:
        raise RequestError(f"two workloads with the name {twice[0]!r}")
    return tuple(
        f"{name}-{asked[: place + 1].count(name)}" if asked.count(name) > 1 else name
        for place, name in enumerate(asked)
    )
