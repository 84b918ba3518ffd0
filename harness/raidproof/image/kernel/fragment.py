"""Fragments of a kernel's configuration: the options that a build requests, and those without effect in a tree."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.image import recipe

OWN = recipe.VMS / "kernel.config"
"""The file of the options that every kernel built from source has."""
UNSET = "n"
"""The value of an option that is not set."""
_LINE = re.compile(r"(#\?)?CONFIG_(\w+)=(\S.*)|# CONFIG_(\w+) is not set")
_FOREIGN = re.compile(r"arch/(?!um/|x86/um/)")
_BLOCK_END = re.compile(r"(?:config|menuconfig|choice|endchoice|menu|endmenu|if|endif|source|comment)\b")


@dataclass(frozen=True)
class Option:
    """A requested value of one option of the kernel's configuration."""

    name: str
    """The name without ``CONFIG_``, such as ``MD_RAID456``."""
    value: str
    """``y``, ``m``, `UNSET`, a number, or a string in double quotes."""
    origin: str
    """The file and the line that request the value, for messages."""
    if_known: bool = False
    """Whether a tree without this option is accepted: only some versions of Linux have the option."""

    def __str__(self) -> str:
        return f"# CONFIG_{self.name} is not set" if self.value == UNSET else f"CONFIG_{self.name}={self.value}"


def parse(text: str, origin: str) -> list[Option]:
    """Return the options in a fragment; ``origin`` is the name of its file for messages.

    A fragment has lines ``CONFIG_X=y`` and ``# CONFIG_X is not set``, and comments. A line ``#?CONFIG_X=y`` is an
    option that only some versions of Linux have.

    Raises:
        RequestError: a line has another form.
    """
    options = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        where = f"{origin}:{number}"
        if found := _LINE.fullmatch(line):
            only_some, name, value, unset = found.groups()
            options.append(Option(name or unset, value or UNSET, where, if_known=only_some is not None))
        elif line and not line.startswith("#"):
            raise RequestError(
                f"{where}: {line!r} is not an option of a kernel's configuration",
                remedy='write lines such as "CONFIG_MD_RAID456=y" and "# CONFIG_SMP is not set"',
            )
    return options


def requested(path: Path | None = None) -> list[Option]:
    """Return raidproof's options, and those of the user's file ``path``, which replace options of the same names.

    Raises:
        RequestError: the file cannot be read, or a line of it has the wrong form.
    """
    options = {one.name: one for one in parse(OWN.read_text(), OWN.name)}
    if path is not None:
        try:
            text = path.expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"{path}: {error}") from error
        options |= {one.name: one for one in parse(text, str(path))}
    return list(options.values())


def text_of(options: Iterable[Option]) -> str:
    """Return the options in the form of a ``.config``."""
    return "".join(f"{one}\n" for one in options)


def without_effect(options: Iterable[Option], config: str, tree: Path) -> list[str]:
    """Return a description of each option whose value differs in ``config``, the text of a complete ``.config``.

    The descriptions contain what the Kconfig files of the source tree ``tree`` say about the option.
    """
    effective = {one.name: one.value for one in parse(config, ".config")}
    wrong = [one for one in options if effective.get(one.name, UNSET) != one.value]
    if not wrong:
        return []
    known = dict(definitions(tree, {one.name for one in wrong}))
    return [
        f"{one.origin}: {one} {_why(known.get(one.name), effective.get(one.name, UNSET))}"
        for one in wrong
        if one.name in known or not one.if_known
    ]


def _why(definition: str | None, effective: str) -> str:
    if definition is None:
        return "(this version of Linux has no such option)"
    needs = f", it depends on {definition}" if definition else ""
    return f"(the value is {effective}{needs})"


def definitions(tree: Path, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that the Kconfig files of a source tree define for the architecture um, with their dependencies.

    The dependencies are the expressions of ``depends on``, joined by ``&&``; those of a surrounding ``if`` or ``menu``
    are not included.
    """
    for path in sorted(tree.rglob("Kconfig*")):
        if _FOREIGN.match(path.relative_to(tree).as_posix()) or not path.is_file():
            continue
        name = None
        needs: list[str] = []
        for line in path.read_text(errors="replace").replace("\\\n", " ").splitlines():
            words = line.split()
            if _BLOCK_END.match(line.strip()) and not line.startswith(("\t\t", "        ")):
                if name is not None and name in names:
                    yield name, " && ".join(needs)
                name = words[1] if words[0] in {"config", "menuconfig"} and len(words) > 1 else None
                needs = []
            elif words[:2] == ["depends", "on"]:
                needs.append(" ".join(words[2:]))
        if name is not None and name in names:
            yield name, " && ".join(needs)
