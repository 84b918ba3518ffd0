"""The journal of an exploration: a file with its input, and one line for each judged crash state."""

import fcntl
import json
import os
from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from raidproof.core.errors import RequestError
from raidproof.crash.sampler import Choice, Policy
from raidproof.crash.states import CrashState
from raidproof.record.exploration import Observation

VERSION = 1
_Kind = TypeVar("_Kind", bound=BaseModel)


class Begun(BaseModel):
    """The first line of a journal: the input of the exploration. A resumed exploration must have the same input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["begun"] = "begun"
    version: int = VERSION
    """Version of the journal's format."""
    cycle: str
    """Name of the crash test whose states are checked."""
    log_digest: str
    """Digest of the write log (`digest_of`)."""
    seed: int
    """Seed of the order of the states."""
    tear: int
    """Number of bytes that a disk writes atomically: the unit in which requests are torn."""
    starts_dirty: bool = False
    """Whether checkers make md start arrays that are both dirty and degraded."""
    lost_member: str | None = None
    """Serial of the member that is lost with the power cut; None: all members survive."""
    scrub: bool = False
    """Whether checks with fsck also scrub the array."""
    all_losses: int | None = None
    """Greatest number of lost requests of an exhaustive exploration; None: the exploration is a sample."""
    uniform: bool = True
    """Whether all orders of the states are equally likely; False: cuts of greater interest tend to come first.

    Journals without this field have the uniform order."""
    recovery: str | None = None
    """Name of the crash state whose recovery was recorded, for states of a second power cut during this recovery."""
    epochs: tuple[int, int] | None = None
    """First and last flush epoch of an exhaustive exploration; None: a sample, or all flush epochs."""


class Line(BaseModel):
    """One judged crash state. If a line has no observation, an earlier line with the same digest has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["state"] = "state"
    state: str
    """The crash state, in the format of `CrashState.dump`."""
    policy: Policy
    number: int
    """Number of the state, see `Choice.number`."""
    digest: str
    """Digest of the disks' content in the state."""
    observation: Observation | None = None
    """What a checker observed in the state; None if an earlier line with the same digest has the observation."""
    cold: Observation | None = None
    """What a newly booted machine observed in the state; None if this check was not requested."""
    worker: str | None = None
    """Name of the worker that checked the state; None: the process of the exploration checked it."""

    @classmethod
    def of(cls, choice: Choice, state: CrashState, digest: str, **seen: Any) -> Self:
        """Return the line of a state; ``digest``: that of its content. ``seen``: what a checker observed."""
        return cls(state=state.dump(), policy=choice.policy, number=choice.number, digest=digest, **seen)

    def dump(self) -> bytes:
        """Return the line as it is in the journal."""
        return self.model_dump_json(exclude_none=True).encode() + b"\n"

    @property
    def choice(self) -> Choice:
        """The cut, policy and number of the state."""
        return Choice(self.crash.cut, self.policy, self.number)

    @property
    def crash(self) -> CrashState:
        """The crash state that ``state`` describes."""
        return CrashState.load(self.state)


class Journal:
    """The file ``states.jsonl`` of one exploration, open for appending. Only one thread may append lines."""

    def __init__(self, path: Path, begun: Begun) -> None:
        """Begin a journal, or continue the existing journal. The file is locked (flock(2)) until `close`.

        Raises:
            RequestError: the existing journal has another input (write log, seed, options), or another process has
                locked the file.
        """
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        """Offset and length of the newest line with an observation, by digest."""
        self._end = 0
        # Observations take 20 KB each: they are read from the file again when a state has the same content.
        self._file = path.open("a+b", buffering=0)
        try:
            self._lock()
            self._end = self._read(begun)
            # Remove the incomplete last line that a killed process has left.
            self._file.truncate(self._end)
            if not self._end:
                self._append(begun.model_dump_json(exclude_none=True).encode() + b"\n")
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            # The kernel releases the lock at the end of the process, even after SIGKILL.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RequestError(
                f"another exploration is writing {self.path}",
                remedy="wait for the end of the other exploration, or omit --resume to write to new files",
            ) from error

    def _read(self, begun: Begun) -> int:
        before = begun_in(self.path)
        if before is None:
            return 0
        for name, was, now in (
            ("cycle", before.cycle, begun.cycle),
            ("recovery", before.recovery, begun.recovery),
            ("write log", before.log_digest, begun.log_digest),
            ("seed", before.seed, begun.seed),
            ("tear", before.tear, begun.tear),
            ("starts dirty", before.starts_dirty, begun.starts_dirty),
            ("lost member", before.lost_member, begun.lost_member),
            ("scrub", before.scrub, begun.scrub),
            ("all losses", before.all_losses, begun.all_losses),
            ("epochs", before.epochs, begun.epochs),
            ("uniform", before.uniform, begun.uniform),
        ):
            if was != now:
                raise RequestError(
                    f"the exploration in {self.path} was begun with {name} {was}, not {now}",
                    remedy=f"resume with {name} {was}, or omit --resume to begin a new exploration",
                )
        end = 0
        for raw in _raw_lines(self.path):
            end = raw.place + len(raw.data)
            if raw.observed:
                self._places[raw.head().digest] = (raw.place, len(raw.data))
        return end

    def stored(self) -> Iterator[Line]:
        """Yield the lines that the journal has, without its first line (`Begun`), one after the other.

        Raises:
            RequestError: as for `read`.
        """
        return lines_of(self.path)

    def add(self, line: Line) -> None:
        """Append a line to the journal.

        Raises:
            OSError: the file cannot be written, for example because the host's disk is full.
        """
        self.add_dump(line.digest if line.observation is not None else None, line.dump())

    def add_dump(self, digest: str | None, line: bytes) -> None:
        """Append a line that `Line.dump` has returned; ``digest``: that of the line; None without an observation.

        Raises:
            OSError: as for `add`.
        """
        begin = self._end
        self._append(line)
        if digest is not None:
            self._places[digest] = (begin, self._end - begin)

    def _append(self, data: bytes) -> None:
        self._end += len(data)
        while data:
            data = data[os.write(self._file.fileno(), data) :]

    def __contains__(self, digest: str) -> bool:
        """Return whether the journal has an observation of the content with this digest."""
        return digest in self._places

    def place(self, digest: str) -> int:
        """Return the offset in bytes of the line with the newest observation of the content with this digest."""
        return self._places[digest][0]

    def observation(self, digest: str) -> Observation:
        """Return the newest observation of the content with this digest, from the file."""
        begin, length = self._places[digest]
        observation = Line.model_validate_json(os.pread(self._file.fileno(), length, begin)).observation
        assert observation is not None  # noqa: S101  `_places` has only lines with an observation
        return observation

    def close(self) -> None:
        """Make the journal durable, close it and release its lock."""
        try:
            os.fsync(self._file.fileno())
        finally:
            self._file.close()


