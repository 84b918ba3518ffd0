"""What an exploration has seen, line by line as it sees it: it may be killed at any time, and whole lines count."""

import fcntl
import json
import os
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from raidproof.core.errors import RequestError
from raidproof.crash.checker.observation import Observation
from raidproof.crash.states.sampler import Choice, Policy
from raidproof.crash.states.state import CrashState

VERSION = 1


class Begun(BaseModel):
    """The first line: what an exploration is of. One that goes on must be of the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["begun"] = "begun"
    version: int = VERSION
    cycle: str
    log_digest: str
    seed: int
    tear: int
    starts_dirty: bool = False


class Line(BaseModel):
    """One judged state. Without an observation it is of the content of an earlier line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal["state"] = "state"
    state: str
    """As `CrashState.dump` wrote it."""
    policy: Policy
    number: int
    """Which of the policy's states at its cut."""
    digest: str
    observation: Observation | None = None
    cold: Observation | None = None
    """What a machine that had just booted saw of it, where one was asked."""

    @property
    def choice(self) -> Choice:
        """What it was chosen by."""
        return Choice(self.crash.cut, self.policy, self.number)

    @property
    def crash(self) -> CrashState:
        """The state."""
        return CrashState.load(self.state)


class Seen:
    """One observation for each content, compressed: a scan is 20 KB, and there may be thousands."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}

    def __contains__(self, digest: str) -> bool:
        return digest in self._packed

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, digest: str) -> Observation:
        return Observation.model_validate_json(zlib.decompress(self._packed[digest]))

    def __setitem__(self, digest: str, observation: Observation) -> None:
        self._packed[digest] = zlib.compress(observation.model_dump_json().encode(), 1)


class Journal:
    """``states.jsonl`` of one exploration, open for more. Lines are written by one thread."""

    def __init__(self, path: Path, begun: Begun) -> None:
        """Begin a journal, or go on with the one that is there; nobody else can until it is closed.

        Raises:
            RequestError: it is of another log or seed, or somebody else writes it.
        """
        self.path = path
        self.lines: list[Line] = []
        """Those that were there already."""
        self._file = path.open("ab", buffering=0)
        try:
            self._lock()
            end = self._read(begun)
            # What a killed process has left of its last line goes.
            self._file.truncate(end)
            if not end:
                self._append(begun)
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            # The kernel lets go of it with the process, however that ends.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RequestError(
                f"{self.path} is being written by another exploration",
                remedy="wait until it has ended; without --resume, another one has files of its own",
            ) from error

    def _read(self, begun: Begun) -> int:
        before, lines, end = read(self.path)
        if before is None:
            return 0
        for name, was, now in (
            ("cycle", before.cycle, begun.cycle),
            ("write log", before.log_digest, begun.log_digest),
            ("seed", before.seed, begun.seed),
            ("tear", before.tear, begun.tear),
            ("starts dirty", before.starts_dirty, begun.starts_dirty),
        ):
            if was != now:
                raise RequestError(
                    f"{self.path} was begun with {name} {was}, not {now}",
                    remedy="go on with the same, or begin anew without --resume",
                )
        self.lines = lines
        return end

    def add(self, line: Line) -> None:
        """Append a line.

        Raises:
            OSError: the disk is full.
        """
        self._append(line)

    def _append(self, what: BaseModel) -> None:
        data = what.model_dump_json(exclude_none=True).encode() + b"\n"
        while data:
            data = data[os.write(self._file.fileno(), data) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> tuple[Begun | None, list[Line], int]:
    """Return the first line of a journal, the others, and where the last whole one ends; the rest is ignored.

    Raises:
        RequestError: a whole line is none of a journal.
    """
    begun: Begun | None = None
    lines: list[Line] = []
    end = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                break
            try:
                if begun is None:
                    begun = Begun.model_validate_json(raw)
                else:
                    lines.append(Line.model_validate_json(raw))
            except ValidationError as error:
                raise RequestError(
                    f"{path}:{number}: not a line of an exploration: {error.errors()[0]['msg']}"
                ) from error
            end += len(raw)
    return begun, lines, end


def find_state(paths: Iterator[Path], name: str) -> CrashState | None:
    """Return the state of this name from journals, or from dumps in any JSON that stands beside them."""
    for path in paths:
        if path.suffix == ".jsonl":
            states = [line.crash for line in read(path)[1]]
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
    """Return what tells one write log from another."""
    hashed = blake2b(digest_size=16)
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            hashed.update(data)
    return hashed.hexdigest()
