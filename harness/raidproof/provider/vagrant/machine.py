"""Machines that Vagrant creates with libvirt: the input of vms/Vagrantfile, runs of Vagrant, and power control."""

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
    "vagrant: a member disk has the latency of its profile, or none without a profile: rates compare configurations, "
    "and do not predict those of a real drive",
    "vagrant: a system disk loses at a power cut only what QEMU has not yet written to its file on this host; only "
    "member disks have a simulated volatile cache",
)
"""What a run with this provider cannot prove; the report lists these sentences."""
EMULATED = (
    "vagrant: CPUs are emulated, at about a tenth of the speed of hardware: measured rates are meaningless, and races "
    "between CPUs occur with another probability than on hardware"
)
"""What a run cannot prove, in addition to `CANNOT_PROVE`, if KVM does not work."""
USERS = (
    "vagrant: kernel and packages of a user's box differ from those of other boxes and images in many components, so "
    "a comparison does not show which component causes a difference"
)
"""What a run cannot prove, in addition to `CANNOT_PROVE`, if a machine is made from a user's box."""
USERS_POWEROFF = ("systemctl", "poweroff")
"""The command for an orderly shutdown of a machine of a user's box."""
UP_DEADLINE_S = 150.0
"""Seconds within which ``vagrant up`` must boot all machines of raidproof's boxes.

raidproof repeats a failed ``vagrant up`` once, because Vagrant's wait for an address can hang.
"""
USERS_UP_DEADLINE_S = 600.0
"""Seconds within which ``vagrant up`` must boot all machines, if some are of user's boxes, which boot slowly."""
SHORT_DEADLINE_S = 60.0
"""Time limit in seconds for a Vagrant command that does not boot machines."""
OFF_DEADLINE_S = 20.0
"""Seconds within which libvirt must report that a machine is off after its QEMU has ended."""
FILE = recipe.VMS / "Vagrantfile"
BOOT_DEADLINE_S = 120
"""Seconds that Vagrant waits until it can log in to a machine (``config.vm.boot_timeout``)."""
CONFIG_SLOT, MODULES_SLOT, FIRST_SLOT = "0x10", "0x11", 0x12
"""PCI slots on bus pcie.0 of the configuration disk, of the modules, and of the first member disks.

libvirt uses lower slots for its own devices, and QEMU would choose one of these for a disk without a fixed slot.
"""
HOST_CPU: dict[str, Any] = {"cpu_mode": "host-passthrough"}
EMULATED_CPU: dict[str, Any] = {
    "cpu_mode": "custom",
    "cpu_model": "qemu64",
    # Without cx16, because QEMU 7.2 emulates cmpxchg16b wrongly (garbage in EFLAGS): the kernel's allocator crashes.
    "cpu_features": [{"name": "cx16", "policy": "disable"}],
}


@dataclass(frozen=True)
class Guest:
    """The description of a machine that Vagrant is to create."""

    spec: MachineSpec
    box: str
    """The name of the box in Vagrant."""
    console: Path
    """The file to which the serial console is written."""
    version: str | None = None
    """The version of the box; None: the box has no version."""
    config: Path | None = None
    """The configuration disk of a machine of raidproof's box; None for a user's box."""
    modules: Path | None = None
    """The image of the kernel's modules of raidproof's box; None for a user's box.

    The box's Vagrantfile attaches the image too, but arguments for QEMU in vms/Vagrantfile replace those of the box.
    """
    arguments: str | None = None
    """The kernel's command line; None: that of the box."""
    key: Path | None = None
    """The file of the private key that the machine accepts; None: the key of the box."""
    disks: MemberDisks | None = None
    """The member disks of the server; None for a client."""


def lab_json(guests: Sequence[Guest], *, accelerated: bool) -> str:
    """Return the content of the JSON file that vms/Vagrantfile reads; ``accelerated``: the machines use KVM."""
    return json.dumps({"machines": [described(guest, accelerated=accelerated) for guest in guests]}, indent=1)


