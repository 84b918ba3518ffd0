"""Registries of kinds of file systems, servers, faults, workloads and providers. Each kind is one module.

A registry imports raidproof's own kinds as modules of a folder, and the kinds of other Python distributions by entry
points of the registry's group (`importlib.metadata`). There is no other list of kinds.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from raidproof.core.errors import RequestError, RigError, nearest

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Registry(Generic[T]):
    """The kinds of one family, for example all file systems, by name.

    ``what`` is the name of the family in messages. ``folder`` is the package whose modules contain raidproof's own
    kinds. ``group`` is the group of entry points of other distributions; the module that an entry point names must
    register its kinds when it is imported.
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
        """Remove a kind from the registry; for tests."""
        self._kinds.pop(name, None)

    def __getitem__(self, name: str) -> T:
        """Return the kind with this name.

        Raises:
            RequestError: no kind has this name; the message has the most similar name and all names.
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
        """Return pairs of name and kind, sorted by name."""
        return ((name, self[name]) for name in self)

    def load(self) -> None:
        """Import every module of the registry's folder and every entry point of its group, unless already imported.

        Raises:
            RigError: an installed entry point cannot be imported; the message names its distribution.
        """
        if self._loaded:
            return
        # Set first, as a module of the folder may look up a kind during its import.
        self._loaded = True
        try:
            home = importlib.import_module(self.folder)
            for module in pkgutil.iter_modules(home.__path__, f"{self.folder}."):
                importlib.import_module(module.name)
            for point in entry_points(group=self.group):
                _load(point)
        except BaseException:
            # If the value stayed True, later look-ups would silently lack the kinds that were not imported.
            self._loaded = False
            raise


def register_default(
    registry: Registry[type[M]], model: type[M], *, key: str = "type", axes: Iterable[str] = ()
) -> None:
    """Register a model under the default of its field ``key``; a model without a default is an interface of kinds.

    ``axes`` are the names of the fields that a plan may vary.

    Raises:
        TypeError: an axis is not the name of a field.
        RequestError: another kind of the family has this name.
    """
    if strange := sorted(set(axes) - model.model_fields.keys()):
        raise TypeError(f"{model.__name__} has axes without fields: {', '.join(strange)}")
    name = model.model_fields[key].default
    if isinstance(name, str):
        registry.add(name, model)


def is_built_in(kind: type) -> bool:
    """Return whether a kind is raidproof's own, and not of another distribution."""
    return kind.__module__.startswith("raidproof.")


def _load(point: EntryPoint) -> None:
    try:
        point.load()
    except Exception as error:
        by = point.dist.name if point.dist is not None else "an unknown distribution"
        raise RigError(f"entry point {point.group}: {point.value} of {by} cannot be imported: {error!r}") from error


class OneOf:
    """Annotation of a pydantic field that holds a model of any kind in a registry.

    ``key`` is the field of the model that holds the kind's name. ``default`` is the name of the kind of a mapping that
    lacks the key; if it is None, the key is required.
    """

    def __init__(self, registry: Registry[Any], key: str = "type", default: str | None = None) -> None:
        self.registry = registry
        self.key = key
        self.default = default

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that accepts an instance of ``source`` or a mapping that names a kind."""

        def parse(value: Any) -> Any:
            if isinstance(value, source):
                return value
            if not isinstance(value, Mapping):
                raise RequestError(f"a {self.registry.what} must be a table with the key {self.key!r}, not {value!r}")
            name = value.get(self.key, self.default)
            if name is None:
                valid = ", ".join(self.registry)
                raise RequestError(f"a {self.registry.what} needs the key {self.key!r}; valid values: {valid}")
            return self.registry[str(name)].model_validate(value)

        # Without a serialization schema, pydantic serializes a value by its actual type.
        return core_schema.no_info_plain_validator_function(parse)
