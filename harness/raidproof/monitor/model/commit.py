"""What a wait for durable data costs: the round trip, and what the server's disks do before it may answer."""

from collections.abc import Sequence
from math import inf

from raidproof.monitor.model.drive import flush_ms, random_ms
from raidproof.monitor.model.hardware import Hardware, Member
from raidproof.monitor.model.level import write_work
from raidproof.storage.array import ArraySpec

COMMIT_SOURCE = "COMMIT and FILE_SYNC: RFC 1813 (3.3.7, 3.3.21), RFC 8881 (18.3, 18.32); one log write each"
LOG_WRITE = 4096
"""Bytes of the smallest write of a journal."""


def server_commit_s(hardware: Hardware, spec: ArraySpec, size: int, *, external_log: Member | None = None) -> float:
    """Return the seconds in which a server makes ``size`` new bytes durable: data, then journal, then the flush.

    Each is a random access, for the heads go from one to the other; the reads before a small write to parity come
    before it. A log on a disk of its own costs no seek but still half a turn. Caches that outlive a cut answer with
    the command alone.
    """
    members = hardware.of(spec.members)
    data = _write_ms(hardware, members, spec, size)
    if external_log is None:
        return (data + _write_ms(hardware, members, spec, LOG_WRITE) + _flush_ms(hardware, members)) / 1e3
    log = _one_ms(hardware, external_log, LOG_WRITE, span=0.0)
    return (data + log + _flush_ms(hardware, [*members, external_log])) / 1e3


def _write_ms(hardware: Hardware, members: Sequence[Member], spec: ArraySpec, size: int) -> float:
    work = write_work(spec, size)
    phases = 2 if work.modifies else 1
    return phases * max(_one_ms(hardware, member, work.size, span=member.reach) for member in members)


def _one_ms(hardware: Hardware, member: Member, size: int, *, span: float) -> float:
    profile = member.profile
    if hardware.keeps_writes(member):
        return profile.command_overhead_us / 1e3 + size / 1e3 / (profile.interface_mb_s or inf)
    return random_ms(profile, size, write=True, span=span)


def _flush_ms(hardware: Hardware, members: Sequence[Member]) -> float:
    return max(0.0 if hardware.keeps_writes(member) else flush_ms(member.profile) for member in members)
