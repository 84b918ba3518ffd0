"""The content of a folder with source, as a word: two folders with the same word build the same."""

from collections.abc import Iterator
from pathlib import Path

from raidproof.core import command
from raidproof.core.errors import RigError
from raidproof.image import cache

_GIT = ("git", "--no-optional-locks")
_GIT_DEADLINE_S = 300.0


def identity_of(folder: Path) -> str:
    """Return ``g`` and the commit of a git work tree, and ``-d`` and a digest if files differ from the commit.

    Of another folder return ``t`` and a digest of the names, sizes and times of its files.

    Raises:
        RequirementMissing: the folder is a git work tree, and this host has no git.
        RigError: git fails, or a file vanishes while the folder is read.
    """
    try:
        return _of_git(folder) if (folder / ".git").exists() else f"t{_short(*_stamps(folder))}"
    except FileNotFoundError as error:
        what = f"{folder} changed while it was read: {error.filename} vanished"
        raise RigError(what, remedy="repeat the command") from error


def _of_git(folder: Path) -> str:
    def git(*words: str) -> str:
        return command.succeed([*_GIT, "-C", folder, *words], deadline_s=_GIT_DEADLINE_S)

    commit = git("rev-parse", "--verify", "--short=12", "HEAD").strip()
    changes = git("diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD")
    added = [name for name in git("ls-files", "-z", "--others", "--exclude-standard").split("\0") if name]
    if not changes and not added:
        return f"g{commit}"
    contents = (part for name in sorted(added) for part in (name, _content(folder / name)))
    return f"g{commit}-d{_short(changes, *contents)}"


def _content(path: Path) -> bytes:
    return str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""


def _stamps(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*")):
        status = file.lstat()
        if not file.is_dir():
            yield f"{file.relative_to(folder)} {status.st_size} {status.st_mtime_ns}"


def _short(*parts: str | bytes) -> str:
    return cache.digest(*parts)[:8]
