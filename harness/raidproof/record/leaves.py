"""The leaves of a nested record: what is asked or found of a layer, one field at a time."""

from collections.abc import Iterator, Mapping
from typing import Any


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested record by dotted path; a list of plain values is one leaf."""
    if isinstance(tree, Mapping):
        for key, branch in tree.items():
            yield from flat(branch, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in tree):
        for place, branch in enumerate(tree):
            yield from flat(branch, f"{path}.{place}" if path else str(place))
    elif tree is not None or path:
        yield path or "value", list(tree) if isinstance(tree, tuple) else tree
