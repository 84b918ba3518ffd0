"""The user's own application as a worker of the ledger: its commands, its files, and the reports that it sends."""

import binascii
import hashlib
import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from raidproof.core.errors import RequestError, RigError
from raidproof.guest import application as guest
from raidproof.guest.ledger_format import ACKNOWLEDGE, APPLICATION, END, FRAME, ISSUE, KINDS
from raidproof.image.recipe import VMS

LIBRARY = VMS / "application"
"""The folder with the client libraries for applications, which users copy."""
LIBRARIES = ("raidproof_app.py", "raidproof_app.h")
"""The client libraries; each machine has them beside the files of the application."""
LONGEST_LINE = 100
"""Bytes after which a line without end cannot be a report."""
LARGEST_FILES = 32 << 20
"""Greatest size in bytes of all files of an application, which are in the memory of each machine."""
GENERATION = 1
"""`Operation.generation` of all operations of an application."""
Report = tuple[int, int, int, int]
"""Type, sequence, ID and status of a report, as in a frame of the ledger."""
HOME = "/run/raidproof/application"
"""Beginning of the path of the folder with the application's files in a machine; on a tmpfs."""
PROGRAM = "/run/raidproof/application.py"
"""Path of guest/application.py in a machine."""


class ApplicationError(RigError):
    """The user's application does not keep to the protocol, or one of its commands failed. A scenario ends ERROR."""


class Commands(BaseModel):
    """The commands of an application, which are lists of words, and their limits; see docs/applications.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[str, ...] = Field(default=(), examples=[["a.py"]])
    """Paths of files of this host; the commands run in a folder of the machine that contains these files."""
    prepare: tuple[str, ...] = Field(default=(), examples=[["python3", "a.py", "prepare"]])
    """The command that makes the data before the test; its data count as durable. Empty: no command."""
    run: tuple[str, ...] = Field(min_length=1, examples=[["python3", "a.py"]])
    """The command that works on the data and reports its operations until it is ended by SIGTERM."""
    check: tuple[str, ...] = Field(min_length=1, examples=[["python3", "a.py", "check"]])
    """The command that prints, after a crash, which operations are there."""
    all_machines: bool = False
    """Whether all clients run the application at the same time, each in its own directory; else only the first."""
    prepare_s: float = Field(default=60.0, gt=0)
    """Time limit of the prepare command in seconds."""
    check_s: float = Field(default=10.0, gt=0)
    """Time limit of the check command in seconds."""
    stop_s: float = Field(default=5.0, gt=0)
    """Seconds from SIGTERM to SIGKILL at the end of the run command."""


class ApplicationSpec(Commands):
    """An application: its commands, and where they run."""

    on: Literal["clients", "server"] = "clients"
    """``clients``: the data are on an NFS mount. ``server``: on the server's file system, without NFS."""

    def content(self) -> dict[str, str]:
        """Return the content of the files, in base64, by name; the client libraries included.

        Raises:
            RequestError: a file cannot be read, two files have the same name, or the files are too large.
        """
        paths = [Path(one).expanduser() for one in self.files]
        names = [path.name for path in paths]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise RequestError(f"two files of the application have the name {twice!r}", remedy="rename one of them")
        content: dict[str, bytes] = {}
        for path in (*(LIBRARY / name for name in LIBRARIES), *paths):
            try:
                content[path.name] = path.read_bytes()
            except OSError as error:
                raise RequestError(f"file {path}: {error.strerror}", remedy=_nearest_file(path)) from error
        if (size := sum(map(len, content.values()))) > LARGEST_FILES:
            raise RequestError(f"the files of the application have {size:,} bytes, more than {LARGEST_FILES:,}")
        return {name: binascii.b2a_base64(data, newline=False).decode() for name, data in content.items()}

    def config(self, content: dict[str, str]) -> dict[str, Any]:
        """Return the part of the guest program's configuration about the application.

        ``content``: the files, as `content` returns them. Other files have another folder in the machine.
        """
        names = {"prepare", "run", "check", "prepare_s", "check_s", "stop_s"}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        return {**self.model_dump(mode="json", include=names), "home": f"{HOME}-{digest}", "files": content}


def _nearest_file(path: Path) -> str:
    """Return a remedy for a file that cannot be read: the file of the same folder with the most similar name."""
    try:
        names = [one.name for one in path.absolute().parent.iterdir() if one.is_file()]
    except OSError:
        names = []
    if close := get_close_matches(path.name, [name for name in names if name != path.name], n=1):
        return f"did you mean {str(path.with_name(close[0]))!r}?"
    return "give the path of an existing file" if path.is_absolute() else f"paths are relative to {Path.cwd()}"


class Reports:
    """Translates the lines that one application sends, over one connection, to frames of the ledger.

    A line is dated by its arrival. The sequence of an operation is the number of operations begun before it.
    """

    def __init__(self) -> None:
        self._worker: int | None = None
        self._sequences: dict[int, int] = {}
        self._acknowledged: set[int] = set()
        self._rest = b""

    def take(self, data: bytes, arrived_ns: int) -> bytes:
        """Return the frames of the lines that are complete with ``data``, which arrived at ``arrived_ns``.

        Raises:
            ApplicationError: a line is no report, or a report contradicts an earlier one.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ApplicationError(f"the application sent a line without end: {self._rest[:LONGEST_LINE]!r}")
        return b"".join(self._frame(line, arrived_ns) for line in lines)

    def _frame(self, line: bytes, arrived_ns: int) -> bytes:
        words = line.decode(errors="replace").split(" ")
        try:
            report = self._read(words)
        except ValueError as error:
            raise ApplicationError(f"the application sent the line {line[:LONGEST_LINE]!r}: {error}") from error
        if report is None:
            return b""
        what, sequence, number, status = report
        kind = KINDS.index(APPLICATION)
        return FRAME.pack(what, kind, self._worker or 0, sequence, number, GENERATION, status, arrived_ns)

    def _read(self, words: list[str]) -> Report | None:
        """Return type, sequence, ID and status of a report; None for the first line, which names the worker.

        Raises:
            ValueError: the words are no report, or contradict an earlier report.
        """
        match words:
            case [guest.WORKER, number] if self._worker is None:
                self._worker = guest.number_of(number)
                return None
            case [guest.BEGUN, number]:
                return self._begin(guest.number_of(number))
            case [guest.ACKNOWLEDGED, number]:
                return self._acknowledge(guest.number_of(number))
            case [guest.ENDED, status]:
                return END, len(self._sequences), 0, int(status)
            case [guest.STOPPED]:
                return END, len(self._sequences), 0, 0
        raise ValueError(f"expected '{guest.BEGUN} ID' or '{guest.ACKNOWLEDGED} ID'")

    def _begin(self, number: int) -> Report:
        if number in self._sequences:
            raise ValueError(f"operation {number} has begun before; each operation needs an ID of its own")
        self._sequences[number] = len(self._sequences)
        return ISSUE, self._sequences[number], number, 0

    def _acknowledge(self, number: int) -> Report:
        if number not in self._sequences:
            raise ValueError(f"operation {number} has not begun: send '{guest.BEGUN} {number}' first")
        if number in self._acknowledged:
            raise ValueError(f"operation {number} is acknowledged twice")
        self._acknowledged.add(number)
        return ACKNOWLEDGE, self._sequences[number], number, 0
