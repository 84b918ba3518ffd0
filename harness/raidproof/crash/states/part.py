"""Requests of crash states, part by part, as records name them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raidproof.core.units import SECTOR
from raidproof.crash.recording import Recording
from raidproof.crash.states.state import CrashState, Survivor
from raidproof.crash.write_owner import Piece, WriteOwner
from raidproof.record.exploration import WriteRecord


class Part(NamedTuple):
    """A part of a request of a state, or all of it."""

    request: int
    start: int
    end: int
    member: int

    @property
    def at(self) -> Piece:
        """Where it begins."""
        return Piece(self.member, self.start)

    def record(self, recording: Recording, known: Mapping[Piece, WriteOwner]) -> WriteRecord:
        """Name it."""
        belonging = known.get(self.at, WriteOwner())
        return WriteRecord(
            request=self.request,
            kind=recording.request(self.request).kind.name.lower(),
            member=recording.members[self.member].serial,
            lba=self.start // SECTOR,
            sectors=(self.end - self.start) // SECTOR,
            stripe=belonging.stripe,
            owner=belonging.owner,
        )


def whole(requests: Iterable[int], cut: int) -> CrashState:
    """Return the state in which these have survived."""
    return CrashState(cut, tuple(map(Survivor, requests)))


def pieces_of(recording: Recording, state: CrashState) -> list[Part]:
    """Return the survivors of a state, each part of one by itself."""
    parts = []
    for number, spans in state.survivors:
        request = recording.request(number)
        for start, end in spans or ((request.offset, request.offset + request.length),):
            parts.append(Part(number, start, end, request.member))
    return parts
