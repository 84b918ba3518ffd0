"""The file /etc/exports: exports(5) with quoting, continuation lines, default options and several clients a line."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from raidproof.core.errors import RequestError
from raidproof.existing.given import Given, shortened

EVERYBODY = "*"
"""The client of an entry without a host: every host."""
_OCTAL = re.compile(r"\\([0-7]{3})")
_CLIENT = re.compile(r"(?P<host>[^\s()]*)(?:\((?P<options>[^()]*)\))?")
_PREFIX = re.compile(r"^(?P<file>/etc/exports\.d/[^:\s]+\.exports):(?P<line>.*)$")
"""A line of several files in the output of grep, which the directory /etc/exports.d is read with."""
PAIRS = {
    "async": ("sync", False),
    "sync": ("sync", True),
    "no_wdelay": ("wdelay", False),
    "wdelay": ("wdelay", True),
    "ro": ("rw", False),
    "rw": ("rw", True),
    "no_subtree_check": ("subtree_check", False),
    "subtree_check": ("subtree_check", True),
    "no_root_squash": ("root_squash", False),
    "root_squash": ("root_squash", True),
    "no_all_squash": ("all_squash", False),
    "all_squash": ("all_squash", True),
    "secure": ("insecure", False),
    "insecure": ("insecure", True),
}
"""Options that set a field of `Client`: the name of the field and its value."""


_BSD = "BSD and macOS"
_LINUX_ONLY = "only servers with Linux can be imported; their exports(5) has lines PATH HOST(OPTIONS)"
_FOREIGN = {
    **dict.fromkeys(("maproot", "mapall", "alldirs", "network", "mask", "webnfs", "public", "quiet", "index"), _BSD),
    **dict.fromkeys(("access", "root", "anon", "vers", "exname"), "AIX"),
}
"""Options after ``-`` that only the exports files of other systems have, by name; the system for messages."""


class Client(BaseModel):
    """The options of an export for one client pattern, after defaults and inheritance; the last option counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    """Host name, wildcard, network, ``@netgroup``, or ``*``."""
    options: tuple[str, ...]
    """All options as they are written, those of the line's default list first."""
    rw: bool = False
    sync: bool = True
    wdelay: bool = True
    subtree_check: bool = False
    root_squash: bool = True
    all_squash: bool = False
    insecure: bool = False
    fsid: str | None = None
    split_from: str | None = None
    """The host that a space separates from these options, which therefore hold for every host."""

    def value(self, name: str) -> str | None:
        """Return the value of the last option with this name; None without one."""
        found = [option.partition("=")[2] for option in self.options if option.startswith(f"{name}=")]
        return found[-1] if found else None

    def names(self, *options: str) -> bool:
        """Return whether one of the options is written in the file."""
        return any(option in self.options for option in options)


