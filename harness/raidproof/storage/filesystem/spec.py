"""What may be asked of a filesystem, and how it lies on its array."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.layer import PAGE_SIZE, Spec, power_of_two
from raidproof.core.units import GIB, KIB, MIB, SECTOR, Size, format_size
from raidproof.storage.array import Geometry

DIRECTORY = "/srv/raidproof"
"""Where the server mounts the filesystem that it exports."""

_LEAST_LOG = 64 * MIB
_MOST_LOG_UNIT = 256 * KIB
# Blocks, as mke2fs has them.
_LEAST_JOURNAL, _MOST_JOURNAL = 1024, 10_240_000


class Alignment(NamedTuple):
    """How a filesystem is laid out over stripes: bytes on one member, and members of data."""

    su: int
    sw: int


def _split(value: Any) -> Any:
    return tuple(value.split(",")) if isinstance(value, str) else value


class _FilesystemSpec(Spec):
    """What every filesystem can be asked.

    ``su`` (bytes) and ``sw`` (stripe units in a whole stripe) are taken from the array if ``aligned`` and not given.
    """

    page_size_reason: ClassVar[str] = "the kernel mounts no blocks beyond the page size, 4KiB"
    least_block_size: ClassVar[int] = 1024
    own_options: ClassVar[frozenset[str]]

    block_size: Size = PAGE_SIZE
    su: Size | None = None
    sw: int | None = None
    aligned: bool = True
    log: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")] | None = None
    """The serial of the disk with an external log (XFS) or journal (ext4)."""
    log_size: Size | None = None
    """Bytes of the log or journal."""
    discard: bool = False
    """Discard the whole device before writing: slow, and the disk engine's members are fresh anyway."""
    mount_options: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[a-z0-9_]+(=[^,\s]+)?$")], ...], BeforeValidator(_split)
    ] = ()
    """One by one, or as mount(8) has them: ``"sync,noatime"``."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        block = self.block_size
        if block > PAGE_SIZE:
            raise RequestError(f"block size {format_size(block)}: {self.page_size_reason}")
        if block < self.least_block_size or not power_of_two(block):
            raise RequestError(f"block size {format_size(block)} is not 1KiB, 2KiB or 4KiB")
        self._refuse_stripe()
        if self.log_size is not None and (self.log_size % block or self.log_size < block):
            raise RequestError(
                f"log_size {format_size(self.log_size)} is not a multiple of the block size, {format_size(block)}"
            )
        for option in self.mount_options:
            if option.partition("=")[0] in self.own_options:
                raise RequestError(f"mount option {option}: it follows from a field of the request, so ask there")
        return self

    def _refuse_stripe(self) -> None:
        if (self.su is None) != (self.sw is None):
            raise RequestError("su and sw go together: give both or neither")
        if self.su is None or self.sw is None:
            return
        if not self.aligned:
            raise RequestError("su and sw were given, yet no alignment was asked for")
        if self.sw < 1:
            raise RequestError(f"sw {self.sw}: a stripe has at least one unit")
        self._refuse_unit(self.su)

    def _refuse_unit(self, unit: int) -> None:
        if unit < 1 or unit % self.block_size:
            raise RequestError(
                f"su {format_size(unit)} is not a multiple of the block size, {format_size(self.block_size)}"
            )

    def alignment(self, geometry: Geometry | None) -> Alignment | None:
        """How it will lie on an array of this geometry; None is without any alignment.

        Raises:
            RequestError: the array's stripe unit is not a multiple of the block size.
        """
        if self.su is not None and self.sw is not None:
            return Alignment(self.su, self.sw)
        if geometry is None or not self.aligned:
            return None
        self._refuse_unit(geometry.stripe_unit)
        return Alignment(geometry.stripe_unit, geometry.data_disks)


class XfsSpec(_FilesystemSpec):
    """An XFS filesystem that is asked for; sizes in bytes.

    ``log_su`` is the log's stripe unit: each write of the log is a multiple of it.
    """

    own_options: ClassVar[frozenset[str]] = frozenset({"logdev", "sunit", "swidth", "noalign", "nouuid", "norecovery"})

    type: Literal["xfs"] = "xfs"
    sector_size: Size = SECTOR
    log_su: Size | None = None

    @model_validator(mode="after")
    def _possible_sector(self) -> Self:
        sector = self.sector_size
        if sector < SECTOR or not power_of_two(sector):
            raise RequestError(f"sector size {format_size(sector)} is not a power of two from 512 on")
        if sector > self.block_size:
            raise RequestError(
                f"sector size {format_size(sector)} is larger than the block size, {format_size(self.block_size)}"
            )
        self._refuse_log()
        return self

    def _refuse_log(self) -> None:
        if self.log_size is not None and not _LEAST_LOG <= self.log_size < 2 * GIB:
            raise RequestError(f"log_size {format_size(self.log_size)}: mkfs.xfs makes logs of 64MiB to below 2GiB")
        unit = self.log_su
        if unit is None:
            return
        if unit < 1 or unit % self.block_size or unit > _MOST_LOG_UNIT:
            raise RequestError(
                f"log_su {format_size(unit)} is not a multiple of the block size, {format_size(self.block_size)}, "
                "up to 256KiB"
            )
        if self.log_size is not None and self.log_size % unit:
            raise RequestError(
                f"log_size {format_size(self.log_size)} is not a multiple of log_su, {format_size(unit)}"
            )

    def least_size(self, geometry: Geometry | None) -> int:
        """Bytes below which mkfs.xfs (5.19 and later) refuses."""
        if self.log:
            return 300 * MIB
        # It makes 8 allocation groups on stripes and 4 elsewhere, one of which must have room for the log.
        aligned = self.alignment(geometry) is not None
        return max(513 * MIB if aligned else 300 * MIB, (8 if aligned else 4) * (self.log_size or 0) + MIB)


class Ext4Spec(_FilesystemSpec):
    """An ext4 filesystem that is asked for; ``data`` is its data mode. Stride is su, stripe width su x sw."""

    own_options: ClassVar[frozenset[str]] = frozenset(
        {"data", "stripe", "noload", "norecovery", "journal_path", "journal_dev"}
    )

    type: Literal["ext4"] = "ext4"
    data: Literal["journal", "ordered", "writeback"] = "ordered"
    lazy_init: bool = False
    """Leave inode tables and journal to a kernel thread, which then writes during the measurement."""
    journal: bool = True
    inodes: Annotated[int, Field(ge=64, lt=2**32)] | None = None
    """How many at least: mke2fs fills up the tables' blocks, of which each group has the same number."""

    @model_validator(mode="after")
    def _possible_journal(self) -> Self:
        if self.log_size is not None and not _LEAST_JOURNAL <= self.log_size // self.block_size <= _MOST_JOURNAL:
            raise RequestError(
                f"log_size {format_size(self.log_size)}: a journal has {_LEAST_JOURNAL} to {_MOST_JOURNAL} blocks"
            )
        if self.log is None and self.log_size is not None and self.log_size % MIB:
            raise RequestError(f"log_size {format_size(self.log_size)}: mkfs.ext4 counts in whole MiB")
        if not self.journal and (self.log or self.log_size or self.data != "ordered"):
            raise RequestError("log, log_size and data = journal or writeback need a journal")
        return self

    def least_size(self, _geometry: Geometry | None) -> int:
        """Bytes below which a journal has no place."""
        # mke2fs refuses a journal of more than half of the blocks.
        return max(8 * MIB, 2 * (self.log_size or 0) + 8 * MIB if not self.log else 0)


FilesystemSpec = Annotated[XfsSpec | Ext4Spec, Field(discriminator="type")]
"""Either of them, told apart by ``type``."""
