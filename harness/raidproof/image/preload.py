"""Small libraries that are loaded into User-mode kernels to get them around what is broken in them."""

from pathlib import Path

from raidproof.core import command
from raidproof.image import cache, recipe


def compile_library(source: Path, library: Path) -> None:
    """Compile a library that needs no C library of its own.

    Raises:
        RequirementMissing: there is no compiler.
        CommandFailed: it does not compile.
    """
    command.succeed(["gcc", "-O2", "-shared", "-fPIC", "-nostdlib", "-o", library, source])


def libraries() -> list[Path]:
    """Return what every kernel of the catalogue needs.

    Not to lose interrupts and alarms, nor its network for want of memory, and disks that can be sent zeroes.
    """
    return [_compiled("epoll"), _compiled("memory"), _compiled("receive"), _compiled("alarm")]


def _compiled(name: str) -> Path:
    source = recipe.VMS / f"{name}.c"
    file = f"{name}.so"
    address = cache.digest(source.read_bytes())
    return cache.build("preload", address, lambda partial: compile_library(source, partial / file)) / file