def begun_in(path: Path) -> Begun | None:
    """Return the first line of a journal; None in an empty file.

    Raises:
        RequestError: the line does not have the format of a journal.
    """
    return next((raw.parsed(Begun) for raw in _raw_lines(path)), None)


def lines_of(path: Path, names: Collection[str] | None = None) -> Iterator[Line]:
    """Yield the lines of a journal without its first line (`Begun`); an incomplete last line is ignored.

    ``names``: yield only the states with these names, and the states whose observation is also theirs.

    Raises:
        RequestError: a complete line does not have the format of a journal.
    """
    if names is None:
        yield from (raw.parsed(Line) for raw in _state_lines(path))
        return
    heads = (raw.head() for raw in _state_lines(path))
    wanted = {head.digest for head in heads if CrashState.name_of(head.state) in names}
    for raw in _state_lines(path):
        head = raw.head()
        if CrashState.name_of(head.state) in names or (raw.observed and head.digest in wanted):
            yield raw.parsed(Line)


_OBSERVATION = b',"observation":{'
"""Begin of the field ``observation`` in a line, after the fields before it."""


class _Raw(NamedTuple):
    """A complete line of a journal as bytes."""

    path: Path
    number: int
    """Number of the line, from 1 on."""
    place: int
    """Offset of the line in bytes."""
    data: bytes

    @property
    def observed(self) -> bool:
        """Whether the line has an observation."""
        return _OBSERVATION in self.data

    def head(self) -> Line:
        """Return the line without its observation, which is most of it; raises as `parsed`."""
        before, there, _ = self.data.partition(_OBSERVATION)
        return self._replace(data=before + b"}").parsed(Line) if there else self.parsed(Line)

    def parsed(self, kind: type[_Kind]) -> _Kind:
        """Return the line as an object.

        Raises:
            RequestError: the line does not have the format of a journal.
        """
        try:
            return kind.model_validate_json(self.data)
        except ValidationError as error:
            raise RequestError(
                f"{self.path}:{self.number}: the line does not have the format of a journal: "
                f"{error.errors()[0]['msg']}"
            ) from error


def _raw_lines(path: Path) -> Iterator[_Raw]:
    """Yield the complete lines of a journal."""
    place = 0
    with path.open("rb") as file:
        for number, data in enumerate(file, start=1):
            if not data.endswith(b"\n"):
                return
            yield _Raw(path, number, place, data)
            place += len(data)


def _state_lines(path: Path) -> Iterator[_Raw]:
    """Yield the complete lines of a journal after the first one."""
    return islice(_raw_lines(path), 1, None)


def find_state(paths: Iterator[Path], name: str) -> CrashState | None:
    """Return the crash state with a name; None if no file contains the state.

    ``paths``: journals (``.jsonl``), and other JSON files with dumps of states.
    """
    for path in paths:
        if path.suffix == ".jsonl":
            states = [line.crash for line in lines_of(path)]
        else:
            states = [CrashState.load(dump) for dump in _dumps(json.loads(path.read_text()))]
        for state in states:
            if state.name == name:
                return state
    return None


def _dumps(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in {"dump", "lost_dump"} and isinstance(inner, str):
                yield inner
            else:
                yield from _dumps(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _dumps(inner)


def digest_of(path: Path) -> str:
    """Return the BLAKE2b digest of a write log's file, which identifies the log."""
    hashed = blake2b(digest_size=16)
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            hashed.update(data)
    return hashed.hexdigest()
