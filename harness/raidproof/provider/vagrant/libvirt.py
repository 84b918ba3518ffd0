"""The libvirt of one lab: daemon, network and storage pool in the lab's namespaces, independent of the host's libvirt.

The host does not change: the daemon has its own folders for configuration, state and sockets, its network and firewall
rules are in the lab's network namespace, and the daemon ends with the lab.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from raidproof.core import command
from raidproof.core.command import VAGRANT, CommandFailed, Completed, install_list
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.topology import GATEWAY, Topology
from raidproof.core.waiting import Deadline, wait_until
from raidproof.namespace import Namespace
from raidproof.namespace.network import BRIDGE

URI = "qemu:///system"
NETWORK = POOL = "raidproof"
"""The name of the lab's network in libvirt, and of the storage pool."""
PLACES = ("/run", "/etc/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt")
"""Folders of the host in whose place the daemon sees folders of the lab; /run hides dbus, systemd and firewalld."""
PROGRAMS = ("vagrant", "libvirtd", "virsh", "dnsmasq", "iptables", "qemu-system-x86_64", "qemu-img")
"""The programs of this host that provider ``vagrant`` needs."""
SEARCHED = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
START_DEADLINE_S = 60.0
ANSWER_DEADLINE_S = 60.0

_DAEMON = """\
auth_unix_rw = "none"
auth_unix_ro = "none"
"""
_QEMU = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
"""
"""The content of qemu.conf: no cgroups, security labels or mount namespaces; the lab has its own namespaces.

