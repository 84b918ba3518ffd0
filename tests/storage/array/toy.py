"""The least RAID level that works: a stripe over all members but the last, which is never used."""

from raidproof.storage.array.level import Level, Part


class Toy(Level):
    """A stripe with an idle member."""

    name = "toy"
    number = 77
    kernel_name = "toy"

    @property
    def width(self) -> int:
        """All members but one."""
        return self.members - 1

    def capacity(self, member_size: int) -> int:
        """Return the bytes of all members but one."""
        return self.width * member_size

    def places(self, chunk: int) -> tuple[tuple[int, int], ...]:
        """Return the one place of a chunk."""
        return ((chunk % self.width, chunk // self.width),)

    def content(self, role: int, stripe: int) -> tuple[Part, int | None]:
        """Return the content of a chunk of a member."""
        return (Part.UNUSED, None) if role == self.width else (Part.DATA, stripe * self.width + role)
