"""What makes a machine that machine: a tar archive on a disk of its own, unpacked over its root at each boot."""

import io
import shlex
import tarfile
from hashlib import sha256

from raidproof.core.topology import MachineSpec, Role, Topology
from raidproof.machine.keys import LabKeys

BLOCK_BYTES = 4096


def config_disk(spec: MachineSpec, topology: Topology, keys: LabKeys) -> bytes:
    """Return the archive of one machine, padded to whole disk blocks."""
    serials = " ".join(disk.serial for disk in topology.disks) if spec.role is Role.SERVER else ""
    environment = {
        "ADDRESS": str(spec.address),
        "ROLE": spec.role.value,
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
