"""Machines that Vagrant makes with libvirt: the input of vms/Vagrantfile, Vagrant's command line, and their power."""

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from raidproof.core.errors import RigError
from raidproof.core.log import logger
from raidproof.core.topology import GATEWAY, MachineSpec
from raidproof.core.units import MIB
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.disk.cache import CutPolicy
from raidproof.disk.daemon import qemu_options
from raidproof.image import recipe
from raidproof.machine.kernel_log import cause_of_death, console_logs
from raidproof.machine.machine import OWN_POWEROFF, Cut, MemberDisks, cut_power
from raidproof.namespace import Namespace
from raidproof.namespace.network import hardware_address
from raidproof.provider.vagrant.box import Box, UserBox, environment
from raidproof.provider.vagrant.libvirt import NETWORK, POOL, Libvirt

NAME = "vagrant"
CANNOT_PROVE = (
    "vagrant: disks are simulated from their profiles, and without one have no mechanics at all: rates compare "
    "configurations, and prove nothing of a particular drive",
    "vagrant: each machine's system disk survives a cut as the host's page cache; only member disks lose their caches",
)
EMULATED = (
    "vagrant: processors are emulated, at about a tenth of the speed: rates say nothing, and races between CPUs show "
    "with other odds than on hardware"
)
"""What emulation cannot prove, in addition."""
USERS = (
    "vagrant: what a user's box runs, kernel and packages, is as its maker built it: differences to another box or "
    "image are not of one component alone"
)
"""What the user's boxes cannot prove, in addition."""
USERS_POWEROFF = ("systemctl", "poweroff")
UP_DEADLINE_S = 150.0
"""Seconds for all machines together; repeated once if some did not come up: Vagrant's wait for an address can hang."""
USERS_UP_DEADLINE_S = 600.0
"""The same for boxes that start a whole distribution."""
SHORT_DEADLINE_S = 60.0
OFF_DEADLINE_S = 20.0
FILE = recipe.VMS / "Vagrantfile"
BOOT_DEADLINE_S = 120
CONFIG_SLOT, MODULES_SLOT, FIRST_SLOT = "0x10", "0x11", 0x12
"""Slots of raidproof's disks on the bus pcie.0.

By default QEMU takes the lower ones, which libvirt gives to its devices.
"""
HOST_CPU: dict[str, Any] = {"cpu_mode": "host-passthrough"}
EMULATED_CPU: dict[str, Any] = {
    "cpu_mode": "custom",
    "cpu_model": "qemu64",
    # QEMU 7.2 emulates cmpxchg16b wrongly (it leaves garbage in EFLAGS), and the kernel's allocator then crashes.
    "cpu_features": [{"name": "cx16", "policy": "disable"}],
}


@dataclass(frozen=True)
class Guest:
    """A machine that Vagrant shall make."""

    spec: MachineSpec
    box: str
    console: Path
    """Log file of its serial console."""
    version: str | None = None
    """Version of the box; None: the only one."""
    config: Path | None = None
    """Configuration disk of the machine, for raidproof's boxes; None for a user's box."""
    modules: Path | None = None
    """Disk with the modules of its kernel, likewise.

    The box defines it, too, but raidproof's arguments for QEMU replace those.
    """
    arguments: str | None = None
    """The kernel's command line; None: from the box."""
    key: Path | None = None
    """The private key that the machine accepts; None: from the box."""
    disks: MemberDisks | None = None


def lab_json(guests: Sequence[Guest], *, accelerated: bool) -> str:
    """Return the whole file; ``accelerated`` means with KVM."""
    return json.dumps({"machines": [described(guest, accelerated=accelerated) for guest in guests]}, indent=1)


