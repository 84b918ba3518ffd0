"""The ledger's programs in a machine: their files, and the commands that run them."""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from raidproof.guest import (
    application,
    ledger_format,
    ledger_holders,
    ledger_listing,
    ledger_pieces,
    ledger_reader,
    ledger_worker,
    ledger_writer,
)
from raidproof.machine.machine import Machine

FOLDER = "/run/raidproof"
"""Folder of the programs: a tmpfs."""
CONFIG = f"{FOLDER}/ledger.json"
"""Path of the configuration of writer and reader."""
PROGRAMS = (
    ledger_format, ledger_pieces, ledger_worker, ledger_holders, ledger_listing, ledger_writer, ledger_reader
)  # fmt: skip
"""Writer, reader, and the modules that they import."""


def install(machine: Machine, config: str) -> None:
    """Copy writer, reader and their configuration into a machine."""
    install_modules(machine, (*PROGRAMS, application))
    machine.put(config, CONFIG)


def install_modules(machine: Machine, modules: Iterable[ModuleType]) -> None:
    """Copy modules of `raidproof.guest` into the folder of the programs in a machine."""
    sources = [Path(str(module.__file__)) for module in modules]
    machine.install({f"{FOLDER}/{source.name}": source.read_bytes() for source in sources})


def command_of(program: ModuleType, *words: str) -> list[str]:
    """Return the command that runs one of `PROGRAMS` in a machine; ``words``: its arguments.

    The program is imported, so that Python keeps its compiled form; -E and -S leave out what the programs do not use.
    """
    name = program.__name__.rpartition(".")[2]
    return ["python3", "-ESc", f"import sys; sys.path.insert(0, {FOLDER!r}); import {name}; {name}.main()", *words]
