"""Files of a fake machine, read and written by its usual commands."""

from collections.abc import Iterable, Mapping
from typing import Any

from raidproof.core.errors import RigError


def parse_read(text: str) -> dict[str, str]:
    """Read what ``grep -sH '' PATH...`` has printed into path and content; lines of one file are joined again.

    Raises:
        RigError: the last line is not whole, so the output was cut off.
    """
    if not text.endswith("\n"):
        raise RigError(f"nothing was read, or not all of it: {text[-200:]!r}")
    content: dict[str, str] = {}
    for line in text.splitlines():
        path, colon, value = line.partition(":")
        if not colon:
            raise RigError(f"not a path and a line of it: {line!r}")
        content[path] = f"{content[path]}\n{value}" if path in content else value
    return content


class FilesByCommands:
    """Base of fake machines whose ``run`` and ``succeed`` answer ``cat``, ``grep``, ``tee`` and ``realpath``."""

    run: Any
    succeed: Any

    def get(self, path: str) -> str:
        return str(self.succeed(["cat", path]))

    def read_files(self, paths: Iterable[str]) -> dict[str, str]:
        said = self.run(["grep", "-sH", "", *paths]).stdout
        return parse_read(said) if said else {}

    def put(self, content: str | bytes, path: str) -> None:
        self.succeed(["tee", path], stdin=content)

    def put_all(self, files: Mapping[str, str | bytes]) -> dict[str, str]:
        ended = {path: self.run(["tee", path], stdin=content) for path, content in files.items()}
        return {path: one.stderr for path, one in ended.items() if not one.ok}

    def resolve(self, paths: Iterable[str]) -> list[str]:
        return str(self.succeed(["realpath", "--canonicalize-existing", *paths])).split()

    def exists(self, path: str) -> bool:
        return bool(self.run(["test", "-e", path]).ok)

    def require_raid6(self) -> None:
        """Do nothing: this machine has RAID6 algorithms."""