def described(guest: Guest, *, accelerated: bool) -> dict[str, Any]:
    """Return one machine: options of Vagrant and of vagrant-libvirt by name, and QEMU's arguments for the disks."""
    spec = guest.spec
    ssh: dict[str, Any] = {"insert_key": False}
    if guest.key is not None:
        ssh["private_key_path"] = str(guest.key)
    vm: dict[str, Any] = {
        "box": guest.box,
        "box_check_update": False,
        "boot_timeout": BOOT_DEADLINE_S,
        "allow_fstab_modification": False,
        "allow_hosts_modification": False,
    }
    if guest.version is not None:
        vm["box_version"] = guest.version
    options: dict[str, Any] = {
        "driver": "kvm" if accelerated else "qemu",
        "default_prefix": "",
        "cpus": spec.cpus,
        "memory": spec.memory // MIB,
        "machine_type": "q35",
        **(HOST_CPU if accelerated else EMULATED_CPU),
        "graphics_type": "none",
        "memballoon_enabled": False,
        "storage_pool_name": POOL,
        # The only network of the lab: Vagrant's management network.
        "management_network_name": NETWORK,
        "management_network_address": str(GATEWAY.network),
        "management_network_mode": "none",
        "management_network_keep": True,
        "management_network_mac": hardware_address(spec),
    }
    if guest.arguments is not None:
        options["cmd_line"] = guest.arguments
    if spec.numa_nodes > 1:
        options["numa_nodes"] = numa_nodes(spec)
    return {
        "name": spec.name,
        "vm": vm,
        "ssh": ssh,
        "libvirt": options,
        "serials": [{"type": "file", "source": {"path": str(guest.console)}}],
        "qemu_arguments": qemu_arguments(guest),
    }