With ``stdio_handler = "file"`` QEMU writes the console logs itself; virtlogd would truncate them at 2 MiB.
"""


def require() -> None:
    """Check that this host can run a separate libvirt for each lab.

    Raises:
        RequirementMissing: the user is not root, or this host lacks a program or folder of libvirt or Vagrant.
    """
    if os.geteuid() != 0:
        raise RequirementMissing(
            "provider vagrant needs root, because libvirt creates networks and runs machines as root",
            remedy="run as root, or use provider qemu",
        )
    absent = [f"program {name}" for name in PROGRAMS if shutil.which(name, path=SEARCHED) is None]
    absent += [f"folder {place}" for place in PLACES if not Path(place).is_dir()]
    if absent:
        raise RequirementMissing(
            f"provider vagrant: this host lacks {', '.join(absent)}",
            remedy=install_list(VAGRANT),
        )


def folders(directory: Path) -> dict[Path, Path]:
    """Create the folders and the configuration of a lab's libvirt below ``directory``.

    Return, for each folder of `PLACES`, the lab's folder that the daemon sees in its place.
    """
    # Short names, because the path of a UNIX socket has at most 107 bytes.
    made = {Path(place): directory / "lv" / place.strip("/").replace("/", "-") for place in PLACES}
    for folder in made.values():
        folder.mkdir(parents=True, exist_ok=True)
    run, configuration = made[Path("/run")], made[Path("/etc/libvirt")]
    for name in ("libvirt", "lock", "dbus"):
        (run / name).mkdir(exist_ok=True)
    (configuration / "libvirtd.conf").write_text(_DAEMON)
    (configuration / "qemu.conf").write_text(_QEMU)
    return made


def network_xml(topology: Topology, addresses: dict[str, str]) -> str:
    """Return the XML definition of the lab's network in libvirt, which uses the lab's bridge.

    ``addresses`` has the hardware address of each machine, by name. DHCP gives each hardware address the machine's IP
    address, and gives other interfaces none, so an IP address always leads to the right machine.
    """
    network = ET.Element("network")
    ET.SubElement(network, "name").text = NETWORK
    ET.SubElement(network, "bridge", name=BRIDGE, stp="off", delay="0")
    ET.SubElement(network, "dns", enable="no")
    ip = ET.SubElement(network, "ip", address=str(GATEWAY.ip), netmask=str(GATEWAY.network.netmask))
    dhcp = ET.SubElement(ip, "dhcp")
    for machine in topology.machines:
        ET.SubElement(dhcp, "host", mac=addresses[machine.name], name=machine.name, ip=str(machine.address.ip))
    return ET.tostring(network, encoding="unicode")


@dataclass
class Libvirt:
    """The libvirt of one lab: its daemon, and the commands of virsh."""

    namespace: Namespace
    directory: Path
    """The directory of the lab."""
    logs: Path
    """The directory of the daemon's log."""

    @property
    def run(self) -> Path:
        """The folder on this host that the daemon sees as /run."""
        return self.directory / "lv" / "run"

    @property
    def pool(self) -> Path:
        """The folder of the storage pool, which contains the machines' system disks."""
        return self.directory / "pool"

    def start(self, topology: Topology, addresses: dict[str, str]) -> None:
        """Start the daemon, the lab's network (in place of `create_network`) and the storage pool.

        ``addresses`` has the hardware address of each machine, by name.

        Raises:
            RequirementMissing: libvirt is not installed.
            RigError: the daemon, the network or the storage pool does not start.
        """
        daemon = self.namespace.spawn(["libvirtd"], output=self.logs / "libvirtd.log")

        def answers() -> bool:
            daemon.require_running()
            return (self.run / "libvirt/libvirt-sock").exists() and self.virsh("uri").ok

        wait_until(answers, Deadline.after(START_DEADLINE_S), "libvirt to answer", interval_s=0.05)
        description = self.directory / "network.xml"
        description.write_text(network_xml(topology, addresses))
        self.succeed("net-create", str(description))
        self.pool.mkdir(exist_ok=True)
        self.succeed("pool-create-as", POOL, "dir", "--target", str(self.pool))

    def virsh(self, *words: str) -> Completed:
        """Run virsh on this host, connected to the daemon's socket; return its output and its status."""
        uri = f"{URI}?socket={self.run / 'libvirt/libvirt-sock'}"
        return command.run(["virsh", "--quiet", "--connect", uri, *words], deadline_s=ANSWER_DEADLINE_S)

    def succeed(self, *words: str) -> str:
        """Run virsh and return its output.

        Raises:
            CommandFailed: virsh failed.
        """
        completed = self.virsh(*words)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout

    def offer(self, images: Sequence[tuple[Path, str]]) -> None:
        """Add images to the storage pool as symbolic links; each image is a file and the name of its volume."""
        for path, name in images:
            (self.pool / name).symlink_to(path)
        self.succeed("pool-refresh", POOL)

    def state(self, domain: str) -> str:
        """Return the state of a machine, as virsh prints it: ``running``, ``shut off``, ..."""
        return self.succeed("domstate", domain).strip()

    def start_machine(self, domain: str) -> None:
        """Switch a machine on that libvirt has defined and that is off."""
        self.succeed("start", domain)

    def _pid_file(self, domain: str) -> Path:
        return self.run / "libvirt/qemu" / f"{domain}.pid"

    def running(self, domain: str) -> bool:
        """Return whether a machine's QEMU is running: whether libvirt has a PID file for it."""
        return self._pid_file(domain).exists()

    def kill(self, domain: str) -> None:
        """Send SIGKILL to the QEMU of a machine, as for a power cut; ``virsh destroy`` would let QEMU flush its disks.

        Raises:
            RigError: the machine is not running.
        """
        try:
            pid = int(self._pid_file(domain).read_text())
        except FileNotFoundError as error:
            raise RigError(f"{domain} is not running: {self.cause(domain)}") from error
        self.namespace.end(pid)

    def wait_off(self, domain: str, deadline: Deadline) -> None:
        """Wait until libvirt reports that a machine is off.

        Raises:
            DeadlineExceeded: libvirt still reports another state.
        """
        wait_until(
            lambda: self.state(domain) == "shut off", deadline, f"libvirt to report {domain} shut off", interval_s=0.02
        )

    def cause(self, domain: str) -> str:
        """Return the last error in the log of a machine's QEMU, or the last line: why QEMU did not start, or ended."""
        log = self.directory / "lv/var-log-libvirt/qemu" / f"{domain}.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        errors = [line for line in lines if "qemu-system" in line and "error" in line.lower()] or lines[-1:]
        return errors[-1] if errors else "no output"


def pool_volume(box: str, image: Path, disk: str, version: str = "0") -> str:
    """Return the name that vagrant-libvirt gives to the volume of a box's disk; version ``0``: without a version."""
    known = version if version != "0" else f"0_{int(image.stat().st_mtime)}"
    return f"{box.replace('/', '-VAGRANTSLASH-')}_vagrant_box_image_{known}_{disk}.img"


def virtual_size_gib(image: Path) -> int:
    """Return the virtual size of a disk image in GiB, rounded up."""
    info = json.loads(command.succeed(["qemu-img", "info", "--output=json", image]))
    size: int = info["virtual-size"]
    return -(-size // 2**30)
