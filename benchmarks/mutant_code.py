"""Replaces the code of functions in a process that imported a file before the file was changed.

All modules and tests are imported once. A forked process then gets the new code of the changed functions and imports
nothing. The result equals that of a new import if the change lies within functions that did not run during the import.
For any other change `swaps` returns None, and the caller must import all modules again.
"""

import gc
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType

_NEW_LOCALS = 2
"""Flag (CO_NEWLOCALS) of the code of a function; the code of a module or of a class body does not have this flag."""

Swap = tuple[CodeType, CodeType]
"""The code of a function, before and after."""


def swaps(name: str, source: str, changed: str) -> list[Swap] | None:
    """Return the functions that differ between two versions of a file; None if code outside of functions differs.

    An outer function comes before its inner functions. ``source`` and ``changed`` are the texts of the two versions.
    """
    pairs = list(_pairs(compile(source, name, "exec"), compile(changed, name, "exec")))
    if any(_shape(old) != _shape(new) for old, new in pairs if not _is_function(old)):
        return None
    found = [(old, new) for old, new in pairs if _is_function(old) and old != new]
    return None if any(old.co_freevars != new.co_freevars for old, new in found) else found


def apply(found: Sequence[Swap]) -> bool:
    """In each swap, replace the old code by the new code in all functions of this process.

    Return whether each swap has changed a function; if not, the tests would run unchanged code.
    """
    # gc.get_objects leaves out what gc.freeze has frozen, as tests/conftest.py does with all that it imports.
    gc.unfreeze()
    functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
    complete = True
    for old, new in found:
        having = [function for function in functions if function.__code__ == old]
        for function in having:
            function.__code__ = new
        complete = complete and bool(having)
    return complete


def within(found: Sequence[Swap], lines: set[int]) -> bool:
    """Return whether one of ``lines`` is in a swapped function, after its first line."""
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
    if old.co_flags & _NEW_LOCALS:  # the code of inner functions is part of the function's code
        return
    for one, other in zip(_inner(old), _inner(new), strict=False):
        yield from _pairs(one, other)


def _inner(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _shape(code: CodeType) -> tuple[object, ...]:
    constants = tuple((type(one), repr(one)) for one in code.co_consts if not isinstance(one, CodeType))
    return code.co_code, constants, code.co_names, code.co_varnames, len(_inner(code))
