"""A fake machine that records its commands and gives prepared answers."""

from collections.abc import Callable, Sequence

from raidproof.core.command import DEFAULT_DEADLINE_S, CommandFailed, Completed
from tests.guest_files import FilesByCommands

Answer = Callable[[tuple[str, ...]], Completed | None]


def said(
    argv: Sequence[str], stdout: str = "", stderr: str = "", status: int = 0, where: str = "client1"
) -> Completed:
    return Completed(tuple(argv), status, stdout, stderr, where)


class Guest(FilesByCommands):
    """A fake machine that answers as ``answer`` does, with nothing by default."""

    def __init__(self, name: str = "client1", answer: Answer = lambda _: None) -> None:
        self.name = name
        self.address = "10.77.0.11"
        self.ran: list[tuple[str, ...]] = []
        self._answer = answer

    def run(
        self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> Completed:
        words = tuple(argv)
        self.ran.append(words)
        return self._answer(words) or Completed(words, 0, "", "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = DEFAULT_DEADLINE_S) -> str:
        ended = self.run(argv, stdin=stdin, deadline_s=deadline_s)
        if not ended.ok:
            raise CommandFailed(ended)
        return ended.stdout

    @property
    def programs(self) -> list[str]:
        """The programs that were run, without wrappers."""
        return [words[5] if words[0] == "env" else words[0] for words in self.ran]
