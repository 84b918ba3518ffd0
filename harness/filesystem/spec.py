"""What may be asked of a filesystem, and how it lies on its array."""

from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from harness.array import Geometry
from harness.errors import RequestError
from harness.layer import PAGE_SIZE, Spec, power_of_two
from harness.units import MIB, SECTOR, Size, format_size

DIRECTORY = "/srv/raidproof"
"""Where the server mounts the filesystem that it exports."""


class Alignment(NamedTuple):
    """How a filesystem is laid out over stripes: bytes on one member, and members of data."""

    su: int
    sw: int


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
    discard: bool = False
    """Discard the whole device before writing: slow, and the disk engine's members are fresh anyway."""
    mount_options: tuple[Annotated[str, Field(pattern=r"^[a-z0-9_]+(=[^,\s]+)?$")], ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        block = self.block_size
        if block > PAGE_SIZE:
            raise RequestError(f"block size {format_size(block)}: {self.page_size_reason}")
        if block < self.least_block_size or not power_of_two(block):
            raise RequestError(f"block size {format_size(block)} is not 1KiB, 2KiB or 4KiB")
        self._refuse_stripe()
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
    """An XFS filesystem that is asked for; sizes in bytes. ``log`` is the serial of the disk with an external log."""

    own_options: ClassVar[frozenset[str]] = frozenset({"logdev", "sunit", "swidth", "noalign", "nouuid", "norecovery"})

    type: Literal["xfs"] = "xfs"
    sector_size: Size = SECTOR
    log: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,20}$")] | None = None

    @model_validator(mode="after")
    def _possible_sector(self) -> Self:
        sector = self.sector_size
        if sector < SECTOR or not power_of_two(sector):
            raise RequestError(f"sector size {format_size(sector)} is not a power of two from 512 on")
        if sector > self.block_size:
            raise RequestError(
                f"sector size {format_size(sector)} is larger than the block size, {format_size(self.block_size)}"
            )
        return self

    def least_size(self, geometry: Geometry | None) -> int:
        """Bytes below which mkfs.xfs (5.19 and later) refuses."""
        # On stripes it makes 8 allocation groups, one of which must have room for a log of 64 MiB.
        return 513 * MIB if self.alignment(geometry) and not self.log else 300 * MIB


class Ext4Spec(_FilesystemSpec):
    """An ext4 filesystem that is asked for; ``data`` is its data mode. Stride is su, stripe width su x sw."""

    own_options: ClassVar[frozenset[str]] = frozenset({"data", "stripe", "noload", "norecovery"})

    type: Literal["ext4"] = "ext4"
    data: Literal["journal", "ordered", "writeback"] = "ordered"
    lazy_init: bool = False
    """Leave inode tables and journal to a kernel thread, which then writes during the measurement."""

    def least_size(self, _geometry: Geometry | None) -> int:
        """Bytes below which a journal has no place."""
        return 8 * MIB


FilesystemSpec = Annotated[XfsSpec | Ext4Spec, Field(discriminator="type")]
"""Either of them, told apart by ``type``."""
