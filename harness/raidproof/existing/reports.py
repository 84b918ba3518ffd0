"""All that was read about an existing server, parsed: the input of the search for its stack."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from raidproof.existing.block_devices import BlockDevices, parse_lsblk
from raidproof.existing.exports import Exported, parse_exports
from raidproof.existing.fstab import Entry, parse_fstab
from raidproof.existing.given import Given
from raidproof.existing.kernel_files import KernelFile, parse_kernel_files
from raidproof.existing.logical_volumes import LogicalVolume, parse_lvs
from raidproof.existing.md import MdArray, parse_detail, parse_examine, parse_mdstat
from raidproof.existing.nfs_conf import NfsConf, parse_nfs_conf
from raidproof.existing.superblock import parse_dumpe2fs, parse_xfs_info
from raidproof.storage.filesystem.state import Superblock

Kind = Literal[
    "exports",
    "nfs-conf",
    "mdadm",
    "examine",
    "mdstat",
    "lsblk",
    "lvs",
    "fstab",
    "xfs-info",
    "dumpe2fs",
    "sysfs",
]

KINDS: tuple[Kind, ...] = get_args(Kind)


class Text(NamedTuple):
    """One text about the server."""

    kind: Kind
    given: Given
    device: str | None = None
    """The device that the text is about, if the text does not name it: of xfs_info and dumpe2fs."""


class FoundSuperblock(NamedTuple):
    """The superblock of a file system on the server."""

    type: str
    superblock: Superblock
    source: str
    device: str | None


@dataclass(frozen=True)
class Reports:
    """The parsed texts. None or empty: no text of this kind was given."""

    exports: tuple[Exported, ...] | None = None
    nfs_conf: NfsConf = field(default_factory=NfsConf)
    arrays: tuple[MdArray, ...] = ()
    """From mdadm --detail if given, else from --examine, else from /proc/mdstat: each array once."""
    devices: BlockDevices | None = None
    volumes: dict[str, LogicalVolume] = field(default_factory=dict)
    """The logical volumes by their names in lsblk."""
    mounts: tuple[Entry, ...] = ()
    """The mounts of the server."""
    superblocks: tuple[FoundSuperblock, ...] = ()
    kernel_files: dict[str, KernelFile] = field(default_factory=dict)
    client_mounts: tuple[Entry, ...] = ()
    """The mounts of type NFS of the clients."""


def reports_of(texts: Sequence[Text], clients: Sequence[Given] = ()) -> Reports:
    """Return the parsed texts about a server, and the files fstab of its clients.

    Raises:
        RequestError: a text is malformed; the message names the text and the line.
    """
    of = {kind: [text.given for text in texts if text.kind == kind] for kind in KINDS}
    arrays: dict[str, MdArray] = {}
    for files, parse in (
        (of["mdadm"], parse_detail),
        (of["examine"], parse_examine),
        (of["mdstat"], parse_mdstat),
    ):
        for given in files:
            for array in parse(given):
                if not any(_same(array, known) for known in arrays.values()):
                    arrays.setdefault(array.name, array)
    exports = [one for given in of["exports"] for one in parse_exports(given)]
    kernel_files = [file for given in of["sysfs"] for file in parse_kernel_files(given).items()]
    return Reports(
        exports=tuple(exports) if of["exports"] else None,
        nfs_conf=_merged([parse_nfs_conf(given) for given in of["nfs-conf"]]),
        arrays=tuple(arrays.values()),
        devices=parse_lsblk(of["lsblk"][-1]) if of["lsblk"] else None,
        volumes={name: one for given in of["lvs"] for name, one in parse_lvs(given).items()},
        mounts=tuple(entry for given in of["fstab"] for entry in parse_fstab(given)),
        superblocks=tuple(_superblock(text) for text in texts if text.kind in {"xfs-info", "dumpe2fs"}),
        kernel_files=dict(kernel_files),
        client_mounts=tuple(
            entry for given in clients for entry in parse_fstab(given) if entry.type.startswith("nfs")
        ),
    )


def _same(one: MdArray, other: MdArray) -> bool:
    """Return whether two descriptions are of the same array, which may have different names in them."""
    if one.name == other.name:
        return True
    names = {member.name for member in one.members}
    return bool(names & {member.name for member in other.members}) and "container" not in {one.level, other.level}


def _superblock(text: Text) -> FoundSuperblock:
    xfs = text.kind == "xfs-info"
    superblock = parse_xfs_info(text.given) if xfs else parse_dumpe2fs(text.given)
    return FoundSuperblock("xfs" if xfs else "ext4", superblock, text.given.name, text.device)


def _merged(files: Sequence[NfsConf]) -> NfsConf:
    """Return the settings of several files; a later file counts before an earlier one."""
    merged: dict[str, object] = {}
    for one in files:
        merged |= {name: fact for name in NfsConf.model_fields if (fact := getattr(one, name)) is not None}
    return NfsConf.model_validate(merged)
