"""A lab in its own Linux namespaces: machines of a provider, and the disk engine that serves the server's members."""

import io
import shlex
import socket
import tarfile
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

from raidproof.core.log import step
from raidproof.core.topology import GATEWAY, MachineSpec, Role, Topology
from raidproof.core.waiting import Deadline, wait_until
from raidproof.disk.client import EngineClient
from raidproof.disk.daemon import nbdkit_command
from raidproof.disk.disks import disks_of
from raidproof.disk.messages import save_disks
from raidproof.lab.lab import Lab
from raidproof.lab.lab_directory import LabDirectory
from raidproof.machine.login import LabKeys
from raidproof.machine.machine import Machine
from raidproof.provider.provider import Provider, Site

BLOCK_BYTES = 4096
"""A configuration disk's size is a multiple of this number of bytes."""
ENGINE_DEADLINE_S = 15.0
"""Seconds within which the disk engine must open its control socket."""
QUEUE_DEPTH = 16
"""Requests that qemu-storage-daemon keeps in flight on each member (MAX_NBD_REQUESTS in QEMU's block/nbd.c)."""


class NamespaceLab(Lab):
    """The lab of a provider in `PROVIDERS`. Its processes end as soon as the process that created the lab ends."""

    disks: EngineClient

    def __init__(
        self, topology: Topology, provider: Provider, *, logs: Path | None = None, keep: bool = False
    ) -> None:
        super().__init__(topology, keep=keep)
        self.provider = provider
        self._logs = logs

    def _leave(self) -> None:
        self.directory.mark_kept(self.keys)
        self.namespace.keep()
        self.namespace.detach()

    @property
    def cannot_prove(self) -> tuple[str, ...]:
        """What a run in this lab cannot prove."""
        return self.provider.cannot_prove

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the report must know about how the machines ran, such as the accelerator."""
        return self.provider.notes

    @property
    def programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of this host that run during the lab, by name, each as the start of its command."""
        return self.provider.programs

    def _build(self, undo: ExitStack) -> None:
        # The directory first: if there is no space for it, nothing else is started.
        self.directory = LabDirectory.create()
        undo.callback(self.directory.remove)
        self.provider.prepare(self.topology)
        step("starting the lab: network and disks")
        self.logs = self._logs or self.directory.path
        self.logs.mkdir(parents=True, exist_ok=True)
        # The stack undoes this after the namespace: once all machines have ended, pending logins fail at once.
        undo.callback(self._disconnect)
        self.namespace = undo.enter_context(self.provider.enclose(self.directory.path))
        self.directory.register(self.namespace.pid, self.topology)
        self.keys = LabKeys.generate()
        self.disks = self._start_engine(undo)
        site = Site(
            topology=self.topology,
            directory=self.directory.path,
            logs=self.logs,
            namespace=self.namespace,
            engine=self.disks,
            engine_socket=self.engine_socket,
            keys=self.keys,
        )
        for spec in self.topology.machines:
            site.config_disk(spec.name).write_bytes(config_disk(spec, self.topology, self.keys))
        self.provider.furnish(site)
        self.machines = {spec.name: self.provider.machine(spec, site) for spec in self.topology.machines}
        step(f"booting {', '.join(self.machines)}")
        self.start(list(self.machines.values()))
        if self.provider.boots_together:
            for machine in self.machines.values():
                machine.boot_s = None

    def _start_engine(self, undo: ExitStack) -> EngineClient:
        directory = self.directory.path
        control, config = directory / "engine.sock", directory / "disks.json"
        save_disks(config, disks_of(self.topology))
        process = self.namespace.spawn(
            nbdkit_command(
                socket=self.engine_socket,
                config=config,
                control=control,
                # With simulated latency, a request that waits for its disk must not delay requests to other disks.
                threads=QUEUE_DEPTH if self.topology.timed else 1,
            ),
            output=self.logs / "disk-engine.log",
        )

        def listening() -> bool:
            process.require_running()
            return control.exists()

        wait_until(listening, Deadline.after(ENGINE_DEADLINE_S), "the disk engine", interval_s=0.005)
        return undo.enter_context(EngineClient(control))

    @property
    def engine_socket(self) -> Path:
        """The UNIX socket on which the disk engine serves the members by NBD."""
        return self.directory.path / "nbd.sock"

    def listen(self) -> socket.socket:
        """Return a socket that listens on a free port of the harness's address in the lab's network."""
        listener = self.namespace.socket()
        listener.bind((str(GATEWAY.ip), 0))
        listener.listen()
        return listener

    def callback_address(self, listener: socket.socket, client: Machine) -> tuple[str, int]:  # noqa: ARG002
        """Return the host and port of the listener, which are the same for all clients."""
        host, port = listener.getsockname()
        return host, port


def config_disk(spec: MachineSpec, topology: Topology, keys: LabKeys) -> bytes:
    """Return the content of a machine's configuration disk: a tar archive of files for /etc and /root.

    Zeros pad the archive to a multiple of `BLOCK_BYTES`.
    """
    serves = spec.role is not Role.CLIENT
    serials = " ".join(disk.serial for disk in topology.disks) if serves else ""
    environment = {
        "ADDRESS": str(spec.address),
        "ROLE": (Role.SERVER if serves else Role.CLIENT).value,
        "SERIALS": serials,
    }
    hosts = "127.0.0.1 localhost\n" + "".join(f"{one.address.ip} {one.name}\n" for one in topology.machines)
    files = {
        "etc/hostname": (spec.name + "\n", 0o644),
        "etc/hosts": (hosts, 0o644),
        "etc/machine-id": (sha256(f"{spec.name} {keys.host.public}".encode()).hexdigest()[:32] + "\n", 0o444),
        "etc/ssh/ssh_host_ed25519_key": (keys.host.private, 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": (keys.host.public, 0o644),
        "root/.ssh/authorized_keys": (keys.user.public, 0o600),
        "etc/raidproof/machine.env": (
            "".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items()),
            0o644,
        ),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            data = content.encode()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    data = buffer.getvalue()
    return data + bytes(-len(data) % BLOCK_BYTES)
