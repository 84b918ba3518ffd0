"""Finds places outside the file of a kind that depend on this kind: imports, branches on its name or its class."""

import ast
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from inspect import getfile
from pathlib import Path


@dataclass(frozen=True)
class Kinds:
    """The kinds of a family, by name, and the names that other files may not use."""

    by_name: Mapping[str, type]
    ambiguous: Set[str] = frozenset()
    """Names of kinds that are also words of another sense."""
    more_classes: Set[str] = frozenset()
    """Names of the kinds' other classes."""
    modules: frozenset[str] = field(init=False)
    classes: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        kinds = self.by_name.values()
        object.__setattr__(self, "modules", frozenset(kind.__module__ for kind in kinds))
        object.__setattr__(self, "classes", frozenset(kind.__name__ for kind in kinds) | self.more_classes)

    @property
    def files(self) -> set[Path]:
        """The files of the kinds."""
        return {Path(getfile(kind)) for kind in self.by_name.values()}

    @cached_property
    def names(self) -> Set[str]:
        """The names of the kinds that have no other sense."""
        return self.by_name.keys() - self.ambiguous

    def imports(self, node: ast.AST) -> Iterator[str]:
        """Yield each module of a kind that a statement imports."""
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from sorted({module, *(f"{module}.{one.name}" for one in names)} & self.modules)
            case ast.Import(names=names):
                yield from sorted({one.name for one in names} & self.modules)

    def branches(self, source: str) -> Iterator[str]:
        """Yield each import of a kind, and each comparison with a kind's name or class."""
        for node in ast.walk(ast.parse(source)):
            yield from (f"line {node.lineno}: {said}" for said in self._branches(node))  # type: ignore[attr-defined]

    def _branches(self, node: ast.AST) -> Iterator[str]:
        yield from (f"imports {one}" for one in self.imports(node))
        match node:
            case ast.Compare():
                values = [node.left, *node.comparators]
                constants = [one.value for value in values for one in ast.walk(value) if isinstance(one, ast.Constant)]
                yield from (f"compares {one!r}" for one in constants if one in self.names)
            case ast.MatchValue(value=ast.Constant(value=value)) if value in self.names:
                yield f"matches {value!r}"
            case ast.Subscript(slice=ast.Constant(value=value)) if value in self.names:
                yield f"looks up {value!r}"
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
                named = {one.id for one in ast.walk(kind) if isinstance(one, ast.Name)}
                yield from (f"isinstance {one}" for one in sorted(named & self.classes))
