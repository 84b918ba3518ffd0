"""The lines by which an administrator gives a server and its clients a tested configuration.

The lines are made by the functions that make the harness's own commands. Names of devices, folders and machines are
placeholders; what only the harness needs (a forced overwrite, the host of the array's name) is left out.
"""

import shlex
from collections.abc import Iterator, Sequence
from enum import StrEnum

from raidproof.core.layer import State
from raidproof.storage import mount as client
from raidproof.storage.array import disk_path
from raidproof.storage.filesystem import filesystem as local
from raidproof.storage.member import Assembly
from raidproof.storage.stack import StackSpec
from raidproof.storage.tuning import dirty_values, md_values, queue_values, sysctl_line, udev_rule, write_back_values
from raidproof.storage.volume import NAME

COMMAND = "command"
"""The place of a line that is a command, and not part of a file."""
ARRAY = "/dev/md/YOUR-ARRAY"
VOLUME = "YOUR-VOLUME"
EXPORT, MOUNT_POINT = "/YOUR/EXPORT", "/YOUR/MOUNT-POINT"
SERVER, CLIENTS = "YOUR-SERVER", "YOUR-CLIENTS"
KERNEL_MD, KERNEL_MEMBER = "YOUR-MD-DEVICE", "YOUR-MEMBER-DEVICE"
SYSCTL, UDEV = "/etc/sysctl.d/90-nfs.conf", "/etc/udev/rules.d/90-nfs.rules"


class Work(StrEnum):
    """What a changed setting or line takes on a server that exists, the least first."""

    NONE = "none"
    """The line is the same as that of the current configuration."""
    IN_PLACE = "in place"
    """Takes effect while clients work."""
    RESTART = "restart of the NFS server"
    REMOUNT = "new mount"
    """The file system or the export is unmounted and mounted again."""
    FILESYSTEM = "new file system"
    """mkfs destroys all data of the file system."""
    ARRAY = "new array"
    """The creation of an array destroys all data on the members."""

    @property
    def destroys(self) -> bool:
        """Whether this work destroys data."""
        return self in {Work.FILESYSTEM, Work.ARRAY}


HEAVIEST_LAST = tuple(Work)
"""All kinds of work, the least first."""
_OF_LAYER = {
    "array": Work.ARRAY,
    "volume": Work.FILESYSTEM,
    "filesystem": Work.FILESYSTEM,
    "export": Work.IN_PLACE,
    "mount": Work.REMOUNT,
    "tuning": Work.IN_PLACE,
    "link": Work.IN_PLACE,
}
_OF_FIELD = {
    "array.bitmap": Work.IN_PLACE,
    "array.bitmap_chunk": Work.IN_PLACE,
    "filesystem.mount_options": Work.REMOUNT,
    "filesystem.data": Work.REMOUNT,
    "export.threads": Work.IN_PLACE,
    "export.max_block_size": Work.RESTART,
    "export.lease_s": Work.RESTART,
    "export.grace_s": Work.RESTART,
    "export.type": Work.RESTART,
}


def work_of(field: str) -> Work:
    """Return what a change of a field of the stack, ``layer.field``, takes; of an empty field, a new array."""
    return _OF_FIELD.get(field, _OF_LAYER.get(field.partition(".")[0], Work.ARRAY))


class Line(State):
    """One line of a configuration file, or one command."""

    machine: str
    """``server`` or ``clients``."""
    place: str
    """The file that the line belongs to, or `COMMAND`."""
    text: str
    work: Work
    """What the line takes; NONE if the current configuration has the same line."""


def deployed(spec: StackSpec, *, lease: bool, grace: bool) -> StackSpec:
    """Return a stack without what only the harness requests.

    The first resync is not skipped, and the NFS lease and grace period are the server's defaults unless ``lease`` or
    ``grace`` says that the user requested them.
    """
    array = spec.array.model_copy(update={"assume_clean": False})
    kept = {} if lease else {"lease_s": None}
    export = spec.export.model_copy(update=kept | ({} if grace else {"grace_s": None}))
    return spec.model_copy(update={"array": array, "export": export})


