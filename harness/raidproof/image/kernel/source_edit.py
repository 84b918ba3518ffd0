"""An edit of a kernel's source, by the names of its functions: it fits several versions, or it fails."""

import re
from dataclasses import dataclass

from raidproof.core.errors import RigError


@dataclass(frozen=True)
class Substitution:
    """What is replaced in the body of one function."""

    function: str
    old: str
    new: str
    count: int = 1
    """How often ``old`` must stand there; each is replaced."""


@dataclass(frozen=True)
class SourceEdit:
    """What is to be changed in one file of C."""

    file: str
    """Its path in the kernel's source."""
    inserted: str
    """What comes after its last ``#include``."""
    substitutions: tuple[Substitution, ...]

    def apply(self, source: str) -> str:
        """Return the changed text of the file.

        Raises:
            RigError: a function, or what is to be replaced in it, does not stand there as often as expected.
        """
        for one in self.substitutions:
            source = self._substituted(source, one)
        includes = list(re.finditer(r"^#include .*\n", source, re.MULTILINE))
        if not includes:
            raise RigError(f"{self.file} has no #include")
        end = includes[-1].end()
        begun, ended = (len(re.findall(rf"^#\s*{word}", source[:end], re.MULTILINE)) for word in ("if", "endif"))
        if begun != ended:
            raise RigError(f"{self.file}: the last #include is conditional")
        return f"{source[:end]}{self.inserted}{source[end:]}"

    def _substituted(self, source: str, one: Substitution) -> str:
        # As the kernel writes it: a name begins a line, or follows its type; a brace in the first column ends a body.
        pattern = rf"^(?:\w[\w *]*[ *])?{one.function}\([^;{{]*\)\s*^{{.*?^}}"
        bodies = list(re.finditer(pattern, source, re.MULTILINE | re.DOTALL))
        if len(bodies) != 1:
            raise RigError(f"{self.file} has {len(bodies)} functions {one.function}, not 1")
        body = bodies[0]
        if (found := body[0].count(one.old)) != one.count:
            raise RigError(f"{self.file}: {one.function} has {one.old!r} {found} times, not {one.count}")
        return f"{source[: body.start()]}{body[0].replace(one.old, one.new)}{source[body.end() :]}"
