"""Stacks for reproducers that read the order of requests in a write log."""

from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.array import LEVELS
from raidproof.storage.filesystem import FilesystemSpec
from raidproof.storage.stack import StackSpec


def stack_without_bitmap(level: str, filesystem: FilesystemSpec | None = None) -> StackSpec:
    """Return a stack whose array has no bitmap: md flushes single members before and after each write to a bitmap."""
    stack = stack_of(level, filesystem=filesystem)
    if not LEVELS[level].redundant:
        return stack
    return stack.model_copy(update={"array": stack.array.model_copy(update={"bitmap": "none"})})
