"""A machine of a user's box: what makes it fit for a lab, at each boot. Its host name and packages are untouched."""

from collections.abc import Sequence

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.log import logger
from raidproof.core.topology import Role
from raidproof.guest.keeper.config import SERVER_UNITS
from raidproof.machine.machine import Machine
from raidproof.provider.hosts.inventory import BY_ID, OURS
from raidproof.provider.hosts.login import require_root

PROGRAMS = {
    Role.SERVER: {
        "python3": "what is measured is collected by a script",
        "mdadm": "it makes the arrays",
        "wipefs": "old signatures are taken off the members",
        "blkid": "file systems are known by it",
        "lsblk": "the stack is read back by it",
        "exportfs": "it exports the file systems",
        "rpc.nfsd": "it starts the NFS server",
        "rpc.mountd": "it answers who may mount",
        "nfsdcld": "without it no client gets its locks back after a crash",
        "udevadm": "it names the members",
    },
    Role.CLIENT: {
        "python3": "the writing clients are scripts",
        "mount.nfs": "it mounts the export",
    },
}
"""What a box must have besides a shell and sudo, and what for."""
RUNTIME = "/run/raidproof"
CONSOLE = "/sys/class/tty/console/active"
CLIENT_ID = "/sys/module/nfs/parameters/nfs4_unique_id"
ASSEMBLY = ("64-md-raid-assembly.rules", "65-md-incremental.rules")
"""udev's rules by which distributions assemble every array that they see."""


class BoxGuest:
    """What is done in one such machine."""

    def __init__(self, box: str, serials: Sequence[str]) -> None:
        """``serials`` are its member disks; only the server has some."""
        self.box = box
        self._serials = serials
        self._known = False
        self.silent = False
        """Whether its kernel says nothing on the serial console."""

    def prepare(self, machine: Machine) -> None:
        """Do what a reboot undoes, and at the first boot what is there to stay.

        Raises:
            RequestError: nobody is root there.
            RequirementMissing: the box lacks a program; says which and what for.
            RigError: the machine does not do as it is told.
        """
        first, self._known = not self._known, True
        if first:
            require_root(machine)
            self._require_programs(machine)
            self.silent = "ttyS0" not in machine.get(CONSOLE).split()
        machine.succeed(["mkdir", "--parents", RUNTIME])
        machine.run(["dmesg", "--console-level", "debug"])
        if machine.spec.role is Role.SERVER:
            self._serve(machine, first=first)
        else:
            # An NFSv4 server tells clients apart by their host names, and copies of one box all have the same.
            machine.succeed(["modprobe", "nfs"])
            machine.put(machine.name, CLIENT_ID)
        if first:
            # What a first boot writes, as host keys, must outlive a power cut.
            machine.succeed(["sync"])

    def _require_programs(self, machine: Machine) -> None:
        wanted = PROGRAMS[machine.spec.role]
        found = {line.rpartition("/")[2] for line in machine.run(["which", *wanted]).stdout.splitlines()}
        lacks = [f"{program} ({reason})" for program, reason in wanted.items() if program not in found]
        if lacks:
            raise RequirementMissing(
                f"{machine.name}: box {self.box} lacks {', '.join(lacks)}",
                remedy="install what has them and package the box anew, or take an image of ours",
            )

    def _serve(self, machine: Machine, *, first: bool) -> None:
        # Before it is masked: a masked unit has forgotten how it is stopped.
        machine.run(["systemctl", "stop", *SERVER_UNITS], deadline_s=60)
        if first:
            # Else the next boot would serve before the file system is mounted, and clients find stale handles.
            machine.succeed(["systemctl", "mask", *SERVER_UNITS], deadline_s=60)
            for rules in ASSEMBLY:
                machine.succeed(["ln", "--symbolic", "--force", "/dev/null", f"/etc/udev/rules.d/{rules}"])
            machine.succeed(["udevadm", "control", "--reload"])
        machine.run(["systemctl", "start", "rpcbind.socket", "rpc_pipefs.target"], deadline_s=60)
        machine.succeed(["modprobe", "nfsd"])
        if not machine.run(["mountpoint", "--quiet", "/proc/fs/nfsd"]).ok:
            machine.succeed(["mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd"])
        if (threads := machine.get("/proc/fs/nfsd/threads").strip()) != "0":
            raise RigError(f"{machine.name}: box {self.box} keeps {threads} nfsd threads of its own")
        self._name_members(machine)

    def _name_members(self, machine: Machine) -> None:
        machine.succeed(["udevadm", "settle", "--timeout=60"], deadline_s=90)
        # Its own start-up may have assembled them already. Arrays in use, as that of a root, say no.
        stopped = machine.run(["mdadm", "--stop", "--scan"])
        logger.debug("%s: %s", machine.name, (stopped.stdout + stopped.stderr).strip())
        if not self._serials:
            return
        shown = [f"{BY_ID}virtio-{serial}" for serial in self._serials]
        devices = machine.resolve(shown)
        for serial, device in zip(self._serials, devices, strict=True):
            # Not after udev's link, which goes and comes with each event of the disk.
            machine.succeed(["ln", "--symbolic", "--force", "--no-dereference", device, f"{BY_ID}{OURS}{serial}"])
        caches = [f"/sys/block/{device.removeprefix('/dev/')}/queue/write_cache" for device in devices]
        for serial, path in zip(self._serials, caches, strict=True):
            if (cache := machine.get(path).strip()) != "write back":
                raise RigError(f"{machine.name}: {serial} has its cache {cache}: nothing would be flushed")
