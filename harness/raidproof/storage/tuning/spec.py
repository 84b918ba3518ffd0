"""What may be asked of the kernel's knobs."""

from typing import Literal, Self

from pydantic import Field, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.layer import PAGE_SIZE, Spec
from raidproof.core.units import KIB, Size, format_size

USUAL_WRITE_BACK = {"dirty_expire": 30, "dirty_writeback": 5, "xfs_sync": 30}
"""Linux's defaults, in seconds."""


class TuningSpec(Spec):
    """Knobs that are asked for; None leaves one as it is. Sizes in bytes."""

    scheduler: Literal["none", "mq-deadline", "kyber", "bfq"] | None = None
    """The I/O scheduler of each member."""
    nr_requests: int | None = Field(default=None, ge=4, le=65536)
    """Requests that may wait at each member; below 4 the kernel takes 4."""
    read_ahead: Size | None = None
    """Of each member. What is read through the array follows array_read_ahead."""
    max_request: Size | None = None
    """The largest request that a member is given (max_sectors_kb)."""
    array_read_ahead: Size | None = None
    stripe_cache_size: int | None = None
    """Stripes that md keeps in memory; each takes a page for every member. RAID4, 5 and 6 only."""
    md_threads: int | None = Field(default=None, ge=0, le=8192)
    """Threads that help md with stripes (group_thread_cnt); 0 is the array's own alone. RAID4, 5 and 6 only."""
    sync_speed_min: Size | None = None
    """Bytes per second that a resync takes at least of each member, whatever else wants them."""
    sync_speed_max: Size | None = None
    server_dirty_bytes: Size | None = None
    server_dirty_background_bytes: Size | None = None
    server_dirty_expire_s: float | None = Field(default=None, ge=0.01, le=3600)
    """Age from which the server writes dirty data back that no client has asked to be durable."""
    server_dirty_writeback_s: float | None = Field(default=None, ge=0.01, le=3600)
    """How often the server looks for such data."""
    server_xfs_sync_s: float | None = Field(default=None, ge=1, le=72)
    """How often XFS on the server writes its log out, and with it the metadata that no client has asked for."""
    client_dirty_bytes: Size | None = None
    """Written but not yet sent to the server: beyond it, write() waits."""
    client_dirty_background_bytes: Size | None = None
    """Beyond it, the client begins to send."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name in ("read_ahead", "array_read_ahead"):
            if (size := getattr(self, name)) is not None and size % PAGE_SIZE:
                raise RequestError(f"{name} {format_size(size)}: the kernel rounds down to whole pages of 4KiB")
        if self.max_request is not None and (self.max_request < PAGE_SIZE or self.max_request % KIB):
            raise RequestError(f"max_request {format_size(self.max_request)}: whole KiB, at least a page of 4KiB")
        if self.stripe_cache_size is not None and not 17 <= self.stripe_cache_size <= 32768:
            raise RequestError(f"stripe_cache_size {self.stripe_cache_size}: md takes 17 to 32768")
        for name in ("sync_speed_min", "sync_speed_max"):
            if (speed := getattr(self, name)) is not None and (speed < KIB or speed % KIB):
                raise RequestError(f"{name} {format_size(speed)}: md counts in whole KiB per second, from 1 on")
        if self.sync_speed_min and self.sync_speed_max and self.sync_speed_min > self.sync_speed_max:
            raise RequestError("sync_speed_min is more than sync_speed_max")
        for whose in ("server", "client"):
            _refuse_dirty(
                whose, getattr(self, f"{whose}_dirty_bytes"), getattr(self, f"{whose}_dirty_background_bytes")
            )
        return self

    def caveats(self) -> tuple[str, ...]:
        """What makes a loss under these knobs another one than that of a deployed server."""
        asked = {name: getattr(self, f"server_{name}_s") for name in USUAL_WRITE_BACK}
        changed = [
            f"{name} is {asked[name]:g} s, not {usual} s"
            for name, usual in USUAL_WRITE_BACK.items()
            if asked[name] not in {None, usual}
        ]
        meaning = "when the server writes back by itself decides how much an async export loses"
        return (f"{', '.join(changed)}: {meaning}",) if changed else ()

    @property
    def parity_only(self) -> tuple[str, ...]:
        """What was asked and only RAID4, 5 and 6 have."""
        return tuple(name for name in ("stripe_cache_size", "md_threads") if getattr(self, name) is not None)


def _refuse_dirty(whose: str, limit: int | None, background: int | None) -> None:
    if limit is not None and limit < 2 * PAGE_SIZE:
        raise RequestError(f"{whose}_dirty_bytes {format_size(limit)}: the kernel takes no less than two pages, 8KiB")
    if background is not None and background < PAGE_SIZE:
        raise RequestError(f"{whose}_dirty_background_bytes {format_size(background)}: less than a page, 4KiB")
    if limit is not None and background is not None and background >= limit:
        raise RequestError(
            f"{whose}_dirty_background_bytes {format_size(background)} is not below "
            f"{whose}_dirty_bytes {format_size(limit)}: the kernel would take half of that instead"
        )
