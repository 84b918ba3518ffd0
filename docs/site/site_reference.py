"""The reference pages, made from the code: commands, plans, fixtures, records, and what providers cannot prove."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raidproof.cli.main import app
from raidproof.cli.reference.man import Described, commands
from raidproof.cli.reference.schema import published
from raidproof.core.json_schema import field_docstrings
from raidproof.core.registry import is_built_in
from raidproof.core.units import format_size
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.fault import schedule
from raidproof.fault.fault import FAULTS
from raidproof.provider import qemu, uml
from raidproof.provider.hosts import disks as hosts_disks
from raidproof.provider.hosts import power as hosts_power
from raidproof.provider.vagrant import machine as vagrant
from raidproof.pytest_plugin import fixtures, plugin
from raidproof.run.crash_test import CrashTestSpec
from raidproof.storage.array import MdSpec
from raidproof.storage.filesystem import Ext4Spec, XfsSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec

MADE = "`python docs/site/write.py` makes this page from the code.\n"
STACK = (Ext4Spec, XfsSpec, ExportSpec, MountSpec, MdSpec)
"""Parts of a stack that a scenario can set."""
GUIDES = {
    "demo": "tutorial.md",
    "teach": "teaching.md",
    "import": "import.md",
    "run": "plans.md",
    "advise": "advise.md",
    "ab": "comparison.md",
    "explore": "exploration.md",
    "recover": "exploration.md",
    "ls": "results.md",
    "show": "results.md",
    "serve": "results.md",
    "compare": "history.md",
    "baseline": "history.md",
    "history": "history.md",
    "summary": "ci.md",
    "export": "results.md",
    "export-log": "exploration.md",
    "judge": "results.md",
    "rm": "results.md",
    "bisect": "bisection.md",
    "bisect-run": "bisection.md",
    "findings": "findings.md",
    "doctor": "report-says.md",
    "storm": "storm.md",
    "selftest": "sensitivity.md",
    "kernel": "kernels.md",
    "package": "images.md",
    "box": "providers.md",
    "hosts": "hosts.md",
    "profile": "drive-profiles.md",
    "cluster": "cluster.md",
    "worker": "cluster.md",
    "shell": "../CONTRIBUTING.md",
    "gc": "requirements.md",
    "schema": "ci.md",
    "config": "command-line.md",
    "man": "command-line.md",
    "version": "ci.md",
    "scenarios": "own-scenario.md",
    "test": "../CONTRIBUTING.md",
}
"""The page with more about each command, relative to docs/."""
FIRST = ("cycle", "explore", "measure", "lab")
"""Fixtures that most scenarios use, which come first."""
ASSERTIONS = (fixtures.CrashTestResult, fixtures.Measured, fixtures.Explored)
"""Classes of results with assertions for scenarios."""


def pages() -> dict[str, str]:
    """Return the texts of all reference pages by file name."""
    return {
        "reference-commands.md": commands_page(),
        "reference-plan.md": plan_page(),
        "reference-fixtures.md": fixtures_page(),
        "reference-records.md": records_page(),
        "reference-limits.md": limits_page(),
    }


def cell(text: object) -> str:
    """Return a text that fits into one cell of a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def prose(docstring: str) -> str:
    """Return a docstring as Markdown; the errors after ``Raises:`` are a list."""
    text, raises, errors = inspect.cleandoc(docstring).replace("``", "`").partition("Raises:\n")
    listed = re.sub(r"^ {4}([\w, ]+):", r"* `\1`:", errors, flags=re.MULTILINE)
    return f"{text}{raises}{chr(10) if raises else ''}{listed}"


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table; empty without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, ""]) if lines else ""


