"""What is done to drives behind the back of whoever uses them: flaws, silent corruption, exchanged content."""

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from raidproof.core.errors import RigError
from raidproof.disk.cache import CacheMode
from raidproof.disk.flaw import PARTIAL, Flaw, FlawKind
from raidproof.disk.messages import Power
from raidproof.disk.writelog import Flag, Kind

if TYPE_CHECKING:
    from raidproof.disk.engine import Engine


_OF_FLUSHES = PARTIAL | {FlawKind.DROP_FLUSHES, FlawKind.EARLY_FLUSHES}


def set_flaw(engine: "Engine", serial: str, flaw: Flaw) -> None:
    """Let something be wrong with a drive from now on, beside what is wrong already.

    Raises:
        RigError: no such member; bytes that it does not have; or dropped flushes of a disk that needs none.
    """
    drive = engine.drive(serial)
    end = flaw.offset + (flaw.length or 0)
    if not 0 <= flaw.offset <= end <= drive.spec.size:
        raise RigError(f"{serial} has {drive.spec.size} bytes, the flaw concerns {flaw.offset} to {end}")
    with engine.lock:
        mode = drive.member.mode
        if flaw.kind in _OF_FLUSHES and mode is not CacheMode.VOLATILE:
            raise RigError(f"{serial} has no cache that an honest flush would empty: it is {mode.value}")
        if flaw.kind in PARTIAL:
            # Of what comes from now on it is known what a flush has left out.
            drive.member.flush(lied=False)
            at = engine.clock()
            engine.record(Kind.FLUSH, 0, drive.index, (0, 0), (at, at))
        drive.set_flaw(flaw)
        engine.note(Kind.MARK, data=f"{serial}: {flaw.kind.value} from now on".encode())


def clear_flaws(engine: "Engine", serials: Iterable[str] | None = None) -> None:
    """Let nothing be wrong any more with some drives, or all; what was spoilt stays so.

    Raises:
        RigError: no such member.
    """
    drives = engine.drives if serials is None else [engine.drive(serial) for serial in serials]
    with engine.lock:
        for drive in drives:
            if drive.flaws is not None:
                drive.clear_flaws()
                engine.note(Kind.MARK, data=f"{drive.spec.serial}: no flaws from now on".encode())


def corrupt(engine: "Engine", serial: str, offset: int, length: int, seed: int) -> None:
    """Change every byte of a region, durably, in a way that depends on the seed only; no request fails for it.

    In the write log that is a forced write by nobody, after a mark that tells.

    Raises:
        RigError: no such member or region; or a power cut is under way.
    """
    drive = engine.drive(serial)
    member = drive.member
    if length <= 0 or not 0 <= offset <= drive.spec.size - length:
        raise RigError(f"{serial} has {drive.spec.size} bytes, not {length} from {offset}")
    noise = Random(seed).choices(range(1, 256), k=length)  # noqa: S311  reproducible, no secret
    with engine.lock:
        _require_no_cut(engine)
        powered, member.powered = member.powered, True
        now = bytearray(length)
        member.read_into(memoryview(now), offset)
        spoilt = bytes(byte ^ change for byte, change in zip(now, noise, strict=True))
        member.write(spoilt, offset, True, False)
        member.powered = powered
        at = engine.note(Kind.MARK, data=f"{serial}: {length} bytes at {offset} corrupted, seed {seed}".encode())
        engine.record(Kind.WRITE, Flag.FUA, drive.index, (offset, length), (at, at), data=spoilt)


def swap(engine: "Engine", one: str, other: str) -> None:
    """Let two drives exchange all that they hold, as if each had the other's serial number.

    Raises:
        RigError: no such members, of different sizes, or somebody is connected to them under power.
    """
    drives = engine.drive(one), engine.drive(other)
    first, second = drives
    if first is second or first.spec.size != second.spec.size:
        raise RigError(f"only two drives of one size can be exchanged: {one}, {other}")
    with engine.lock:
        _require_no_cut(engine)
        if engine.power is Power.ON and (used := engine.connected & {one, other}):
            raise RigError(f"drives are exchanged without power only, these are in use: {', '.join(sorted(used))}")
        first.exchange(second)
        engine.note(Kind.SWAP, data=f"{first.index} {second.index}".encode())


def _require_no_cut(engine: "Engine") -> None:
    if engine.power is Power.FROZEN:
        raise RigError("frozen disks cannot be changed: resolve the cut first")
