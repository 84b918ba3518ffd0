"""What can be done in a machine that answers: run commands, read and write files."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from raidproof.core.log import logger
from raidproof.core.waiting import Deadline, now_ns
from raidproof.machine.transport import Transport


class Remote:
    """A machine over a connection. What is done to files starts no process in it."""

    name: str
    transport: Transport

    def run(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        """Run a command to its end, whatever its status."""
        begun = now_ns()
        completed = self.transport.run(argv, Deadline.after(deadline_s), _bytes(stdin or b""))
        self._log(begun, f", status {completed.status}: {shlex.join(argv)}")
        return completed

    def succeed(
        self, argv: Sequence[str], *, stdin: str | bytes | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> str:
        """Run a command that must end with status 0, and return its standard output.

        Raises:
            CommandFailed: it ended otherwise.
        """
        completed = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout

    def get(self, path: str) -> str:
        """Read a text file.

        Raises:
            CommandFailed: it cannot be read.
        """
        (content,) = self._read([path])
        if isinstance(content, str):
            raise self._failed("cat", path, content)
        return content.decode(errors="replace")

    def read_files(self, paths: Iterable[str]) -> dict[str, str]:
        """Read text files, without the last end of line. What cannot be read, or is empty, is left out."""
        wanted = list(dict.fromkeys(paths))
        found = zip(wanted, self._read(wanted), strict=True)
        text = {path: content.decode(errors="replace") for path, content in found if isinstance(content, bytes)}
        return {path: content.removesuffix("\n") for path, content in text.items() if content}

    def put(self, content: str | bytes, path: str) -> None:
        """Write a file.

        Raises:
            CommandFailed: it cannot be written.
        """
        if failed := self.put_all({path: content}):
            raise self._failed("tee", path, failed[path])

    def put_all(self, files: Mapping[str, str | bytes]) -> dict[str, str]:
        """Write each of these files, and return why those that were not could not be."""
        begun = now_ns()
        contents = {path: _bytes(content) for path, content in files.items()}
        failed = self.transport.write(contents, Deadline.after(DEFAULT_DEADLINE_S))
        for path, content in contents.items():
            what = repr(content.decode()) if len(content) < SHOWN and content.isascii() else f"{len(content)} bytes"
            self._log(begun, f": wrote {what} to {path}{f', refused: {failed[path]}' if path in failed else ''}")
        return failed

    def resolve(self, paths: Iterable[str]) -> list[str]:
        """Return paths without symbolic links.

        Raises:
            CommandFailed: one leads nowhere.
        """
        wanted = list(paths)
        found = self._resolve(wanted)
        for path, real in zip(wanted, found, strict=True):
            if real is None:
                raise self._failed("realpath", path, "No such file or directory")
        return [real for real in found if real is not None]

    def exists(self, path: str) -> bool:
        """Tell whether a path leads to something."""
        return self._resolve([path]) != [None]

    def _read(self, paths: Sequence[str]) -> list[bytes | str]:
        begun = now_ns()
        found = self.transport.read(paths, Deadline.after(DEFAULT_DEADLINE_S))
        self._log(begun, f": read {shlex.join(paths)}")
        return found

    def _resolve(self, paths: Sequence[str]) -> list[str | None]:
        begun = now_ns()
        found = self.transport.resolve(paths, Deadline.after(DEFAULT_DEADLINE_S))
        self._log(begun, f": resolved {shlex.join(paths)}")
        return found

    def _failed(self, program: str, path: str, reason: str) -> CommandFailed:
        """Return the failure as that of the program that a person would try it with."""
        return CommandFailed(Completed((program, path), 1, "", f"{path}: {reason}", self.name))

    def _log(self, begun_ns: int, what: str) -> None:
        logger.debug("%s: %.3f s%s", self.name, (now_ns() - begun_ns) / 1e9, what)


SHOWN = 80
"""A file's content is logged up to so many bytes."""


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
