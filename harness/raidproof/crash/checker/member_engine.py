"""The members of a checker as the disk engine serves them, on any provider: LYING, so that all is undone."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from raidproof.crash.checker.member_files import save_log
from raidproof.crash.states.patch import Patch
from raidproof.disk.client import EngineClient
from raidproof.disk.writelog import MemberInfo


class MemberEngine:
    """The disks of a lab whose members are LYING: what a machine flushes does not become part of the base."""

    def __init__(self, members: Sequence[MemberInfo], engine: EngineClient, folder: Path) -> None:
        self.members = tuple(members)
        self.links: list[list[str]] = []
        """The machine has made its own."""
        self._engine = engine
        self._folder = folder

    def close(self) -> None:
        """Let go of nothing: the lab ends the engine."""

    def show(self, patch: Patch, *, keep: bool = False) -> None:
        """Undo what was written since the base, then apply a patch; ``keep``: the result is the base."""
        path = self._folder / "state.log"
        path.unlink(missing_ok=True)
        patch.write(path, self.members)
        self._engine.show(path, keep=keep)

    def save(self, patch: Patch, path: Path) -> None:
        """Write the base with a patch upon it as a write log, for blank disks.

        Raises:
            OSError: the file exists, or cannot be written.
        """
        with ExitStack() as undo:
            files = []
            for number, member in enumerate(self.members):
                image = self._folder / f"base{number}"
                self._engine.image(member.serial, image)
                files.append(os.open(image, os.O_RDONLY | os.O_CLOEXEC))
                undo.callback(os.close, files[-1])
                undo.callback(image.unlink)
            save_log(self.members, files, patch, path)
