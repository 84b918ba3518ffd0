"""The file /etc/fstab of a server or a client, and /proc/mounts, which has the same format (fstab(5))."""

import re
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from raidproof.core.errors import RequestError
from raidproof.core.units import KIB
from raidproof.existing.given import Given, plain, shortened

_OCTAL = re.compile(r"\\([0-7]{3})")
NFS = frozenset({"nfs", "nfs4"})


class Entry(BaseModel):
    """One mount: its source, its mount point, its type and its options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    """``/dev/md0``, ``UUID=...``, ``LABEL=...``, ``server:/path``, or the source of a bind mount."""
    directory: str
    type: str
    options: tuple[str, ...]
    source: str
    """The file and the line."""

    @property
    def bind(self) -> bool:
        """Whether the entry mounts a directory at another place."""
        return "bind" in self.options or "rbind" in self.options

    @property
    def swap(self) -> bool:
        """Whether the entry is no mount of a file system."""
        return self.type == "swap" or self.directory in {"none", "swap"}

    def value(self, *names: str) -> str | None:
        """Return the value of the last option with one of these names; None without one."""
        found = [option.partition("=")[2] for option in self.options if option.partition("=")[0] in names]
        return found[-1] if found else None


def parse_fstab(file: Given) -> tuple[Entry, ...]:
    """Return the entries of the file.

    Raises:
        RequestError: a line has fewer than three fields.
    """
    found = []
    for number, line in file.lines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        fields = [_decoded(word) for word in text.split()]
        if len(fields) < 3:
            file.refuse(number, f"not DEVICE DIRECTORY TYPE OPTIONS: {shortened(text)!r}")
        options = tuple(option for option in (fields[3] if len(fields) > 3 else "defaults").split(",") if option)
        found.append(
            Entry(
                device=fields[0],
                directory=fields[1].rstrip("/") or "/",
                type=fields[2],
                options=options,
                source=file.at(number),
            )
        )
    return tuple(found)


def _decoded(word: str) -> str:
    return plain(_OCTAL.sub(lambda found: chr(int(found[1], 8)), word))


class Way(NamedTuple):
    """The way from a path down to the mount of a file system."""

    mount: Entry | None
    """The mount that holds the path; None if no entry does."""
    path: str
    """The path with bind mounts resolved."""


def resolved(entries: tuple[Entry, ...], path: str) -> Way:
    """Return the mount that holds a path, with bind mounts resolved.

    Raises:
        RequestError: the bind mounts refer to each other in a circle.
    """
    seen: list[Entry] = []
    while (entry := _holding(entries, path)) is not None and entry.bind:
        if entry in seen:
            raise RequestError(f"{entry.source}: the bind mount of {shortened(entry.directory)} refers to itself")
        seen.append(entry)
        path = entry.device + path[len(entry.directory) :] if entry.directory != "/" else entry.device + path
    return Way(entry, path)


def _holding(entries: tuple[Entry, ...], path: str) -> Entry | None:
    """Return the mount that holds a path: the longest mount point; of equal ones the last."""
    holding = [one for one in entries if not one.swap and within(path, one.directory)]
    return max(enumerate(holding), key=lambda pair: (len(pair[1].directory), pair[0]))[1] if holding else None


def within(path: str, directory: str) -> bool:
    """Return whether a path is a directory, or below it."""
    return directory in {"/", path} or path.startswith(f"{directory}/")


def size_in(entry: Entry, name: str) -> int | None:
    """Return an option in bytes, such as rsize; None if the option is missing.

    Raises:
        RequestError: the value is not a number of bytes.
    """
    text = entry.value(name)
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,12})([kKmM]?)", text)
    if found is None:
        raise RequestError(f"{entry.source}: {name}={shortened(text)} is not a number of bytes")
    return int(found[1]) * {"": 1, "k": KIB, "m": KIB * KIB}[found[2].lower()]
