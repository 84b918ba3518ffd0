"""How busy something has been."""

from dataclasses import dataclass


@dataclass(slots=True)
class Usage:
    """Work of a disk or a controller since it was made."""

    busy_ns: int = 0
    """A rotational disk: its heads seek, wait for the sector or transfer (reading ahead for nobody does not count).
    Flash: at least one channel works. A controller: it transfers or handles a command."""
    requests: int = 0
    """Requests that were answered."""
    bytes: int = 0
    """What they read and wrote."""
    busy_until_ns: int = 0
    """To here ``busy_ns`` is counted already."""

    def work(self, begin_ns: int, end_ns: int) -> None:
        """Count a span of work; what overlaps the one before counts once."""
        begin_ns = max(begin_ns, self.busy_until_ns)
        if end_ns > begin_ns:
            self.busy_ns += end_ns - begin_ns
            self.busy_until_ns = end_ns

    def serve(self, length: int) -> None:
        """Count an answered request."""
        self.requests += 1
        self.bytes += length

    def until(self, now_ns: int) -> "Usage":
        """Return what was done until now, without the rest of what is under way."""
        ahead = max(0, self.busy_until_ns - now_ns)
        return Usage(max(0, self.busy_ns - ahead), self.requests, self.bytes, min(now_ns, self.busy_until_ns))

    def plus(self, before: "Usage") -> "Usage":
        """Return this and what was done before it."""
        return Usage(
            self.busy_ns + before.busy_ns,
            self.requests + before.requests,
            self.bytes + before.bytes,
            self.busy_until_ns,
        )
