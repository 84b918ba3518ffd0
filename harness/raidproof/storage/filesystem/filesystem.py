"""A filesystem of a machine: created, activated, deactivated, destroyed, checked."""

import re

from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import NotEffective, RequirementMissing
from raidproof.core.layer import Machine, require_effective
from raidproof.storage.array import Geometry
from raidproof.storage.filesystem.spec import DIRECTORY, FILESYSTEMS, MKFS_DEADLINE_S, FilesystemSpec
from raidproof.storage.filesystem.state import (
    FilesystemCheck,
    FilesystemState,
    Found,
    WriteBackState,
    centiseconds,
    findmnt_command,
    parse_findmnt,
)

CHECK_DEADLINE_S = 600.0
MOUNT_DEADLINE_S = 120.0
"""Seconds; long enough to replay a full log on slow disks."""
EXPIRE = "/proc/sys/vm/dirty_expire_centisecs"
WAKE = "/proc/sys/vm/dirty_writeback_centisecs"


def mount_command(spec: FilesystemSpec, device: str, directory: str = DIRECTORY) -> list[str]:
    """Return the command that mounts the filesystem, which creates the directory and replays a dirty log."""
    options = spec.all_mount_options()
    chosen = ["--options", ",".join(options)] if options else []
    return ["mount", "--mkdir", "--types", spec.type, *chosen, device, directory]


def mkfs_command(spec: FilesystemSpec, device: str, geometry: Geometry | None) -> list[str]:
    """Return the command that makes the filesystem, aligned to the array's geometry if requested."""
    return spec.mkfs_command(device, geometry)


def check_command(spec: FilesystemSpec, device: str) -> list[str]:
    """Return the command that looks for damage and changes nothing."""
    return spec.check_command(device)


def parse_check(spec: FilesystemSpec, ended: Completed) -> FilesystemCheck:
    """Parse the verdict of the filesystem's own checker.

    Raises:
        RigError: there is no verdict.
    """
    return spec.parse_check(ended)


def unknown_features(spec: FilesystemSpec, kernel_log: str) -> str | None:
    """Return the kernel's message about a filesystem with unknown features, or None if there is none."""
    refused = re.findall(rf"^.*(?:{spec.refused_features}).*$", kernel_log, re.MULTILINE)
    return refused[-1] if refused else None


def read_write_back(machine: Machine, found: Found) -> WriteBackState:
    """Read the write-back intervals of a machine and of the file system that is mounted there.

    Raises:
        RigError: a file or an option is missing.
    """
    kind = FILESYSTEMS[found.type]
    files = [EXPIRE, WAKE, *kind.commit_files]
    expire, wake, *own = centiseconds("\n".join(machine.read_files(files).values()), files)
    return WriteBackState(expire_s=expire, wake_s=wake, commit_s=kind.commit_s(found.options, own))


class Filesystem:
    """The filesystem on one device of one machine."""

    def __init__(
        self,
        spec: FilesystemSpec,
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
        """Make the filesystem; do not mount it."""
        for command in self.spec.create_commands(self.machine, self.device, self.geometry):
            self.machine.succeed(command, deadline_s=MKFS_DEADLINE_S)

    def activate(self) -> FilesystemState:
        """Mount the filesystem, replaying its log, and verify that it is as requested.

        Raises:
            NotEffective: it is not as requested.
            RequirementMissing: it has features that this kernel does not support.
        """
        command = mount_command(self.spec, self.device, self.directory)
        mounted = self.machine.run(command, deadline_s=MOUNT_DEADLINE_S)
        if not mounted.ok:
            if said := unknown_features(self.spec, self.machine.succeed(["dmesg", "--notime"])):
                raise RequirementMissing(
                    f"{self.machine.name}: its kernel does not know all that its own mkfs made: {said}",
                    remedy="choose a newer kernel or an older image",
                )
            raise CommandFailed(mounted)
        return self.require_effective()

    def deactivate(self) -> None:
        """Unmount the filesystem."""
        self.machine.succeed(["umount", self.directory], deadline_s=MOUNT_DEADLINE_S)

    def destroy(self) -> None:
        """Erase the filesystem's signatures from its device; it must not be mounted."""
        self.machine.succeed(["wipefs", "--all", self.device])

    def state(self) -> FilesystemState:
        """Read the state of the mounted filesystem.

        Raises:
            NotEffective: it is a file system of another kind.
            RigError: nothing is mounted.
        """
        mounted = parse_findmnt(self.machine.run(findmnt_command(self.directory)).stdout)
        if mounted.type != self.spec.type:
            raise NotEffective(f"{self.directory}: file system: asked {self.spec.type}, found {mounted.type}")
        return self.spec.state(self.machine, self.device, mounted)

    def require_effective(self) -> FilesystemState:
        """Return the state, if it is as requested.

        Raises:
            NotEffective: it is not.
        """
        state, spec = self.state(), self.spec
        require_effective(f"{spec.type} on {self.device}", spec.asked(self.geometry), spec.found(state))
        return state

    def check(self) -> FilesystemCheck:
        """Run the filesystem's own checker; the filesystem must not be mounted.

        Raises:
            RigError: the checker gave no verdict.
        """
        command = check_command(self.spec, self.device)
        return parse_check(self.spec, self.machine.run(command, deadline_s=CHECK_DEADLINE_S))
