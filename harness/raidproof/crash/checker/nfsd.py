"""The nfsd of a checker: started once, it serves whatever is mounted; what the agent does of each state with it."""

from pathlib import Path
from typing import Any

from raidproof.machine.machine import Machine
from raidproof.storage.filesystem import DIRECTORY
from raidproof.storage.mount import Mount
from raidproof.storage.mount import mount_command as nfs_mount_command
from raidproof.storage.server import Export
from raidproof.storage.stack import StackSpec


def start_nfsd(export: Export) -> None:
    """Export as a run does, with no period of grace.

    Raises:
        NotEffective: the export is not as asked.
        RigError: a command failed, or nfsd keeps no client records.
    """
    export.activate()
    export.end_grace()


def mount_of(stack: StackSpec, machine: Machine) -> Mount:
    """Return the mount of a run's clients, on the server itself."""
    return Mount(stack.mount, machine, stack.source(machine.address, DIRECTORY))


def below(mount: Mount, root: str) -> str:
    """Return a folder of the file system as it is seen through a mount."""
    return str(Path(mount.directory) / Path(root).relative_to(DIRECTORY))


def nfsd_orders(stack: StackSpec, machine: Machine, root: str) -> dict[str, Any]:
    """Return what the agent does with a mounted state and an nfsd that runs; ``root`` is the ledger's folder."""
    mount = mount_of(stack, machine)
    # What `Export.activate` did to the directory was not done to this file system.
    opened = [["chmod", "1777", DIRECTORY]] if stack.export.root_squash else []
    return {
        "mount": [*opened, nfs_mount_command(mount.spec, mount.source, mount.directory)],
        "unmount": ["umount", mount.directory],
        "root": below(mount, root),
    }
