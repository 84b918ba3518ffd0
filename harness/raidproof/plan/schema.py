"""The JSON Schema of plan files, by which editors complete and check plans."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from raidproof.core.json_schema import Described, json_schema
from raidproof.core.registry import is_built_in
from raidproof.core.units import DURATION_SCHEMA, RATE_SCHEMA, SIZE_SCHEMA
from raidproof.disk.profile import profile_names
from raidproof.fault import FAULTS, Fault
from raidproof.image import image
from raidproof.image.kernel.catalogue import CATALOGUE
from raidproof.plan.axes import Axis, axes, read_duration, read_raid_level, read_rate, read_timeo
from raidproof.plan.faults import KIND, Timing
from raidproof.plan.plan import Plan
from raidproof.plan.table import (
    SECONDS_SCHEMA,
    WordOf,
    read_number,
    read_size,
    read_switch,
    read_sync,
    read_text,
    read_whole_seconds,
)
from raidproof.plan.works import ARRAY
from raidproof.provider.registry import names as provider_names
from raidproof.storage.array.level import LEVELS, level_names
from raidproof.workload.presets import PRESETS
from raidproof.workload.workload import CLIENTS, SERVER, WORKLOADS, WorkloadSpec

VERSION = 1
"""Increases if the meaning of a key of plans changes."""
UNKNOWN = ("ge", "gt", "le", "lt", "multiple_of")
"""Names of constraints that pydantic writes for a field with a parser, and that JSON Schema does not have."""
TABLE = {"type": "object", "additionalProperties": False}
WORKLOAD_SETTINGS = {
    "type": "object",
    "description": "settings of the workload",
    "additionalProperties": {"type": ["string", "integer", "boolean", "array"]},
}


class OfPlans(Described):
    """A generator of schemas of TOML files, which have no null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the schema of the value, without null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema with its default, if the default is a word or a number."""
        made = super().default_schema(schema)
        if not isinstance(made.get("default"), str | int | float):
            made.pop("default", None)
        return made


def plan_schema(name: str, title: str, *, built_in: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of plans; ``built_in``: without the kinds of other distributions."""
    made = json_schema(Plan, name=name, title=title, version=VERSION, mode="validation", generator=OfPlans)
    fields, tables = made["properties"], made["$defs"]
    known = axes(built_in=built_in)
    levels = [level for level in level_names() if not built_in or is_built_in(LEVELS[level])]
    tools = {tool: kind for tool, kind in WORKLOADS.items() if not built_in or is_built_in(kind)}
    fields["axes"] = axis_table(known, levels, several=True, text="the values that the plan varies")
    fields["fixed"] = axis_table(known, levels, several=False, text="values that all cells share")
    fields["workload"] = {**one_or_list({"$ref": "#/$defs/Workload"}), "description": "the workloads"}
    fields["fault"] = {**one_or_list({"$ref": "#/$defs/Fault"}), "description": "the faults of each crash test"}
    kinds = {kind: of for kind, of in FAULTS.items() if not built_in or is_built_in(of)}
    timing = Timing.model_json_schema(mode="validation", schema_generator=OfPlans)
    tables["Timing"] = _inlined(timing, timing.pop("$defs"))
    tables["Fault"] = {"anyOf": list(fault_tables(kinds))}
    tables["Workload"] = {"anyOf": [workload_table(tool, kind) for tool, kind in tools.items()]}
    _complete(tables)
    return dict(without_unknown(made))


def axis_table(known: Mapping[str, Axis], levels: Iterable[str], *, several: bool, text: str) -> dict[str, Any]:
    """Return the schema of the table ``[axes]`` (``several`` values each), or ``[fixed]`` (one value each)."""
    values = {name: value_of(axis, levels) for name, axis in known.items()}
    listed = {name: {"type": "array", "minItems": 1, "items": one} if several else one for name, one in values.items()}
    described = {name: {**one, "description": known[name].help} for name, one in listed.items()}
    return {
        **TABLE,
        "description": text,
        "properties": {**described, "workload": WORKLOAD_SETTINGS},
        "patternProperties": {r"^workload\.": {}},
    }


READERS: dict[Any, dict[str, Any]] = {
    read_size: SIZE_SCHEMA,
    read_number: {"type": "integer"},
    read_switch: {"type": "boolean"},
    read_sync: {"enum": ["sync", "async"]},
    read_whole_seconds: SECONDS_SCHEMA,
    read_rate: RATE_SCHEMA,
    read_duration: DURATION_SCHEMA,
    read_timeo: SECONDS_SCHEMA,
    read_text: {"type": ["string", "number"]},
}
"""The schema of the values that the parser of an axis accepts."""