def described(guest: Guest, *, accelerated: bool) -> dict[str, Any]:
    """Return the JSON object of one machine for vms/Vagrantfile; ``accelerated``: the machine uses KVM.

    The object has options of Vagrant and of vagrant-libvirt, by name, and the arguments for QEMU that attach disks.
    """
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
        # Vagrant's management network is the only network of the lab.
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
    """Return a machine's NUMA nodes for vagrant-libvirt, with equal shares of CPUs and memory (in MiB)."""
    share = spec.cpus // spec.numa_nodes
    return [
        {"cpus": f"{node * share}-{(node + 1) * share - 1}", "memory": spec.memory // MIB // spec.numa_nodes}
        for node in range(spec.numa_nodes)
    ]


def qemu_arguments(guest: Guest) -> list[str]:
    """Return the arguments for QEMU that attach the configuration disk, the modules and the member disks.

    Each disk has its serial number. With ``-no-reboot``, QEMU ends when the machine restarts, as after a panic.
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
    """A line in the output of ``vagrant --machine-readable``."""

    target: str
    """The name of the machine; empty for a message about no machine."""
    kind: str
    """The type of the message: ``ui``, ``error-exit``, ``ssh-config``, ..."""
    data: tuple[str, ...]


def parse_messages(text: str) -> list[Message]:
    """Return the messages in the output of ``vagrant --machine-readable``; skip lines of another form."""
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
    """Return why Vagrant failed, in one line: its final error, or else its first error message; None if no error."""
    errors = [message.data[-1] for message in messages if message.kind == "error-exit" and message.data]
    errors += [message.data[-1] for message in messages if message.kind == "ui" and message.data[:1] == ("error",)]
    return " ".join(errors[0].split()) if errors else None


@dataclass(frozen=True)
class SshConfig:
    """Vagrant's SSH login to a machine."""

    address: str
    """The address of the machine on the lab's network."""
    port: int
    user: str
    keys: tuple[Path, ...]
    """The files of private keys that the machine accepts."""


def parse_ssh_config(text: str) -> dict[str, SshConfig]:
    """Return the logins in the output of ``vagrant ssh-config``, by the machine's name."""
    parsed = paramiko.SSHConfig.from_text(text)
    found = {}
    for name in parsed.get_hostnames() - {"*"}:
        options = parsed.lookup(name)
        found[name] = SshConfig(
            options["hostname"],
            int(options["port"]),
            options["user"],
            tuple(map(Path, options.get("identityfile", ()))),
        )
    return found


@dataclass
class Vagrant:
    """Runs Vagrant for the machines of one lab, with VAGRANT_HOME and all state in the lab's directory."""

    namespace: Namespace
    libvirt: Libvirt
    directory: Path
    """The directory of the lab."""
    logs: Path
    """The directory for the output of each run of Vagrant."""
    guests: Sequence[Guest]
    _runs: int = 0

    @property
    def home(self) -> Path:
        """The VAGRANT_HOME of the lab."""
        return self.directory / "vagrant"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of each run of Vagrant."""
        return {
            **environment(self.home),
            "VAGRANT_CWD": str(FILE.parent),
            "VAGRANT_DOTFILE_PATH": str(self.directory / "vagrant.state"),
            "RAIDPROOF_LAB": str(self.directory / "vagrant.json"),
        }

    def prepare(self, boxes: Iterable[Box | UserBox], *, accelerated: bool) -> None:
        """Link the boxes into VAGRANT_HOME, and describe the machines for Vagrant; ``accelerated``: they use KVM."""
        shown = self.home / "boxes"
        shown.mkdir(parents=True)
        distinct = {one.name: one for one in boxes}.values()
        for one in distinct:
            (shown / one.folder.name).symlink_to(one.folder)
        # Vagrant uploads no disk whose volume is in the pool already.
        self.libvirt.offer([image for one in distinct for image in one.images])
        (self.directory / "vagrant.json").write_text(lab_json(self.guests, accelerated=accelerated))

    def run(self, *words: str, deadline: Deadline, still_possible: Callable[[], None] = lambda: None) -> str:
        """Run Vagrant, and return its machine-readable output.

        ``still_possible`` is called while Vagrant runs; it raises an error if Vagrant cannot succeed any more.

        Raises:
            DeadlineExceeded: Vagrant exceeded the deadline, and was killed.
            RigError: Vagrant failed, or ``still_possible`` raised the error.
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
        text = output.read_text(errors="replace")
        logger.debug("vagrant: %.1f s, status %d: %s", (now_ns() - begun) / 1e9, status, shlex.join(argv))
        if status != 0:
            reason = complaint(parse_messages(text)) or " | ".join(text.strip().splitlines()[-3:])
            raise RigError(f"vagrant {words[0]} ended with status {status}: {reason}; see {output}")
        return text

    def up(self, powers: Sequence["VagrantPower"]) -> None:
        """Create and boot the machines, and wait until Vagrant can log in to each; repeat all once after a failure.

        Raises:
            RigError: the second attempt failed.
            DeadlineExceeded: in the second attempt some machines did not boot in time.
        """
        try:
            self._up(powers)
        except RigError as error:
            logger.warning("vagrant up failed, and is repeated once: %s", error)
            for power in powers:
                power.begin_again()
            # Domains of the first attempt would make the second one fail.
            self.destroy()
            self._up(powers)

    def _up(self, powers: Sequence["VagrantPower"]) -> None:
        for power in powers:
            power.prepare()
        begun: set[str] = set()

        def require_running() -> None:
            for power in powers:
                if power.running:
                    begun.add(power.name)
                elif power.name in begun:
                    power.require_on()

        own = all(power.guest.config is not None for power in powers)
        deadline = Deadline.after(UP_DEADLINE_S if own else USERS_UP_DEADLINE_S)
        words = ("up", "--provider", "libvirt", "--no-provision", "--no-destroy-on-error")
        self.run(*words, deadline=deadline, still_possible=require_running)

    def ssh_config(self) -> dict[str, SshConfig]:
        """Return Vagrant's logins to the machines, by the machine's name."""
        output = self.run("ssh-config", deadline=Deadline.after(SHORT_DEADLINE_S))
        texts = [message.data[-1] for message in parse_messages(output) if message.kind == "ssh-config"]
        return parse_ssh_config("\n".join(texts))

    def destroy(self) -> None:
        """Let Vagrant remove the machines. The end of a lab needs no such call: its namespace ends all machines."""
        self.run("destroy", "--force", deadline=Deadline.after(SHORT_DEADLINE_S))


@dataclass
class VagrantPower:
    """The power control of a machine that Vagrant has created."""

    raid6 = True
    guest: Guest
    libvirt: Libvirt
    logs: Path
    """The directory of the console logs."""
    poweroff: tuple[str, ...] = OWN_POWEROFF
    """The command for an orderly shutdown."""
    boots: int = 0
    """The number of boots so far."""
    _made: bool = False

    @property
    def name(self) -> str:
        """The name of the machine, and of its domain in libvirt."""
        return self.guest.spec.name

    @property
    def consoles(self) -> tuple[Path, ...]:
        """The console logs of the machine, one for each boot, the current boot last."""
        return console_logs(self.logs, self.name, self.boots)

    @property
    def running(self) -> bool:
        """Whether the machine's QEMU is running."""
        return self.libvirt.running(self.name)

    def prepare(self) -> None:
        """Create the console log for the first boot, which is part of `Vagrant.up`."""
        if not self.running:
            self._next_console()

    def begin_again(self) -> None:
        """Kill the machine before `Vagrant.up` is repeated; the machine contains no data yet."""
        if self.running:
            self.libvirt.kill(self.name)
            self.libvirt.wait_off(self.name, Deadline.after(OFF_DEADLINE_S))

    def _next_console(self) -> None:
        # The domain has a fixed path for its console; the link there leads to the log of the present boot.
        self.boots += 1
        self.guest.console.unlink(missing_ok=True)
        self.guest.console.symlink_to(self.consoles[-1].absolute())

    def on(self) -> None:
        """Boot the machine; do nothing at the first call, because `Vagrant.up` has booted the machine already."""
        if not self._made:
            self._made = True
            return
        self._next_console()
        if self.guest.disks is not None:
            self.guest.disks.power_on()
        # By libvirt, because `vagrant up` does the same and then waits; Vagrant reads the state from libvirt.
        self.libvirt.start_machine(self.name)

    def cut(self, policy: CutPolicy, seed: int) -> Cut:
        """Cut the power: freeze the disks, kill QEMU, then apply the cut policy to the disks' caches."""
        self._require_running()
        cut = cut_power(self.guest.disks, lambda: self.libvirt.kill(self.name), policy, seed)
        self.libvirt.wait_off(self.name, Deadline.after(OFF_DEADLINE_S))
        return cut

    def wait_off(self, deadline: Deadline) -> None:
        """Wait until libvirt reports that the machine is off."""
        self.libvirt.wait_off(self.name, deadline)

    def _require_running(self) -> None:
        if not self.running:
            raise RigError(f"{self.name} is not switched on: libvirt has no running QEMU for it")

    def require_on(self) -> None:
        """Raise RigError with the last console output if the machine has ended."""
        if not self.running:
            last = self.consoles[-1]
            output = last.read_text(errors="replace") if last.exists() else ""
            cause = cause_of_death(output) if output.strip() else self.libvirt.cause(self.name)
            raise RigError(f"{self.name}: QEMU ended: {cause}; see {self.consoles[-1]}")
