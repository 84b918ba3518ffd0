"""Small libraries that are loaded into User-mode kernels to get them around what is broken in them."""

from pathlib import Path

from harness import command
from harness.machine import cache, recipe


def compile_library(source: Path, library: Path) -> None:
    """Compile a library that needs no C library of its own.

    Raises:
        RequirementMissing: there is no compiler.
        CommandFailed: it does not compile.
    """
    command.succeed(["gcc", "-O2", "-shared", "-fPIC", "-nostdlib", "-o", library, source])


def epoll_library() -> Path:
    """Return the library that keeps every kernel of the catalogue from losing interrupts; compiled once."""
    source = recipe.VMS / "epoll.c"
    address = cache.digest(source.read_bytes())
    return cache.build("preload", address, lambda partial: compile_library(source, partial / "epoll.so")) / "epoll.so"