def commands_page() -> str:
    """Return the page of all commands with their options."""
    parts = ["# Commands\n", MADE, "`raidproof man` prints the same as a manual page. Each command has `--help`.\n"]
    known = commands(typer.main.get_command(app))
    parts.append(table(("command", "does", "read"), commands_index(known[1:])))
    for one in known:
        name = "" if one.name == "raidproof" else f" {one.name}"
        parts.append(f"## {one.name}\n\n    ./raidproof{name} {one.usage}\n")
        parts += [f"{text}\n" for text in one.paragraphs]
        rows = ((f"`{parameter.notation}`", cell(parameter.help)) for parameter in one.parameters)
        parts.append(table(("option or argument", "meaning"), rows))
    return "\n".join([*parts, "Exit statuses: [command-line.md](command-line.md#exit-statuses).\n"])


def commands_index(known: Sequence[Described]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each command: its name, the first sentences of its help, and the page with more about it."""
    for one in known:
        page = GUIDES[one.name.partition(" ")[0]]
        name = Path(page).stem.lower()
        yield f"[`{one.name}`](#{one.name.replace(' ', '-')})", cell(one.paragraphs[0]), f"[{name}]({page})"


def kind(schema: Mapping[str, Any]) -> str:
    """Return the kind of values that a JSON Schema permits, as Markdown."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(dict.fromkeys(f"`{one}`" for one in schema["enum"]))
    if "const" in schema:
        return f"`{schema['const']}`"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(kind(one) for one in schema[word]))
    return plain_kind(schema)


def plain_kind(schema: Mapping[str, Any]) -> str:
    """Return the kind of values of a JSON Schema without alternatives."""
    named = schema.get("type", "any value")
    names = named if isinstance(named, list) else [named]
    said = " or ".join(str(name) for name in names)
    if named == "array" and isinstance(schema.get("items"), Mapping):
        said = f"list of {kind(schema['items'])}"
    more = schema.get("additionalProperties")
    if named == "object" and isinstance(more, Mapping):
        said = f"table of {kind(more)}"
    if schema.get("examples"):
        said += f", for example `{schema['examples'][0]}`"
    return said


def fields(schema: Mapping[str, Any]) -> str:
    """Return a table of the fields of an object in a JSON Schema."""
    needed = schema.get("required", ())
    rows = (
        (
            f"`{name}`",
            cell(kind(one)),
            "required" if name in needed else f"`{one['default']!r}`" if "default" in one else "",
            cell(one.get("description", "")),
        )
        for name, one in schema.get("properties", {}).items()
    )
    return table(("field", "value", "default", "meaning"), rows)


