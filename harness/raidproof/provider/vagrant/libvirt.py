"""A libvirt of the lab's own: daemon, network and storage pool inside its enclosure, beside the host's libvirt.

Nothing of the host is touched: the daemon finds folders of the lab where it looks for its configuration, state and
sockets, its network and firewall rules are in the lab's network namespace, and it ends with the enclosure.
"""

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from raidproof.core import command
from raidproof.core.command import CommandFailed, Completed
from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.host_packages import VAGRANT, install_list
from raidproof.core.topology import GATEWAY, Topology
from raidproof.core.waiting import Deadline, wait_until
from raidproof.namespace import Enclosure
from raidproof.namespace.network import BRIDGE

URI = "qemu:///system"
NETWORK = POOL = "raidproof"
PLACES = ("/run", "/etc/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt")
"""Where the daemon keeps what it has; /run whole, as it also looks there for dbus, systemd and firewalld."""
PROGRAMS = ("vagrant", "libvirtd", "virsh", "dnsmasq", "iptables", "qemu-system-x86_64", "qemu-img")
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
"""No cgroup, label or namespace besides the lab's own; consoles are written by QEMU itself, so virtlogd, which would
cut them at 2 MiB, is not needed."""


def require() -> None:
    """Make sure that a libvirt of one's own can run here.

    Raises:
        RequirementMissing: not root, or something is not installed; says what.
    """
    if os.geteuid() != 0:
        raise RequirementMissing(
            "provider vagrant needs root: libvirt runs machines of the system, with networks of its own",
            remedy="run as root, or use provider qemu",
        )
    absent = [f"program {name}" for name in PROGRAMS if shutil.which(name, path=SEARCHED) is None]
    absent += [f"folder {place}" for place in PLACES if not Path(place).is_dir()]
    if absent:
        raise RequirementMissing(
            f"provider vagrant: not there: {', '.join(absent)}",
            remedy=install_list(VAGRANT),
        )


def folders(directory: Path) -> dict[Path, Path]:
    """Make the folders of a lab's libvirt, and return them as `Enclosure` wants them."""
    # Short names: the path of a unix socket has at most 107 bytes.
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
    """Describe the lab's network: the harness's bridge, and for each machine (name -> MAC) the address it is to have.

    Only these machines get an address, so a machine that is asked for by its address is the one that was meant.
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
    """The libvirt of one lab."""

    enclosure: Enclosure
    directory: Path
    logs: Path

    @property
    def run(self) -> Path:
        """The lab's /run, as the harness sees it."""
        return self.directory / "lv" / "run"

    @property
    def pool(self) -> Path:
        """The folder of the storage pool; the machines' system disks lie in it."""
        return self.directory / "pool"

    def start(self, topology: Topology, addresses: dict[str, str]) -> None:
        """Start the daemon, the lab's network (in place of `create_network`) and the storage pool.

        Raises:
            RequirementMissing: libvirt is not installed.
            RigError: it does not start; with what it said.
        """
        daemon = self.enclosure.spawn(["libvirtd"], output=self.logs / "libvirtd.log")

        def answers() -> bool:
            daemon.require_running()
            return (self.run / "libvirt/libvirt-sock").exists() and self.virsh("uri").ok

        wait_until(answers, Deadline.after(START_DEADLINE_S), "libvirt", interval_s=0.05)
        description = self.directory / "network.xml"
        description.write_text(network_xml(topology, addresses))
        self.succeed("net-create", str(description))
        self.pool.mkdir(exist_ok=True)
        self.succeed("pool-create-as", POOL, "dir", "--target", str(self.pool))

    def virsh(self, *words: str) -> Completed:
        """Run virsh, from outside: over the daemon's socket."""
        uri = f"{URI}?socket={self.run / 'libvirt/libvirt-sock'}"
        return command.run(["virsh", "--quiet", "--connect", uri, *words], deadline_s=ANSWER_DEADLINE_S)

    def succeed(self, *words: str) -> str:
        """Run virsh and return what it says.

        Raises:
            CommandFailed: it refused.
        """
        completed = self.virsh(*words)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout

    def offer(self, images: Sequence[tuple[Path, str]]) -> None:
        """Show images (file, name of the volume) in the storage pool, without a copy; they are only read."""
        for path, name in images:
            (self.pool / name).symlink_to(path)
        self.succeed("pool-refresh", POOL)

    def state(self, domain: str) -> str:
        """Return the state of a machine, as virsh has it: ``running``, ``shut off``, ..."""
        return self.succeed("domstate", domain).strip()

    def start_machine(self, domain: str) -> None:
        """Switch a machine on that exists."""
        self.succeed("start", domain)

    def _pid_file(self, domain: str) -> Path:
        return self.run / "libvirt/qemu" / f"{domain}.pid"

    def running(self, domain: str) -> bool:
        """Whether a machine's QEMU runs, as far as libvirt has seen."""
        return self._pid_file(domain).exists()

    def kill(self, domain: str) -> None:
        """End a machine as a power cut does: SIGKILL of its QEMU. (virsh's ``destroy`` lets QEMU flush its disks.)

        Raises:
            RigError: it does not run, or libvirt does not see its end.
        """
        try:
            pid = int(self._pid_file(domain).read_text())
        except FileNotFoundError as error:
            raise RigError(f"{domain} does not run: {self.cause(domain)}") from error
        self.enclosure.end(pid)

    def wait_off(self, domain: str, deadline: Deadline) -> None:
        """Return when libvirt knows that a machine has ended."""
        wait_until(
            lambda: self.state(domain) == "shut off", deadline, f"libvirt to see the end of {domain}", interval_s=0.02
        )

    def cause(self, domain: str) -> str:
        """Return what QEMU said last: the reason why it did not start, or ended."""
        log = self.directory / "lv/var-log-libvirt/qemu" / f"{domain}.log"
        said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        words = [line for line in said if "qemu-system" in line and "error" in line.lower()] or said[-1:]
        return words[-1] if words else "it said nothing"


def pool_volume(box: str, image: Path, disk: str, version: str = "0") -> str:
    """Return how vagrant-libvirt names the volume that it makes of a box's disk; ``0`` is a box without a version."""
    known = version if version != "0" else f"0_{int(image.stat().st_mtime)}"
    return f"{box.replace('/', '-VAGRANTSLASH-')}_vagrant_box_image_{known}_{disk}.img"


def virtual_size_gib(image: Path) -> int:
    """Return the size of a disk image in whole GiB, as a box's metadata has it."""
    info = json.loads(command.succeed(["qemu-img", "info", "--output=json", image]))
    size: int = info["virtual-size"]
    return -(-size // 2**30)
