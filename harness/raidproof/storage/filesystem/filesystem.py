"""A filesystem of a machine: created, activated, deactivated, destroyed, checked."""

import re
from collections.abc import Iterable

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequirementMissing, RigError
from raidproof.core.layer import Machine, Value, found_in, require_effective
from raidproof.storage.array import Geometry, disk_path
from raidproof.storage.filesystem import ext4, xfs
from raidproof.storage.filesystem.spec import DIRECTORY, Ext4Spec, XfsSpec
from raidproof.storage.filesystem.state import (
    FilesystemCheck,
    FilesystemState,
    Mounted,
    Superblock,
    findmnt_command,
    parse_findmnt,
)

MKFS_DEADLINE_S = 300.0
CHECK_DEADLINE_S = 600.0
MOUNT_DEADLINE_S = 120.0
"""Long enough for the replay of a full log on slow disks."""


def mount_command(spec: XfsSpec | Ext4Spec, device: str, directory: str = DIRECTORY) -> list[str]:
    """Mount the filesystem, making the directory if need be; a log that is dirty is replayed."""
    options = xfs.mount_options(spec) if isinstance(spec, XfsSpec) else ext4.mount_options(spec)
    chosen = ["--options", ",".join(options)] if options else []
    return ["mount", "--mkdir", "--types", spec.type, *chosen, device, directory]


def mkfs_command(spec: XfsSpec | Ext4Spec, device: str, geometry: Geometry | None) -> list[str]:
    """Make the filesystem, aligned to the array's geometry if that was asked."""
    if isinstance(spec, XfsSpec):
        return xfs.mkfs_command(spec, device, geometry)
    return ext4.mkfs_command(spec, device, geometry)


def check_command(spec: XfsSpec | Ext4Spec, device: str) -> list[str]:
    """Look for damage, change nothing."""
    return xfs.check_command(spec, device) if isinstance(spec, XfsSpec) else ext4.check_command(device)


def parse_check(spec: XfsSpec | Ext4Spec, ended: Completed) -> FilesystemCheck:
    """Read the verdict of the filesystem's own checker.

    Raises:
        RigError: it gave none.
    """
    return xfs.parse_check(ended) if isinstance(spec, XfsSpec) else ext4.parse_check(ended)


def unknown_features(kernel_log: str) -> str | None:
    """Return what the kernel said when it refused a filesystem as too new, or None if it did not."""
    # XFS in xfs_sb_validate_mount, ext4 in ext4_feature_set_ok.
    refused = re.findall(r"^.*(?:has unknown incompatible|unsupported optional) features.*$", kernel_log, re.MULTILINE)
    return refused[-1] if refused else None


