"""One member disk with what the engine counts about it."""

from random import Random

from raidproof.disk.cache import CutPolicy, Fate, Member
from raidproof.disk.flaw import Flaw, Flaws
from raidproof.disk.messages import Counters, MemberSpec, Struck


class Drive:
    """One member with what the engine counts about it."""

    def __init__(self, index: int, spec: MemberSpec) -> None:
        self.index = index
        self.spec = spec
        self.member = Member(spec.serial, spec.size, spec.mode)
        self.flaws: Flaws | None = None
        """What is wrong with it; None where nothing is, which is all that a sound drive's requests look at."""
        self.clear_counters()

    def clear_counters(self) -> None:
        """Begin to count anew, on a drive with which nothing is wrong."""
        self.reads = self.writes = self.flushes = self.fua = self.discards = self.zeroes = self.lied = 0
        self.read_bytes = self.written_bytes = self.discarded_bytes = 0
        self._history = Flaws(self.spec.serial, self.spec.size)
        self.flaws = None

    def set_flaw(self, flaw: Flaw) -> None:
        """Let something be wrong from now on."""
        self.flaws = self._history
        self.flaws.add(flaw)

    def clear_flaws(self) -> None:
        """Let nothing be wrong any more; how often it struck is still counted."""
        self._history.clear()
        self.flaws = None

    def exchange(self, other: "Drive") -> None:
        """Take what another drive holds, and give it this one's; each keeps its serial and its mode."""
        modes = self.member.mode, other.member.mode
        self.member, other.member = other.member, self.member
        for drive, mode in zip((self, other), modes, strict=True):
            drive.member.serial = drive.spec.serial
            drive.member.mode = mode

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
            errors=self._history.errors,
            struck=tuple(Struck(kind, times) for kind, times in self._history.struck.items() if times),
        )

    def cut(self, policy: CutPolicy, seed: int) -> Fate:
        """Take the power away; what is left depends on the seed, the serial and what was pending."""
        return cut(self.member, policy, seed)


def cut(member: Member, policy: CutPolicy, seed: int) -> Fate:
    """Cut the power of a member; what is left depends on the seed and the serial only."""
    return member.cut(policy, Random(f"{seed}/{member.serial}"))  # noqa: S311  a seeded choice, no secret
