"""Registries of kinds: file systems, servers, faults, workloads, providers. A kind is one file.

The registry finds our kinds as modules of a folder, and kinds of other distributions by entry points of the registry's
group (`importlib.metadata`). Kinds are listed nowhere else.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from raidproof.core.errors import RequestError, RigError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """The kinds of one family by name.

    ``what`` is the family in words, ``folder`` the package whose modules hold our own kinds, ``group`` the group of
    entry points of other distributions, each of which names a module or an object whose import registers kinds.
    """

    def __init__(self, what: str, folder: str, group: str) -> None:
        self.what = what
        self.folder = folder
        self.group = group
        self._kinds: dict[str, T] = {}
        self._loaded = False

    def add(self, name: str, kind: T) -> None:
        """Register a kind.

        Raises:
            RequestError: another kind of the family has this name.
        """
        if self._kinds.setdefault(name, kind) is not kind:
            raise RequestError(f"two kinds of {self.what} are named {name!r}: {self._kinds[name]!r} and {kind!r}")

    def remove(self, name: str) -> None:
        """Forget a kind; for tests."""
        self._kinds.pop(name, None)

    def __getitem__(self, name: str) -> T:
        """Return the kind of this name.

        Raises:
            RequestError: there is none; the message names the nearest.
        """
        self.load()
        if name not in self._kinds:
            raise RequestError(f"no {self.what} is named {name!r}; {nearest(name, self._kinds)}")
        return self._kinds[name]

    def __contains__(self, name: object) -> bool:
        self.load()
        return name in self._kinds

    def __iter__(self) -> Iterator[str]:
        self.load()
        return iter(sorted(self._kinds))

    def items(self) -> Iterator[tuple[str, T]]:
        """Return names and kinds, sorted by name."""
        return ((name, self[name]) for name in self)

    def load(self) -> None:
        """Import every module of the folder, and every entry point of the group, once.

        Raises:
            RigError: an installed entry point cannot be imported; the message names its distribution.
        """
        if self._loaded:
            return
        # Set first, since a module of the folder may ask for a kind while it is imported.
        self._loaded = True
        try:
            home = importlib.import_module(self.folder)
            for module in pkgutil.iter_modules(home.__path__, f"{self.folder}."):
                importlib.import_module(module.name)
            for point in entry_points(group=self.group):
                _load(point)
        except BaseException:
            # Otherwise later requests would go on without the kinds that are missing.
            self._loaded = False
            raise


def _load(point: EntryPoint) -> None:
    try:
        point.load()
    except Exception as error:
        by = point.dist.name if point.dist is not None else "an unknown distribution"
        raise RigError(f"{point.group}: {point.value} of {by} cannot be imported: {error!r}") from error


class OneOf:
    """Annotation of a pydantic field that holds a model of any kind in a registry; ``key`` is the field with its name.

    Where a mapping leaves the key out, ``default`` is the kind.
    """

    def __init__(self, registry: Registry[Any], key: str = "type", default: str | None = None) -> None:
        self.registry = registry
        self.key = key
        self.default = default

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Accept an instance of ``source`` or a mapping that names its kind; dump all fields of the actual kind."""

        def parse(value: Any) -> Any:
            if isinstance(value, source):
                return value
            if not isinstance(value, Mapping):
                raise RequestError(f"a {self.registry.what} is a table with {self.key!r}, not {value!r}")
            name = value.get(self.key, self.default)
            if name is None:
                valid = ", ".join(self.registry)
                raise RequestError(f"a {self.registry.what} needs {self.key!r}, which is missing; valid: {valid}")
            return self.registry[str(name)].model_validate(value)

        # Without a schema of its own a value is dumped by its actual type.
        return core_schema.no_info_plain_validator_function(parse)