def definitions(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield a section for each definition of a JSON Schema."""
    for name, one in sorted(schema.get("$defs", {}).items()):
        yield f"### {name}\n"
        if one.get("description"):
            yield f"{prose(one['description'])}\n"
        yield fields(one) if one.get("properties") else f"Value: {kind(one)}.\n"


def plan_page() -> str:
    """Return the page of all keys of plans."""
    schema = published(built_in=True)["plan"].make("plan", "raidproof: plan file")
    top = {**schema, "properties": {key: one for key, one in schema["properties"].items() if key != "axes"}}
    axes = ((f"`{key}`", cell(kind(one["items"])), cell(one.get("description", ""))) for key, one in axes_of(schema))
    return "\n".join(
        [
            "# Keys of plans\n",
            MADE,
            "[plans.md](plans.md) explains plans by examples; editors read [the schema](schema/plan.schema.json).\n",
            "## The plan\n",
            fields(top),
            "## Axes\n",
            "Keys of `[axes]`, where each has a list of values, and of `[fixed]`, where each has one value.\n",
            table(("axis", "values", "meaning"), axes),
            "## Tables\n",
            *definitions(schema),
        ]
    )


def axes_of(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the axes of the schema of plans."""
    return [
        (key, one)
        for key, one in schema["properties"]["axes"]["properties"].items()
        if isinstance(one.get("items"), Mapping)
    ]


def records_page() -> str:
    """Return the page of the record of a run and of a list of all schemas."""
    every = published(built_in=True)
    schema = every["run"].make("run", "raidproof: run")
    rows = ((f"[{name}](schema/{name}.schema.json)", cell(one.title)) for name, one in every.items())
    return "\n".join(
        [
            "# Records\n",
            MADE,
            "Commands with `--json` print records with these schemas ([ci.md](ci.md)):\n",
            table(("schema", "record"), rows),
            "## The record of a run\n",
            "`report.json` in the folder of a run ([results.md](results.md)).\n",
            fields(schema),
            "## Parts of the record of a run\n",
            *definitions(schema),
        ]
    )


def limits_page() -> str:
    """Return the page of what runs with each provider cannot prove."""
    power = [one.cannot_prove for one in vars(hosts_power).values() if isinstance(vars_of(one, "cannot_prove"), tuple)]
    of_hosts = dict.fromkeys((*hosts_disks.CANNOT_PROVE, *(limit for limits in power for limit in limits)))
    known = {
        "uml": uml.CANNOT_PROVE,
        "qemu": (*qemu.CANNOT_PROVE, qemu.EMULATED),
        "vagrant": (*vagrant.CANNOT_PROVE, vagrant.EMULATED, vagrant.USERS),
        "hosts": of_hosts,
    }
    parts = [
        "# What runs cannot prove\n",
        MADE,
        "The report of a run repeats those sentences that apply to the run.\n",
    ]
    for name, limits in known.items():
        parts += [f"## Provider {name}\n", *(f"* {cell(limit)}" for limit in limits), ""]
    return "\n".join(parts)


def vars_of(one: object, name: str) -> object:
    """Return the attribute that a class itself defines; None for other objects."""
    return vars(one).get(name) if isinstance(one, type) else None


def fixtures_page() -> str:
    """Return the page of pytest's fixtures, of the functions and classes for scenarios, and of options."""
    parts = ["# Fixtures\n", MADE, "An installed raidproof is a plugin of pytest, which has these fixtures.\n"]
    for name, function in fixture_functions():
        parts.append(f"## {name}\n\n{prose(function.__doc__ or '')}\n")
    parts.append(f"## stack_of\n\n{callable_text('stack_of', fixtures.stack_of)}")
    parts.append(f"## Call of cycle\n\n{callable_text('cycle', fixtures.CrashTestRunner.__call__)}")
    disks, size = ", ".join(f"`{serial}`" for serial in fixtures.MEMBERS), format_size(fixtures.DISK_SIZE)
    parts.append(f"The shared lab has a server, two clients, and the disks {disks} of {size} each.\n")
    parts.append("The fields of a crash test, which a call of `cycle` may set:\n")
    usual = {"ledger_seconds": f"`{fixtures.LEDGER_SECONDS}`"}
    parts.append(model_fields(CrashTestSpec, frozenset({"name", "title", "stack"}), usual))
    parts.append("## Parts of a stack\n")
    parts += stack_parts()
    parts.append("## Values\n")
    parts += [values(one) for one in (CacheMode, CutPolicy)]
    parts.append("## Faults\n\n[faults.md](faults.md) describes them. A name alone is enough without arguments.\n")
    parts.append(table(("name", "class", "module", "effect"), faults()))
    parts.append("## Moments of faults\n\nFunctions for `faults=`, in `raidproof.fault.schedule`.\n")
    moments = (
        schedule.at,
        schedule.after_replies,
        schedule.after_recovery,
        schedule.in_recovery,
        schedule.when_served,
    )
    parts += [f"### {one.__name__}\n\n{callable_text(one.__name__, one)}" for one in moments]
    parts.append(f"## Call of explore\n\n{callable_text('explore', fixtures.Explore.__call__)}")
    for one in ASSERTIONS:
        parts.append(f"## {one.__name__}\n\n{prose(one.__doc__ or '')}\n")
        parts += [f"### {one.__name__}.{name}\n\n{callable_text(name, each)}" for name, each in methods(one)]
    options = ((f"`{name}`", cell(text)) for name, text in pytest_options())
    return "\n".join([*parts, "## Options of pytest\n", table(("option", "meaning"), options)])


def fixture_functions() -> list[tuple[str, Any]]:
    """Return the fixtures by name."""
    found = [(name, one) for name, one in vars(plugin).items() if type(one).__name__ == "FixtureFunctionDefinition"]
    shown = [(name, one._get_wrapped_function()) for name, one in found if not name.startswith("_")]
    return sorted(shown, key=lambda one: FIRST.index(one[0]) if one[0] in FIRST else len(FIRST))


def model_fields(
    model: type[BaseModel], without: frozenset[str] = frozenset(), defaults: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return a table of the fields of a model; ``defaults`` replaces defaults of fields, as Markdown."""
    texts = field_docstrings(model)
    rows = (
        (f"`{name}`", defaults.get(name) or default_of(one), cell(prose(texts.get(name) or one.description or "")))
        for name, one in model.model_fields.items()
        if name not in without
    )
    return table(("field", "default", "meaning"), rows)


def default_of(field: FieldInfo) -> str:
    """Return the default of a field as Markdown; a model as the name of its class."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return f"`{type(value).__name__}()`" if isinstance(value, BaseModel) else f"`{cell(value)}`"


def faults() -> Iterator[tuple[str, ...]]:
    """Yield a row for each fault: its name, its class with the arguments, its module, what it does."""
    for name in FAULTS:
        one = FAULTS[name]
        if not is_built_in(one):
            continue
        does = prose(one.__doc__ or "").partition("\n\n")[0]
        yield f"`{name}`", f"`{one.__name__}{signature(one)}`", f"`{one.__module__}`", cell(does)


def values(kind_: type[Enum]) -> str:
    """Return a section with the members of an enumeration and their docstrings."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind_))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    texts = {
        ast.unparse(one.targets[0]): ast.unparse(text.value).strip("\"'")
        for one, text in pairwise(body)
        if isinstance(one, ast.Assign) and isinstance(text, ast.Expr)
    }
    rows = ((f"`{kind_.__name__}.{one.name}`", cell(texts.get(one.name, ""))) for one in kind_)
    head = (
        f"### {kind_.__name__}\n\n{prose(kind_.__doc__ or '')}\n\n`from {kind_.__module__} import {kind_.__name__}`\n"
    )
    return f"{head}\n{table(('value', 'meaning'), rows)}"


def stack_parts() -> Iterator[str]:
    """Yield a section for each part of a stack."""
    for one in STACK:
        yield f"### {one.__name__}\n\n{prose(one.__doc__ or '')}\n\n`from {public(one)} import {one.__name__}`\n"
        yield model_fields(one)


def public(kind_: type) -> str:
    """Return the name of the package of a class, or of the module if the package does not have the class."""
    package = kind_.__module__.rpartition(".")[0]
    return package if hasattr(import_module(package), kind_.__name__) else kind_.__module__


def callable_text(name: str, function: Any) -> str:
    """Return the signature and the docstring of a function."""
    if isinstance(function, property):
        return f"{prose(function.__doc__ or '')}\n"
    return f"```text\n{name}{signature(function)}\n```\n\n{prose(function.__doc__ or '')}\n"


def signature(function: Any) -> str:
    """Return the parameters of a function with their defaults, without the object of a method."""
    parts, named = [], False
    for one in inspect.signature(function).parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not named:
            named = True
            parts.append("*")
        stars = "**" if one.kind is one.VAR_KEYWORD else ""
        shown = str(one.default) if isinstance(one.default, Enum) else repr(one.default)
        default = "" if one.default is one.empty else f" = {shown}"
        parts.append(f"{stars}{one.name}{short(one.annotation)}{default}")
    return f"({', '.join(parts)})"


def short(annotation: Any) -> str:
    """Return an annotation without the names of modules, after a colon; empty if there is none."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return ": " + re.sub(r"[\w.]+\.", "", text)


def methods(kind_: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class."""
    for name, one in vars(kind_).items():
        if not name.startswith("_") and (inspect.isfunction(one) or isinstance(one, property)):
            yield name, one


def pytest_options() -> list[tuple[str, str]]:
    """Return raidproof's options of pytest, with their help."""
    parser = pytest.Parser(_ispytest=True)
    plugin.pytest_addoption(parser)
    options = [option for group in parser._groups for option in group.options]
    return [(", ".join(one.names()), str(one.attrs().get("help", ""))) for one in options]
