"""`raidproof man`: the manual page, made from the commands, their options and their help."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from raidproof import __version__
from raidproof.core.errors import RequestError, Status

TEMPLATE = "man.1.j2"
"""Name of the template of the page, in the folder of the reports' templates."""
MEANINGS = {
    Status.PASS: "PASS: the command did its work; of a run: every promise was kept that holds by design, "
    "and the controls behaved",
    Status.FAIL: "FAIL: the system under test broke a promise, or a test failed",
    Status.BAD_REQUEST: "an option, a plan or another file is invalid; nothing was started",
    Status.ERROR: "ERROR: the rig failed, which proves nothing about the system under test",
    Status.INVALID: "INVALID: a control did not show what it had to show, so that no PASS of the run counts",
    Status.INCONCLUSIVE: "INCONCLUSIVE: the run could show neither that a promise was broken nor that all were kept",
    Status.REQUIREMENT_MISSING: "this host or a machine lacks a requirement; "
    "`raidproof doctor` prints what this host lacks",
    Status.INTERRUPTED: "Ctrl-C, SIGTERM or SIGHUP ended the command",
}
"""Meaning of each exit status, as one clause."""
SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
"""Characters that groff would print as others, and their escapes (groff_char(7))."""


@dataclass(frozen=True)
class Parameter:
    """An argument or an option of a command."""

    notation: str
    """Names and kind of value, as in the help: ``--seed <int>``."""
    help: str
    option: bool
    """Whether it is an option; else an argument."""


@dataclass(frozen=True)
class Described:
    """A command with its help."""

    name: str
    """Name with the names of the groups: ``findings list``."""
    usage: str
    """Arguments and options in short: ``[OPTIONS] {run}``."""
    help: str
    parameters: tuple[Parameter, ...]

    @property
    def paragraphs(self) -> list[str]:
        """The help, each paragraph in one line."""
        return [" ".join(part.split()) for part in self.help.split("\n\n") if part.strip()]


def described(command: Any, name: str, parent: Any) -> Iterator[Described]:
    """Yield a command and the commands below it; ``command``: a command of typer, ``parent``: the context above."""
    context = command.make_context(name.rsplit(maxsplit=1)[-1], [], parent=parent, resilient_parsing=True)
    records = [(one, one.get_help_record(context)) for one in command.params]
    parameters = tuple(
        Parameter(record[0], record[1], one.param_type_name == "option")
        for one, record in records
        if record is not None
    )
    usage = command.get_usage(context).partition(context.command_path)[2]
    below = getattr(command, "commands", {})
    yield Described(name, " ".join(usage.split()), command.help or "", parameters)
    for inner in below:
        yield from described(below[inner], f"{name} {inner}", context)


def commands(group: Any) -> list[Described]:
    """Return all commands in the order of the help; the first has the options before the name of a command.

    ``group``: the commands of typer.
    """
    context = group.make_context("raidproof", [], resilient_parsing=True)
    options = tuple(
        Parameter(record[0], record[1], option=True)
        for one in group.params
        if (record := one.get_help_record(context)) is not None
    )
    first = Described("raidproof", "[OPTIONS] COMMAND [ARGUMENTS]", group.help or "", options)
    named = (described(group.commands[name], name, context) for name in group.list_commands(context))
    return [first, *(one for below in named for one in below)]


def escaped(text: str) -> str:
    """Return a text with the characters escaped that groff interprets."""
    text = re.sub(r"[\\\-'`^~]", lambda match: SPECIAL[match[0]], text)
    return re.sub(r"^\.", r"\\&.", text, flags=re.MULTILINE)


def page(group: Any) -> str:
    """Return the manual page in the man(7) language; ``group``: the commands of typer."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=PackageLoader("raidproof.report", "page"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701  the page is no HTML; the filter escapes what groff interprets
    )
    environment.filters["roff"] = escaped
    first, *rest = commands(group)
    meanings = sorted(MEANINGS.items())
    text = environment.get_template(TEMPLATE).render(
        version=__version__, first=first, commands=rest, statuses=[(int(status), why) for status, why in meanings]
    )
    return text.rstrip("\n") + "\n"


def man(
    context: typer.Context,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page to this file, for example man/raidproof.1.")
    ] = None,
) -> None:
    """Print the manual page in the man(7) language.

    `man -l -` shows the page from its standard input.
    """
    text = page(context.find_root().command)
    if write is None:
        print(text, end="")  # noqa: T201
        return
    try:
        write.write_text(text)
    except OSError as error:
        raise RequestError(
            f"cannot write {write}: {error.strerror}", remedy="name a file in a folder that you can write to"
        ) from error
