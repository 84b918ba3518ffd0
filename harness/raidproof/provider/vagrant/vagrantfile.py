"""The input of vms/Vagrantfile for the machines of a lab: one JSON file, written from the topology."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raidproof.core.topology import GATEWAY, MachineSpec
from raidproof.core.units import MIB
from raidproof.image import recipe
from raidproof.machine.machine import MemberDisks
from raidproof.namespace.network import hardware_address
from raidproof.provider.vagrant.libvirt import NETWORK, POOL

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
    return json.dumps({"machines": [machine(guest, accelerated=accelerated) for guest in guests]}, indent=1)


def machine(guest: Guest, *, accelerated: bool) -> dict[str, Any]:
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
    return ["-blockdev", _options([("node-name", node), *source]), "-device", _options(device)]


def _options(pairs: Sequence[tuple[str, str]]) -> str:
    """Join options for QEMU: a comma inside a value is doubled."""
    return ",".join(f"{key}={value.replace(',', ',,')}" for key, value in pairs)