def value_of(axis: Axis, levels: Iterable[str]) -> dict[str, Any]:
    """Return the schema of one value of an axis, as a plan writes it; ``levels``: the names of RAID levels."""
    if axis.read is read_raid_level:
        # A level has many spellings (5, "raid5", "RAID-5"): an editor suggests the names and accepts the others.
        return {"anyOf": [words_or_numbers(levels), {"type": "string", "pattern": "^[Rr][Aa][Ii][Dd]"}]}
    if isinstance(axis.read, WordOf):
        return words_or_numbers(axis.read.words)
    return READERS[axis.read]


def words_or_numbers(words: Iterable[str]) -> dict[str, Any]:
    """Return the schema of words, which a plan may also write as numbers: ``"4.2"`` or 4.2."""
    listed = list(words)
    numbers = [tomllib.loads(f"_ = {word}")["_"] for word in listed if re.fullmatch(r"\d+(\.\d+)?", word)]
    return {"enum": [*listed, *numbers]}


def workload_table(tool: str, kind: type[WorkloadSpec]) -> dict[str, Any]:
    """Return the schema of a table ``[[workload]]`` with this tool."""
    # Inlined: taplo does not complete the keys of an alternative that is a reference.
    made = kind.model_json_schema(mode="validation", schema_generator=OfPlans)
    places = {"anyOf": [{"enum": [CLIENTS, SERVER, ARRAY]}, {"type": "string"}]}
    fields = made["properties"] | {
        "tool": {"const": tool, "description": made.get("description", "")},
        "name": {"type": "string", "pattern": r"^[\w.-]+$", "description": "name of the workload in cells and tables"},
        "on": {**places, "description": "where the workload runs; or the serial number of a disk"},
    }
    if "preset" in fields:
        fields["preset"] |= {"enum": sorted(PRESETS)}
    return {**made, "properties": fields, "required": ["tool", *made.get("required", [])]}


def fault_tables(kinds: Mapping[str, type[Fault]]) -> Iterator[dict[str, Any]]:
    """Yield the schema of the tables ``[[fault]]`` of each kind, except kinds with arguments that no file can have."""
    for name, kind in kinds.items():
        with suppress(PydanticInvalidForJsonSchema):
            yield fault_table(name, kind)


def fault_table(name: str, kind: type[Fault]) -> dict[str, Any]:
    """Return the schema of a table ``[[fault]]`` of this kind."""
    made = TypeAdapter(kind).json_schema(mode="validation", schema_generator=OfPlans)
    # Some arguments have a type of their own, such as the defect of a drive.
    arguments = _inlined(made.get("properties", {}), made.get("$defs", {}))
    timing = {key: {"$ref": f"#/$defs/Timing/properties/{key}"} for key in Timing.model_fields}
    about = {"const": name, "description": made.get("description", "")}
    required = [KIND, *made.get("required", [])]
    return {**TABLE, "properties": {KIND: about, **arguments, **timing}, "required": required}


def _inlined(part: Any, inner: Mapping[str, Any]) -> Any:
    """Return a part of a schema with the definitions ``inner`` in the place of references to them."""
    if isinstance(part, list):
        return [_inlined(one, inner) for one in part]
    if not isinstance(part, dict):
        return part
    if isinstance(reference := part.get("$ref"), str):
        found = inner[reference.rpartition("/")[2]]
        return _inlined({**found, **{key: value for key, value in part.items() if key != "$ref"}}, inner)
    return {key: _inlined(value, inner) for key, value in part.items()}


def one_or_list(one: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table, or of a list of such tables."""
    return {"anyOf": [{"type": "array", "minItems": 1, "items": one}, one]}


def suggested(names: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a text for which an editor suggests these names."""
    return {"anyOf": [{"enum": sorted(names)}, {"type": "string"}]}


def _complete(tables: dict[str, Any]) -> None:
    """Add the forms that validators accept, and the names of drives, providers, kernels and images, to the tables."""
    hardware, disks, run = (tables[name]["properties"] for name in ("Hardware", "DiskGroup", "RunSpec"))
    groups = hardware["disks"]
    hardware["disks"] = {**one_or_list(groups.pop("items")), "description": "groups of disks"}
    drive = {"anyOf": [{"enum": profile_names()}, {"type": "string", "pattern": r"\.toml$"}]}
    disks["profile"] = drive | {"description": disks["profile"]["description"], "default": disks["profile"]["default"]}
    disks["profiles"]["items"] = drive
    run["provider"]["enum"] = list(provider_names())
    for table in (run, tables["SoftwareSpec"]["properties"]):
        for key, names in (("kernel", CATALOGUE.kernels), ("image", image.names())):
            table[key] = suggested(names) | {"description": table[key].get("description", f"name of the {key}")}


def without_unknown(part: Any) -> Any:
    """Return a part of a schema without the keywords that JSON Schema does not have."""
    if isinstance(part, list):
        return [without_unknown(one) for one in part]
    if not isinstance(part, dict):
        return part
    named = {"properties", "$defs", "patternProperties"}
    return {
        key: {name: without_unknown(one) for name, one in value.items()} if key in named else without_unknown(value)
        for key, value in part.items()
        if key not in UNKNOWN
    }
