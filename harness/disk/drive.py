"""One member disk with what the engine counts about it."""

from random import Random

from harness.disk.cache import CutPolicy, Fate, Member
from harness.disk.messages import Counters, MemberSpec


class Drive:
    """One member with what the engine counts about it."""

    def __init__(self, index: int, spec: MemberSpec) -> None:
        self.index = index
        self.spec = spec
        self.member = Member(spec.serial, spec.size, spec.mode)
        self.clear_counters()

    def clear_counters(self) -> None:
        """Begin to count anew."""
        self.reads = self.writes = self.flushes = self.fua = self.discards = self.zeroes = self.lied = 0
        self.read_bytes = self.written_bytes = self.discarded_bytes = 0

    def counters(self) -> Counters:
        """Return what was counted."""
        member = self.member
        return Counters(
            serial=member.serial,
            reads=self.reads,
            writes=self.writes,
            flushes=self.flushes,
            fua=self.fua,
            discards=self.discards,
            zeroes=self.zeroes,
            read_bytes=self.read_bytes,
            written_bytes=self.written_bytes,
            discarded_bytes=self.discarded_bytes,
            lied=self.lied,
            pending=member.pending,
            pending_bytes=member.pending_bytes,
        )

    def cut(self, policy: CutPolicy, seed: int) -> Fate:
        """Take the power away; what is left depends on the seed, the serial and what was pending."""
        return cut(self.member, policy, seed)


def cut(member: Member, policy: CutPolicy, seed: int) -> Fate:
    """Cut the power of a member; what is left depends on the seed and the serial only."""
    return member.cut(policy, Random(f"{seed}/{member.serial}"))  # noqa: S311  a seeded choice, no secret