class Filesystem:
    """The filesystem on one device of one machine."""

    def __init__(
        self,
        spec: XfsSpec | Ext4Spec,
        machine: Machine,
        device: str,
        geometry: Geometry | None = None,
        directory: str = DIRECTORY,
    ) -> None:
        self.spec = spec
        self.machine = machine
        self.device = device
        self.geometry = geometry
        self.directory = directory

    def create(self) -> None:
        """Make the filesystem. It is not mounted by this."""
        if isinstance(self.spec, Ext4Spec) and (journal := ext4.journal_command(self.spec)):
            self.machine.succeed(journal, deadline_s=MKFS_DEADLINE_S)
        command = mkfs_command(self.spec, self.device, self.geometry)
        if isinstance(self.spec, XfsSpec):
            command += self._left_off(command)
        self.machine.succeed(command, deadline_s=MKFS_DEADLINE_S)
        if isinstance(self.spec, Ext4Spec) and self.spec.log:
            # mke2fs (1.47.2) leaves in the page cache whose journal it is: after a power cut nothing would mount.
            self.machine.succeed(["sync", disk_path(self.spec.log)], deadline_s=MKFS_DEADLINE_S)

    def _left_off(self, command: list[str]) -> list[str]:
        """Return options without which a mkfs.xfs newer than the kernel would make what that cannot mount."""
        features = xfs.beyond(self.machine.get("/proc/sys/kernel/osrelease").strip())
        if not features:
            return []
        planned = self.machine.succeed([command[0], "-N", *command[1:]], deadline_s=MKFS_DEADLINE_S)
        return xfs.without(planned, features)

    def activate(self) -> FilesystemState:
        """Mount it, replaying its log, and check that it is what was asked.

        Raises:
            NotEffective: it is something else.
            RequirementMissing: it has features that this kernel does not know.
        """
        command = mount_command(self.spec, self.device, self.directory)
        mounted = self.machine.run(command, deadline_s=MOUNT_DEADLINE_S)
        if not mounted.ok:
            if said := unknown_features(self.machine.succeed(["dmesg", "--notime"])):
                raise RequirementMissing(
                    f"{self.machine.name}: its kernel does not know all that its own mkfs made: {said}",
                    remedy="choose a newer kernel or an older image",
                )
            raise CommandFailed(mounted)
        return self.require_effective()

    def deactivate(self) -> None:
        """Unmount it."""
        self.machine.succeed(["umount", self.directory], deadline_s=MOUNT_DEADLINE_S)

    def destroy(self) -> None:
        """Make it disappear from its device; it must not be mounted."""
        self.machine.succeed(["wipefs", "--all", self.device])

    def state(self) -> FilesystemState:
        """Read what is mounted.

        Raises:
            RigError: nothing is.
        """
        mounted = parse_findmnt(self.machine.run(findmnt_command(self.directory)).stdout)
        if isinstance(self.spec, XfsSpec):
            if mounted.type != "xfs":
                raise NotEffective(f"{self.directory} is not as asked: type: asked xfs, found {mounted.type}")
            return _state(mounted, xfs.parse_info(self.machine.succeed(xfs.info_command(self.directory))))
        if mounted.type != "ext4":
            raise NotEffective(f"{self.directory} is not as asked: type: asked ext4, found {mounted.type}")
        superblock = ext4.parse_info(self.machine.succeed(ext4.info_command(self.device)))
        # The mount table leaves out what is the default; this file does not.
        effective = self.machine.get(f"/proc/fs/ext4/{self.device.removeprefix('/dev/')}/options")
        data = None if superblock.log == "none" else found_in(r"^data=(\w+)$", effective, "ext4: data mode")
        return _state(mounted, superblock, data, effective.split())

    def require_effective(self) -> FilesystemState:
        """Return its state, if that is what was asked.

        Raises:
            NotEffective: it is not.
        """
        state = self.state()
        require_effective(f"{self.spec.type} on {self.device}", self._asked(), _found(state, self.spec))
        return state

    def check(self) -> FilesystemCheck:
        """Let the filesystem's own checker look for damage; it must not be mounted.

        Raises:
            RigError: the checker gave no verdict.
        """
        command = check_command(self.spec, self.device)
        return parse_check(self.spec, self.machine.run(command, deadline_s=CHECK_DEADLINE_S))

    def _asked(self) -> dict[str, Value]:
        alignment = self.spec.alignment(self.geometry)
        asked: dict[str, Value] = {
            "type": self.spec.type,
            "block_size": self.spec.block_size,
            "su": alignment.su if alignment else 0,
            "sw": alignment.sw if alignment else 0,
            "mount_options": tuple(sorted(self.spec.mount_options)),
        }
        log = "external" if self.spec.log else "internal"
        if isinstance(self.spec, XfsSpec):
            sizes = {"sector_size": self.spec.sector_size, "log_size": self.spec.log_size, "log_su": self.spec.log_su}
            return {**asked, **sizes, "log": log}
        asked["inodes"] = self.spec.inodes
        if not self.spec.journal:
            return {**asked, "log": "none"}
        # How large an external journal is, is not written in the filesystem.
        size = None if self.spec.log else self.spec.log_size
        return {**asked, "log": log, "log_size": size, "data": self.spec.data}


def _state(
    mounted: Mounted, superblock: Superblock, data: str | None = None, options: Iterable[str] = ()
) -> FilesystemState:
    if mounted.type not in {"xfs", "ext4"}:
        raise RigError(f"{mounted.directory} carries {mounted.type}")
    return FilesystemState.model_validate(
        {
            **superblock.model_dump(),
            "type": mounted.type,
            "source": mounted.source,
            "directory": mounted.directory,
            "options": tuple(dict.fromkeys((*mounted.options, *options))),
            "data": data,
        }
    )


def _found(state: FilesystemState, spec: XfsSpec | Ext4Spec) -> dict[str, Value]:
    inodes, asked = state.inodes, spec.inodes if isinstance(spec, Ext4Spec) else None
    if asked and inodes and ext4.enough_inodes(asked, inodes, state.size, state.block_size):
        inodes = asked
    return {
        "inodes": inodes,
        "type": state.type,
        "block_size": state.block_size,
        "su": state.su,
        "sw": state.sw,
        "sector_size": state.sector_size,
        "log": state.log if state.log in {"internal", "none"} else "external",
        "log_size": state.log_size,
        "log_su": state.log_su,
        "data": state.data,
        "mount_options": tuple(sorted(set(spec.mount_options) & set(state.options))),
    }