class Exported(BaseModel):
    """One exported directory with its clients."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    source: str
    """The file and the line."""
    clients: tuple[Client, ...]

    @property
    def writer(self) -> Client | None:
        """The first client that may write; None: the export is read-only."""
        return next((client for client in self.clients if client.rw), None)


class _Line(NamedTuple):
    number: int
    text: str
    source: str


def parse_exports(file: Given) -> tuple[Exported, ...]:
    """Return the exports in a file, or in files that ``grep -H`` printed.

    Raises:
        RequestError: a line has no absolute path, an unclosed quote or parenthesis, or a malformed client.
    """
    return tuple(found for line in _logical(file) if (found := _entry(file, line)) is not None)


def _logical(file: Given) -> Iterator[_Line]:
    """Yield the lines without comments, joined where a line ends with a backslash."""
    held, begun, where = "", 0, ""
    for number, line in file.lines():
        prefix = _PREFIX.match(line)
        content = prefix["line"] if prefix else line
        source = f"{file.name}: {prefix['file']}" if prefix else file.at(number)
        if not held:
            begun, where = number, source
        if content.endswith("\\"):
            held += f"{content[:-1]} "
            continue
        text = _without_comment(f"{held}{content}")
        held = ""
        if text.strip():
            yield _Line(begun, text, where)
    if text := _without_comment(held).strip():
        yield _Line(begun, text, where)


def _without_comment(line: str) -> str:
    quoted = False
    for place, character in enumerate(line):
        if character == '"':
            quoted = not quoted
        if character == "#" and not quoted:
            return line[:place]
    return line


def _entry(file: Given, line: _Line) -> Exported | None:
    path, rest = _path(file, line)
    if path == "V4:":
        file.refuse(line.number, "V4: is a line of the exports file of BSD, not of Linux", _LINUX_ONLY)
    if path == "share":
        file.refuse(line.number, "share is a line of dfstab(5) of Solaris, not of exports(5) of Linux", _LINUX_ONLY)
    if not path.startswith("/"):
        file.refuse(line.number, f"an exported path begins with /, not {shortened(path)!r}")
    defaults: tuple[str, ...] = ()
    clients: list[Client] = []
    before = ""
    for word in rest.split():
        if word.startswith("-"):
            _refuse_foreign(file, line, word[1:])
            defaults = _options(file, line, word[1:])
            continue
        found = _CLIENT.fullmatch(word)
        if found is None:
            file.refuse(
                line.number, f"not HOST(OPTIONS): {shortened(word)!r}", "close the parenthesis without a space"
            )
        own = _options(file, line, found["options"] or "")
        if found["host"].startswith("/"):
            file.refuse(line.number, f"several directories in a line, as {_BSD} have them", _LINUX_ONLY)
        split = before if not found["host"] and before else None
        clients.append(_client(found["host"] or EVERYBODY, (*defaults, *own), split))
        before = found["host"] if found["options"] is None else ""
    return Exported(path=path, source=line.source, clients=tuple(clients) or (_client(EVERYBODY, defaults, None),))


def _refuse_foreign(file: Given, line: _Line, text: str) -> None:
    """Refuse an option that is of another system, whose exports file has another syntax."""
    for option in text.split(","):
        name, equals, _ = option.partition("=")
        # Of AIX, ``-rw=HOST:HOST``; Linux has rw without hosts.
        system = "AIX" if name in {"rw", "ro"} and equals else _FOREIGN.get(name)
        if system is not None:
            file.refuse(
                line.number,
                f"-{shortened(option)} is an option of the exports file of {system}, not of Linux",
                _LINUX_ONLY,
            )


def _path(file: Given, line: _Line) -> tuple[str, str]:
    text = line.text.strip()
    if text.startswith('"'):
        path, quote, rest = text[1:].partition('"')
        if not quote:
            file.refuse(line.number, "a quotation mark is not closed")
    else:
        path, _, rest = text.replace("\t", " ").partition(" ")
    path = _OCTAL.sub(lambda found: chr(int(found[1], 8)), path)
    if not path.isprintable():
        file.refuse(line.number, "the path contains a character that cannot be printed")
    # exports(5): /a/ and /a are the same directory.
    return (path.rstrip("/") or path[:1]), rest


def _options(file: Given, line: _Line, text: str) -> tuple[str, ...]:
    options = tuple(option.strip() for option in text.split(",") if option.strip())
    if wrong := next((one for one in options if not re.fullmatch(r"[\w.:@/+=\-]+", one)), None):
        file.refuse(line.number, f"malformed option {shortened(wrong)!r}")
    return options


def _client(host: str, options: tuple[str, ...], split_from: str | None) -> Client:
    fields: dict[str, bool] = {}
    for option in options:
        if option in PAIRS:
            name, value = PAIRS[option]
            fields[name] = value
    found = Client(host=host, options=options, split_from=split_from or None, **fields)
    return found.model_copy(update={"fsid": found.value("fsid")})


def chosen(exports: tuple[Exported, ...], path: str) -> Exported:
    """Return the export of a path; the last one counts, as for exportfs(8).

    Raises:
        RequestError: the path is not exported.
    """
    wanted = path.rstrip("/") or "/"
    found = [one for one in exports if one.path == wanted]
    if not found:
        known = ", ".join(dict.fromkeys(one.path for one in exports)) or "none"
        raise RequestError(f"{shortened(path)} is not exported; exported: {known}")
    return found[-1]
