"""Replaces functions in a process that has imported a file before a change of the file.

All modules and tests are imported once; a process that is forked then gets the code of the functions that changed, and
imports nothing. It is what a fresh import would give, if the change lies within functions, and none of them ran while
modules were imported; of any other change `swaps` returns None, and all is to be imported again.
"""

import gc
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType

_NEW_LOCALS = 2
"""Flag of the code of a function; that of a module or a class body has it not."""

Swap = tuple[CodeType, CodeType]
"""The code of a function, before and after."""


def swaps(name: str, source: str, changed: str) -> list[Swap] | None:
    """Return the functions of a file that differ, the outer ones first; None if it differs outside of functions."""
    pairs = list(_pairs(compile(source, name, "exec"), compile(changed, name, "exec")))
    if any(_shape(old) != _shape(new) for old, new in pairs if not _is_function(old)):
        return None
    found = [(old, new) for old, new in pairs if _is_function(old) and old != new]
    return None if any(old.co_freevars != new.co_freevars for old, new in found) else found


def apply(found: Sequence[Swap]) -> None:
    """Give all functions of this process that have the code before the code after."""
    functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
    for old, new in found:
        for function in functions:
            if function.__code__ == old:
                function.__code__ = new


def within(found: Sequence[Swap], lines: set[int]) -> bool:
    """Return whether any of some lines is one of the functions' own, after the line that defines it."""
    return any(
        line in lines and line > old.co_firstlineno
        for old, _ in found
        for *_, line in old.co_lines()
        if line is not None
    )


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & _NEW_LOCALS) and code.co_name not in {
        "<listcomp>",
        "<setcomp>",
        "<dictcomp>",
        "<genexpr>",
    }


def _pairs(old: CodeType, new: CodeType) -> Iterator[Swap]:
    yield old, new
    if old.co_flags & _NEW_LOCALS:  # what is within a function is part of its code
        return
    for one, other in zip(_inner(old), _inner(new), strict=False):
        yield from _pairs(one, other)


def _inner(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _shape(code: CodeType) -> tuple[object, ...]:
    constants = tuple((type(one), repr(one)) for one in code.co_consts if not isinstance(one, CodeType))
    return code.co_code, constants, code.co_names, code.co_varnames, len(_inner(code))