def lines_of(new: StackSpec, current: StackSpec) -> list[Line]:
    """Return the lines of a configuration, with what each takes on a server with the current configuration.

    Both stacks are those of `deployed`. A line that the current configuration has, too, takes no work.
    """
    same = isinstance(current.array, type(new.array))
    in_place = new.array.changed_in_place(current.array) if same else None
    device, array = new.device, in_place is None
    volume = array or new.volume != current.volume
    format_ = volume or _mkfs(new, device) != _mkfs(current, device)
    made = [
        *(_line("server", COMMAND, words, Work.ARRAY, new, changed=array) for words in new.array.create_commands()),
        *(_line("server", COMMAND, words, Work.IN_PLACE, new) for words in in_place or ()),
        *(_line("server", COMMAND, words, Work.FILESYSTEM, new, changed=volume) for words in _volume(new)),
        *(_line("server", COMMAND, words, Work.FILESYSTEM, new, changed=format_) for words in _mkfs(new, device)),
    ]
    before = set(_settings(current))
    settings = (line.model_copy(update={"work": Work.NONE}) if line in before else line for line in _settings(new))
    return [*made, *settings]


def _volume(spec: StackSpec) -> Iterator[list[str]]:
    """Yield the commands that make the volume on the array."""
    yield from spec.volume.format_commands(spec.array.device)
    for one in spec.volume.assembly(spec.array.device):
        yield from user_lines(one)


def user_lines(one: Assembly) -> list[list[str]]:
    """Return the commands by which a user carries out a step of the assembly.

    If the size of the device follows from another device, the first command prints the number that replaces `SECTORS`
    in the second one.
    """
    return [*([["blockdev", "--getsz", one.sized]] if one.sized else []), list(one.command)]


def _mkfs(spec: StackSpec, device: str) -> list[list[str]]:
    """Return the commands that make the file system, without words that force an overwrite."""
    filesystem = spec.filesystem
    journal = filesystem.journal_command()
    commands = [*([journal] if journal else []), filesystem.mkfs_command(device, spec.array.geometry)]
    return [[word for word in words if word not in filesystem.forcing] for words in commands]


def _settings(spec: StackSpec) -> Iterator[Line]:
    """Yield the lines of files: mounts, export, kernel settings."""
    own = local.fstab_line(spec.filesystem, spec.device, EXPORT)
    yield Line(machine="server", place="/etc/fstab", text=_placed(own, spec), work=Work.REMOUNT)
    for file, text in spec.export.lines(EXPORT, CLIENTS):
        yield Line(machine="server", place=file, text=text, work=Work.IN_PLACE)
    memory = dirty_values(spec.tuning, "server") | write_back_values(spec.tuning)
    for path, value in memory.items():
        yield Line(machine="server", place=SYSCTL, text=sysctl_line(path, value), work=Work.IN_PLACE)
    for path, value in (queue_values(spec.tuning, [KERNEL_MEMBER]) | md_values(spec.tuning, [KERNEL_MD])).items():
        yield Line(machine="server", place=UDEV, text=udev_rule(path, value), work=Work.IN_PLACE)
    source = spec.source(SERVER, EXPORT)
    mounted = client.fstab_line(spec.mount, source, MOUNT_POINT)
    yield Line(machine="clients", place="/etc/fstab", text=mounted, work=Work.REMOUNT)
    for path, value in dirty_values(spec.tuning, "client").items():
        yield Line(machine="clients", place=SYSCTL, text=sysctl_line(path, value), work=Work.IN_PLACE)


def _line(
    machine: str, place: str, words: Sequence[str], work: Work, spec: StackSpec, *, changed: bool = True
) -> Line:
    kept = [word for word in words if word not in spec.array.forcing | spec.volume.forcing]
    return Line(
        machine=machine, place=place, text=_placed(shlex.join(kept), spec), work=work if changed else Work.NONE
    )


def _placed(text: str, spec: StackSpec) -> str:
    """Return a text with the harness's device paths replaced by placeholders."""
    array = spec.array
    named = {
        **{serial: f"YOUR-{duty}" for serial, duty in (array.duties() | spec.volume.duties()).items()},
        **({spec.filesystem.log: "YOUR-LOG-DISK"} if spec.filesystem.log else {}),
    }
    *parts, top = array.device_paths
    # A name that is no path is that of a pool, which a user may keep.
    devices = {top: ARRAY} if top.startswith("/") else {}
    devices |= {part: f"{ARRAY}-PART-{number}" for number, part in enumerate(parts, 1)}
    paths = devices | {disk_path(serial): f"/dev/disk/by-id/{name}" for serial, name in named.items()}
    # The longest first: the path of disk1 begins that of disk10.
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(path, paths[path])
    return text.replace(NAME, VOLUME)
