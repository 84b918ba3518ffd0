"""The lab of provider ``hosts``: the existing machines of an inventory, which are restored after the run."""

import socket
from contextlib import ExitStack
from ipaddress import IPv4Interface
from pathlib import Path

from raidproof.core.errors import RequestError, RequirementMissing
from raidproof.core.layer import found_in
from raidproof.core.log import step
from raidproof.core.topology import MachineSpec, Role, Topology
from raidproof.core.units import KIB, format_size
from raidproof.core.waiting import wall_clock
from raidproof.lab.lab import Lab, side_by_side
from raidproof.lab.lab_directory import LabDirectory
from raidproof.machine.machine import Machine
from raidproof.machine.transport import LOOPBACK, Transport
from raidproof.provider.hosts.disks import CANNOT_PROVE, HostDisks
from raidproof.provider.hosts.gate import require_adopted
from raidproof.provider.hosts.inventory import HostSpec, Inventory, load_inventory
from raidproof.provider.hosts.login import login_of, require_root
from raidproof.provider.hosts.power import HostPower, NoPower, switch_of
from raidproof.provider.hosts.snapshot import (
    KeeperConfig,
    copies,
    left_as_found,
    require_restored,
    restore_command,
)

NAME = "hosts"
WHY_NO_STANDBY = "the inventory describes one server, and no switch that fences it"
"""Why a lab of existing machines has no second server."""
PROGRAMS = {
    "server": ("python3", "mdadm", "exportfs", "rpc.nfsd", "rpc.mountd", "wipefs", "blkid", "lsblk"),
    "client": ("python3", "mount.nfs"),
}
"""The programs that an existing machine must have, by the role of the machine: server or client."""
RUNTIME = "/run/raidproof"
"""The folder on a machine for raidproof's agents."""


class HostsLab(Lab):
    """The machines of an inventory, during a run."""

    disks: HostDisks

    def __init__(self, topology: Topology, *, keep: bool = False) -> None:
        if topology.inventory is None:
            raise RequestError("provider hosts needs an inventory of its machines", remedy="pass --inventory FILE")
        self._inventory_path = topology.inventory
        self.inventory = load_inventory(Path(topology.inventory))
        super().__init__(of_inventory(topology, self.inventory), keep=keep)

    def _leave(self) -> None:
        self._directory.remove()
        step(f"the machines stay in their present state; to restore them: {restore_command(self._inventory_path)}")

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run in this lab cannot prove, because of its disks and its power controls."""
        powers = [machine.power for machine in self.machines.values()]
        limits = [limit for power in powers if isinstance(power, HostPower) for limit in power.cannot_prove]
        return (*CANNOT_PROVE, *dict.fromkeys(limits))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the report: how the power of each machine is cut."""
        return tuple(
            f"{name}: {power.switch.name}: {power.switch.strength}"
            for name, machine in self.machines.items()
            if isinstance(power := machine.power, HostPower)
        )

    def _build(self, undo: ExitStack) -> None:
        undo.callback(self._disconnect)
        named = zip(self.topology.machines, self.inventory.machines, strict=False)
        self.machines = {spec.name: self._make(spec, host) for spec, host in named}
        step(f"logging in to {', '.join(self.machines)}")
        side_by_side([machine.attach for machine in self.machines.values()])
        for machine in self.machines.values():
            require_root(machine)
            # Before the disks are judged: the gate would refuse them because of arrays of an unfinished run.
            require_restored(machine, self._inventory_path)
            for program in PROGRAMS[machine.spec.role]:
                machine.require(program)
        self.disks = HostDisks(self.inventory, self.server, lambda: self.server.boot_id is not None)
        # Before the first change of a machine: if the gate refuses a disk, the machines are unchanged.
        self._require_sizes()
        # In the folder of all labs, so that `./raidproof gc` finds the directory of a killed run.
        self._directory = LabDirectory.create()
        undo.callback(self._directory.remove)
        run = f"{wall_clock():%Y%m%d-%H%M%S}-{self._directory.name}"
        step("saving the configuration of the machines, which is restored after the run")
        kept = [(machine, self._config(machine, run)) for machine in (self.server, *self.clients)]
        undo.enter_context(left_as_found(kept, copies(), self._inventory_path))
        undo.callback(self._bring_back)
        for machine in self.machines.values():
            self._prepare(machine)
        self.topology = self.topology.model_copy(
            update={"machines": tuple(with_memory(one) for one in self.machines.values())}
        )

    def _make(self, spec: MachineSpec, host: HostSpec) -> Machine:
        login = login_of(host)
        transport = Transport(spec.name, login)
        control = self.inventory.power.get(host.name)
        power: HostPower | NoPower = NoPower(host.name)
        if control is not None:
            # `machine` is assigned below.
            switch = switch_of(control, lambda argv: machine.start_command(argv))  # noqa: PLW0108
            power = HostPower(host.name, switch, login.answers)
        machine = Machine(spec, power, transport, own_init=False, on_boot=lambda: self._prepare(machine))
        return machine

    def _bring_back(self) -> None:
        """Switch on each machine to which no SSH connection is open, and log in to it, so that it can be restored."""
        for machine in self.machines.values():
            if not machine.transport.alive:
                step(f"switching {machine.name} on, to restore it")
                machine.power.on()
                machine.attach()

    def _prepare(self, machine: Machine) -> None:
        """Prepare a machine after a boot: the runtime folder, the power control and the links to the disks."""
        machine.succeed(["mkdir", "--parents", RUNTIME])
        if isinstance(machine.power, HostPower):
            machine.power.prepare()
        if machine is self.server:
            # At boot the server assembles the arrays that it finds on the disks.
            self.disks.stop_arrays()
            self.disks.link()

    def _config(self, machine: Machine, run: str) -> KeeperConfig:
        if machine is not self.server:
            return KeeperConfig(run, "client")
        disks = tuple(disk.id for disk in self.inventory.disk)
        return KeeperConfig(run, "server", disks, stop_nfs=self.inventory.server.stop_nfs)

    def _require_sizes(self) -> None:
        """Check that the disks are adopted, and not smaller than requested.

        Raises:
            RequestError: the gate refuses a disk.
            RequirementMissing: a disk is too small.
        """
        found = {one.serial: one.identity.size for one in require_adopted(self.inventory, self.server)}
        for disk in self.topology.disks:
            if found[disk.serial] < disk.size:
                raise RequirementMissing(
                    f"{disk.serial} has {format_size(found[disk.serial])}, and {format_size(disk.size)} are requested",
                    remedy=f"name larger disks in {self._inventory_path}, or request smaller ones",
                )

    def listen(self) -> socket.socket:
        """Return a UNIX socket on this host that listens for connections of the clients, which SSH forwards."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = self._directory.path / "ear"
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()
        return listener

    def callback_address(self, listener: socket.socket, client: Machine) -> tuple[str, int]:
        """Return the host and port, on the client's loopback interface, that SSH forwards to ``listener``."""
        path: str = listener.getsockname()

        def connect() -> socket.socket:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(path)
            return connection

        return LOOPBACK, client.transport.forward(connect)


