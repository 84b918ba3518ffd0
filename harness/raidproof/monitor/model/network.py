"""What the wire and its round trips let pass."""

from math import ceil, inf

from raidproof.monitor.model.access import Access
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec

EFFICIENCY = 1448 / 1538
"""TCP payload of a full Ethernet frame over what it takes on the wire: 1500 bytes less IP (20), TCP (20) and its
timestamps (12), plus Ethernet's preamble, header, check sum and gap (38). RFC 894, RFC 7323, IEEE 802.3."""
WIRE_SOURCE = "payload over frame, 1448/1538 (RFC 894, RFC 7323, IEEE 802.3)"
RPC_BYTES = 200
"""What call, compound and reply of one READ or WRITE add to its data, about (RFC 5531, RFC 8881)."""
SLOTS = 64
"""Requests that a client of NFSv4.1 and later has outstanding: the default of nfs.max_session_slots."""
DEFAULT_TRANSFER = 1 << 20
"""rsize and wsize where nothing was asked, and the server grants it."""


def round_trip_s(client: LinkSpec, server: LinkSpec) -> float:
    """Return the seconds there and back: each side delays what it sends."""
    return (client.delay + server.delay) / 1e9


def transfer_size(mount: MountSpec, *, write: bool) -> int:
    """Return the bytes of one READ or WRITE."""
    return (mount.wsize if write else mount.rsize) or DEFAULT_TRANSFER


def wire_mb_s(client: LinkSpec, server: LinkSpec, access: Access, transfer: int) -> float:
    """Return the MB/s of file data on full-duplex links: each client's own, and the server's, which they share."""
    one = min(access.size, transfer) if access.sync_every is not None or access.direct else transfer
    useful = EFFICIENCY * one / (one + RPC_BYTES)
    sides = [
        *([client.rate * access.clients] if client.rate else []),
        *([server.rate] if server.rate else []),
    ]
    direction = max(access.read_share, 1 - access.read_share)
    return min((rate / 8e6 * useful / direction for rate in sides), default=inf)


def round_trips_mb_s(client: LinkSpec, server: LinkSpec, access: Access, mount: MountSpec, *, write: bool) -> float:
    """Return the MB/s if nothing but the round trip took time: bytes outstanding over it (Little's law).

    The page cache keeps the slots of a client full; a direct request has only its own parts outstanding.
    More connections (nconnect) share the slots of one session; before NFSv4.1 a client's slots have no practical end.
    """
    trip = round_trip_s(client, server)
    if trip == 0:
        return inf
    transfer = transfer_size(mount, write=write)
    slots = SLOTS if mount.vers in {"4.1", "4.2"} else inf
    if access.direct:
        parts = ceil(access.size / transfer)
        waiting = min(access.depth * access.streams * parts, slots * access.clients)
        return waiting * access.size / parts / trip / 1e6
    return inf if slots == inf else slots * access.clients * transfer / trip / 1e6
