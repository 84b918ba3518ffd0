"""What a workload does to the storage below it, without the tool that does it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Access:
    """A stream of requests in its steady state, as the application makes them."""

    size: int
    """Bytes of one request."""
    read_share: float = 0.0
    """Of the requests, 0 to 1; the rest are writes."""
    sequential: bool = True
    depth: int = 1
    """Requests that one stream has outstanding; where not ``direct`` the page cache has more of them."""
    streams: int = 1
    """Over all clients; each has a file, or a part of one, of its own."""
    clients: int = 1
    sync_every: int | None = None
    """Bytes after which a stream waits until they are durable (fsync, or O_SYNC with the request's size)."""
    span: float = 1.0
    """Share of the array, from its beginning, over which the requests are spread: it bounds the seeks."""
    working_set: int | None = None
    """Bytes that are written in all, or again and again; a write cache that holds them hides the disks."""
    direct: bool = False
    """Past the page cache of the client."""
    remote: bool = True
    """Over NFS; otherwise on the server itself."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.depth < 1 or self.streams < 1 or self.clients < 1:
            raise ValueError("size, depth, streams and clients are at least 1")
        if not 0 <= self.read_share <= 1 or not 0 < self.span <= 1:
            raise ValueError("read_share is 0 to 1, span more than 0 and at most 1")
        if self.sync_every is not None and self.sync_every < 1:
            raise ValueError("sync_every is at least 1")
