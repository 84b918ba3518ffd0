"""A path that carries one transfer after the other."""


class Interface:
    """A cable, a bus or a link of a rate (10^6 bytes a second); None has no limit."""

    def __init__(self, mb_s: float | None, transfers_s: float | None = None) -> None:
        self._ns_per_byte = 1e3 / mb_s if mb_s else 0.0
        self._each_ns = 1e9 / transfers_s if transfers_s else 0.0
        self._free_ns = 0

    def pass_through(self, length: int, now: int) -> int:
        """Carry a transfer that begins now at the earliest; return when it has passed."""
        self._free_ns = max(self._free_ns, now) + self.needed_ns(length)
        return self._free_ns

    def needed_ns(self, length: int) -> int:
        """Return how long a transfer occupies the path: its bytes, or its command if that takes longer."""
        return round(max(length * self._ns_per_byte, self._each_ns))

    def trail(self, length: int, now: int, since: int | None = None) -> int:
        """Carry a transfer whose last byte came only now, the others since then; return when it has passed.

        On a path that had time for it meanwhile nothing is left to wait for; on one that was busy it waits like any
        other. Where nothing is said, the bytes came just as fast as the path carries them.
        """
        needed = self.needed_ns(length)
        self._free_ns = max(self._free_ns, now - needed if since is None else min(since, now - needed)) + needed
        return max(now, self._free_ns)
