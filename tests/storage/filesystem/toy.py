"""A fictional file system: the smallest complete kind."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from raidproof.core.command import Completed
from raidproof.core.layer import Machine, Value
from raidproof.core.units import MIB, Size
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem import (
    FilesystemCheck,
    FilesystemSpec,
    FilesystemState,
    Mounted,
    Owner,
    Superblock,
    state_of,
)


class ToySpec(FilesystemSpec):
    """The specification of a toy file system."""

    axes: ClassVar[Mapping[str, str]] = {"packing": "how toy packs data", "extent_size": "size of an extent of toy"}
    operations: ClassVar[frozenset[str]] = frozenset({"clone"})
    refused_features: ClassVar[str] = "toyfs: too new"
    damage: ClassVar[str] = "toyfs: broken"
    packages: ClassVar[tuple[str, ...]] = ("toyprogs",)

    type: Literal["toy"] = "toy"
    packing: Literal["none", "tight"] = "none"
    extent_size: Size | None = None

    def least_size(self, geometry: Geometry | None) -> int:
        return MIB

    def mkfs_command(self, device: str, geometry: Geometry | None) -> list[str]:
        alignment = self.alignment(geometry)
        return ["mkfs.toy", f"--packing={self.packing}", f"--stripe={alignment.su if alignment else 0}", device]

    def check_command(self, device: str) -> list[str]:
        return ["toyck", "-n", device]

    def parse_check(self, ended: Completed) -> FilesystemCheck:
        return FilesystemCheck(outcome="clean" if ended.ok else "corrupt", status=ended.status)

    def state(self, machine: Machine, device: str, mounted: Mounted) -> FilesystemState:
        packing, su = machine.succeed(["toyinfo", device]).split()
        found = Superblock(block_size=self.block_size, size=64 * MIB, su=int(su), sw=3 if int(su) else 0)
        return state_of(mounted, found, packing=packing)

    def asked(self, geometry: Geometry | None) -> dict[str, Value]:
        return {**super().asked(geometry), "packing": self.packing}

    @staticmethod
    def commit_s(options: Sequence[str], files: Sequence[float]) -> float:  # noqa: ARG004
        return 7.0

    def owner(self, machine: Machine, device: str, directory: str, offset: int) -> Owner:
        return Owner("data", 3, machine.succeed(["toyowner", device, str(offset)]), offset)