def numa_nodes(spec: MachineSpec) -> list[dict[str, Any]]:
    """Return equal shares of CPUs and memory (in MiB), in the form for vagrant-libvirt."""
    share = spec.cpus // spec.numa_nodes
    return [
        {"cpus": f"{node * share}-{(node + 1) * share - 1}", "memory": spec.memory // MIB // spec.numa_nodes}
        for node in range(spec.numa_nodes)
    ]


def qemu_arguments(guest: Guest) -> list[str]:
    """Return the arguments that attach the configuration disk and the members, each with its serial number.

    A machine that restarts itself, as after a panic, ends instead: the harness switches it on.
    """
    words = ["-no-reboot"]
    for serial, file, slot in (("config", guest.config, CONFIG_SLOT), ("modules", guest.modules, MODULES_SLOT)):
        if file is not None:
            words += _disk(serial, [("driver", "file"), ("read-only", "on"), ("filename", str(file))], slot)
    if guest.disks is not None:
        for number, serial in enumerate(guest.disks.serials):
            source = [
                ("driver", "nbd"),
                ("server.type", "unix"),
                ("server.path", str(guest.disks.engine_socket)),
                ("export", serial),
                ("discard", "unmap"),
            ]
            words += _disk(serial, source, f"{FIRST_SLOT + number // 8:#x}.{number % 8}", written=True)
    return words


def _disk(serial: str, source: Sequence[tuple[str, str]], slot: str, *, written: bool = False) -> list[str]:
    node = f"raidproof-{serial}"
    device = [("driver", "virtio-blk-pci"), ("bus", "pcie.0"), ("addr", slot), ("multifunction", "on")]
    device += [("drive", node), ("serial", serial)]
    device += [("write-cache", "on")] if written else []
    return ["-blockdev", qemu_options(("node-name", node), *source), "-device", qemu_options(*device)]


@dataclass(frozen=True)
class Message:
    """A line of ``vagrant --machine-readable``."""

    target: str
    kind: str
    data: tuple[str, ...]


def parse_messages(text: str) -> list[Message]:
    """Parse the lines of ``vagrant --machine-readable``: time, machine, kind, data; skip all other lines."""
    found = []
    for line in text.splitlines():
        stamp, *words = line.split(",")
        if stamp.isdecimal() and len(words) >= 2:
            target, kind, *data = (_plain(word) for word in words)
            found.append(Message(target, kind, tuple(data)))
    return found


def _plain(word: str) -> str:
    return word.replace("%!(VAGRANT_COMMA)", ",").replace("\\n", "\n").replace("\\r", "\r")


def complaint(messages: Sequence[Message]) -> str | None:
    """Return why Vagrant failed, in one line: its final error, or else an error message of its output."""
    errors = [message.data[-1] for message in messages if message.kind == "error-exit" and message.data]
    errors += [message.data[-1] for message in messages if message.kind == "ui" and message.data[:1] == ("error",)]
    return " ".join(errors[0].split()) if errors else None


@dataclass(frozen=True)
class SshConfig:
    """Vagrant's login to a machine."""

    address: str
    port: int
    user: str
    keys: tuple[Path, ...]


def parse_ssh_config(text: str) -> dict[str, SshConfig]:
    """Parse the output of ``vagrant ssh-config``, by machine."""
    parsed = paramiko.SSHConfig.from_text(text)
    found = {}
    for name in parsed.get_hostnames() - {"*"}:
        said = parsed.lookup(name)
        found[name] = SshConfig(
            said["hostname"], int(said["port"]), said["user"], tuple(map(Path, said.get("identityfile", ())))
        )
    return found


@dataclass
class Vagrant:
    """Vagrant's view of the machines of one lab: its home, state and runs, all in the lab's directory."""

    namespace: Namespace
    libvirt: Libvirt
    directory: Path
    logs: Path
    guests: Sequence[Guest]
    _runs: int = 0

    @property
    def home(self) -> Path:
        """The lab's own VAGRANT_HOME."""
        return self.directory / "vagrant"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every run of Vagrant."""
        return {
            **environment(self.home),
            "VAGRANT_CWD": str(FILE.parent),
            "VAGRANT_DOTFILE_PATH": str(self.directory / "vagrant.state"),
            "RAIDPROOF_LAB": str(self.directory / "vagrant.json"),
        }

    def prepare(self, boxes: Iterable[Box | UserBox], *, accelerated: bool) -> None:
        """Link the boxes into Vagrant's home, without a copy, and write the description of the machines."""
        shown = self.home / "boxes"
        shown.mkdir(parents=True)
        distinct = {one.name: one for one in boxes}.values()
        for one in distinct:
            (shown / one.folder.name).symlink_to(one.folder)
        # Vagrant finds a disk in the pool under the name that it would give to the uploaded disk.
        self.libvirt.offer([image for one in distinct for image in one.images])
        (self.directory / "vagrant.json").write_text(lab_json(self.guests, accelerated=accelerated))

    def run(self, *words: str, deadline: Deadline, still_possible: Callable[[], None] = lambda: None) -> str:
        """Run Vagrant and return its output, machine-readable; ``still_possible`` raises when waiting is pointless.

        Raises:
            DeadlineExceeded: Vagrant exceeded the deadline, and was ended.
            RigError: Vagrant failed; with the reason.
        """
        self._runs += 1
        output = self.logs / f"vagrant.{self._runs}.{words[0]}.log"
        argv = ["vagrant", *words, "--machine-readable"]
        begun = now_ns()
        process = self.namespace.spawn(argv, output=output, environment=self.environment, directory=self.directory)

        def ended() -> tuple[int] | None:
            if (status := process.status) is not None:
                return (status,)
            still_possible()
            return None

        try:
            (status,) = wait_until(ended, deadline, shlex.join(argv), interval_s=0.05)
        except BaseException:
            process.kill()
            raise
        said = output.read_text(errors="replace")
        logger.debug("vagrant: %.1f s, status %d: %s", (now_ns() - begun) / 1e9, status, shlex.join(argv))
        if status != 0:
            reason = complaint(parse_messages(said)) or " | ".join(said.strip().splitlines()[-3:])
            raise RigError(f"vagrant {words[0]} ended with status {status}: {reason}; see {output}")
        return said

    def up(self, powers: Sequence["VagrantPower"]) -> None:
        """Make the machines and wait until Vagrant can log in to each; if that fails, try all once more.

        Raises:
            RigError: the second attempt failed; with the reason.
            DeadlineExceeded: some did not come up in the second attempt.
        """
        try:
            self._up(powers)
        except RigError as error:
            logger.warning("trying once more, as vagrant up failed: %s", error)
            for power in powers:
                power.begin_again()
            # Machines that were partly made would prevent the second attempt.
            self.destroy()
            self._up(powers)

    def _up(self, powers: Sequence["VagrantPower"]) -> None:
        for power in powers:
            power.prepare()
        begun: set[str] = set()

        def nobody_died() -> None:
            for power in powers:
                if power.running:
                    begun.add(power.name)
                elif power.name in begun:
                    power.require_on()

        own = all(power.guest.config is not None for power in powers)
        deadline = Deadline.after(UP_DEADLINE_S if own else USERS_UP_DEADLINE_S)
        words = ("up", "--provider", "libvirt", "--no-provision", "--no-destroy-on-error")
        self.run(*words, deadline=deadline, still_possible=nobody_died)

    def ssh_config(self) -> dict[str, SshConfig]:
        """Return the logins to the machines, by name."""
        said = self.run("ssh-config", deadline=Deadline.after(SHORT_DEADLINE_S))
        texts = [message.data[-1] for message in parse_messages(said) if message.kind == "ssh-config"]
        return parse_ssh_config("\n".join(texts))

    def destroy(self) -> None:
        """Let Vagrant remove the machines; cleanup does not need this, as the end of the namespace ends them."""
        self.run("destroy", "--force", deadline=Deadline.after(SHORT_DEADLINE_S))


@dataclass
class VagrantPower:
    """The power of a machine that Vagrant made."""

    raid6 = True
    guest: Guest
    libvirt: Libvirt
    logs: Path
    poweroff: tuple[str, ...] = OWN_POWEROFF
    boots: int = 0
    _made: bool = False

    @property
    def name(self) -> str:
        """Name of the machine and of libvirt's domain."""
        return self.guest.spec.name

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console log of each boot, the current one last."""
        return console_logs(self.logs, self.name, self.boots)

    @property
    def running(self) -> bool:
        """Whether its QEMU runs."""
        return self.libvirt.running(self.name)

    def prepare(self) -> None:
        """Prepare for `Vagrant.up`, which is the first boot."""
        if not self.running:
            self._next_console()

    def begin_again(self) -> None:
        """End the machine before a second `Vagrant.up`; it contains nothing of value yet."""
        if self.running:
            self.libvirt.kill(self.name)
            self.libvirt.wait_off(self.name, Deadline.after(OFF_DEADLINE_S))

    def _next_console(self) -> None:
        # The domain has one path for its console: a link, so that each boot has a log.
        self.boots += 1
        self.guest.console.unlink(missing_ok=True)
        self.guest.console.symlink_to(self.consoles[-1].absolute())

    def on(self) -> None:
        """Boot the machine; at the first call `Vagrant.up` has done so already."""
        if not self._made:
            self._made = True
            return
        self._next_console()
        if self.guest.disks is not None:
            self.guest.disks.power_on()
        # What `vagrant up` does with a machine that is off, without its waiting; Vagrant takes the state from libvirt.
        self.libvirt.start_machine(self.name)

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Freeze the disks, kill QEMU, then apply the cut policy to the disks' caches."""
        self._require_running()
        cut = cut_power(self.guest.disks, lambda: self.libvirt.kill(self.name), policy, seed)
        self.libvirt.wait_off(self.name, Deadline.after(OFF_DEADLINE_S))
        return cut

    def wait_off(self, deadline: Deadline) -> None:
        """Wait until libvirt has noticed the end of the machine."""
        self.libvirt.wait_off(self.name, deadline)

    def _require_running(self) -> None:
        if not self.running:
            raise RigError(f"{self.name} is not switched on")

    def require_on(self) -> None:
        """Raise RigError with the last console output if the machine has ended."""
        if not self.running:
            last = self.consoles[-1]
            said = last.read_text(errors="replace") if last.exists() else ""
            cause = cause_of_death(said) if said.strip() else self.libvirt.cause(self.name)
            raise RigError(f"{self.name}: its machine ended: {cause}; see {self.consoles[-1]}")
