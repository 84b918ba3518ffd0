"""The lab's own libvirt: daemon, network and storage pool inside its namespace, independent of the host's libvirt.

Nothing of the host is touched: the daemon's folders for configuration, state and sockets are the lab's, its network
and firewall rules are in the lab's network namespace, and the daemon ends with the namespace.
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
PLACES = ("/run", "/etc/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt")
"""The daemon's folders; all of /run, where it also looks for dbus, systemd and firewalld."""
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
"""No cgroup, label or namespace besides the lab's own.

QEMU itself writes the consoles, so virtlogd, which would cut them at 2 MiB, is not needed.
"""


def require() -> None:
    """Check that a separate libvirt can run here.

    Raises:
        RequirementMissing: not root, or something is not installed; names it.
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
    """Create folders and configuration of the lab's libvirt; return the private folder for each host folder."""
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
    """Return the definition of the lab's network: the harness's bridge, and the address of each machine (name -> MAC).

    Only these machines get an address, so an address always leads to the right machine.
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

    namespace: Namespace
    directory: Path
    logs: Path

    @property
    def run(self) -> Path:
        """The lab's /run, as a path for the harness."""
        return self.directory / "lv" / "run"

    @property
    def pool(self) -> Path:
        """The folder of the storage pool, which contains the machines' system disks."""
        return self.directory / "pool"

    def start(self, topology: Topology, addresses: dict[str, str]) -> None:
        """Start the daemon, the lab's network (in place of `create_network`) and the storage pool.

        Raises:
            RequirementMissing: libvirt is not installed.
            RigError: the daemon does not start; with its messages.
        """
        daemon = self.namespace.spawn(["libvirtd"], output=self.logs / "libvirtd.log")

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
        """Run virsh and return its output.

        Raises:
            CommandFailed: virsh failed.
        """
        completed = self.virsh(*words)
        if not completed.ok:
            raise CommandFailed(completed)
        return completed.stdout

    def offer(self, images: Sequence[tuple[Path, str]]) -> None:
        """Link images (file, name of the volume) into the storage pool, without a copy; they are only read."""
        for path, name in images:
            (self.pool / name).symlink_to(path)
        self.succeed("pool-refresh", POOL)

    def state(self, domain: str) -> str:
        """Return the state of a machine, as virsh prints it: ``running``, ``shut off``, ..."""
        return self.succeed("domstate", domain).strip()

    def start_machine(self, domain: str) -> None:
        """Switch an existing machine on."""
        self.succeed("start", domain)

    def _pid_file(self, domain: str) -> Path:
        return self.run / "libvirt/qemu" / f"{domain}.pid"

    def running(self, domain: str) -> bool:
        """Return whether a machine's QEMU runs, as far as libvirt has noticed."""
        return self._pid_file(domain).exists()

    def kill(self, domain: str) -> None:
        """End a machine like a power cut: SIGKILL to its QEMU; virsh's ``destroy`` would let QEMU flush its disks.

        Raises:
            RigError: the machine does not run, or libvirt does not notice its end.
        """
        try:
            pid = int(self._pid_file(domain).read_text())
        except FileNotFoundError as error:
            raise RigError(f"{domain} does not run: {self.cause(domain)}") from error
        self.namespace.end(pid)

    def wait_off(self, domain: str, deadline: Deadline) -> None:
        """Return when libvirt has noticed the end of a machine."""
        wait_until(
            lambda: self.state(domain) == "shut off", deadline, f"libvirt to see the end of {domain}", interval_s=0.02
        )

    def cause(self, domain: str) -> str:
        """Return QEMU's last message: the reason why it did not start, or ended."""
        log = self.directory / "lv/var-log-libvirt/qemu" / f"{domain}.log"
        said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        words = [line for line in said if "qemu-system" in line and "error" in line.lower()] or said[-1:]
        return words[-1] if words else "no output"


def pool_volume(box: str, image: Path, disk: str, version: str = "0") -> str:
    """Return vagrant-libvirt's name of the volume of a box's disk; version ``0`` is a box without a version."""
    known = version if version != "0" else f"0_{int(image.stat().st_mtime)}"
    return f"{box.replace('/', '-VAGRANTSLASH-')}_vagrant_box_image_{known}_{disk}.img"


def virtual_size_gib(image: Path) -> int:
    """Return the size of a disk image in whole GiB, as in a box's metadata."""
    info = json.loads(command.succeed(["qemu-img", "info", "--output=json", image]))
    size: int = info["virtual-size"]
    return -(-size // 2**30)