def of_inventory(topology: Topology, inventory: Inventory) -> Topology:
    """Return a topology with the addresses of an inventory's machines, and without settings of simulated disks.

    Raises:
        RequirementMissing: the inventory has fewer clients or disks than requested.
        RequestError: the host name of a machine does not resolve to an address.
    """
    lacks = [
        f"{asked} {what} are requested, and the inventory has {len(found)}"
        for what, asked, found in (
            ("clients", len(topology.clients), inventory.client),
            ("disks", len(topology.disks), inventory.disk),
        )
        if asked > len(found)
    ]
    if lacks:
        raise RequirementMissing(f"{topology.inventory}: {'; '.join(lacks)}")
    hosts = iter(inventory.client)
    machines = tuple(
        spec.model_copy(update={"address": address_of(inventory.server if spec.role is Role.SERVER else next(hosts))})
        for spec in topology.machines
    )
    disks = tuple(disk.model_copy(update={"profile": None, "controller": None}) for disk in topology.disks)
    return topology.model_copy(update={"machines": machines, "disks": disks, "controllers": (), "slow_motion": 1.0})


def address_of(host: HostSpec) -> IPv4Interface:
    """Return the IPv4 address by which the other machines of a lab reach a machine of the inventory.

    Raises:
        RequestError: the machine's host name does not resolve to an IPv4 address.
    """
    name = host.address or login_of(host).hostname
    try:
        return IPv4Interface(socket.gethostbyname(name))
    except OSError as error:
        raise RequestError(
            f"{host.name}: {name} does not resolve to an IPv4 address: {error.strerror}",
            remedy=f'add address = "..." to {host.name} in the inventory',
        ) from error


def with_memory(machine: Machine) -> MachineSpec:
    """Return the specification of a machine with the size of its memory, read from the machine."""
    total = found_in(r"^MemTotal:\s+(\d+) kB", machine.get("/proc/meminfo"), "MemTotal")
    return machine.spec.model_copy(update={"memory": int(total) * KIB})
