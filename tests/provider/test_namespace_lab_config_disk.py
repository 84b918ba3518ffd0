import io
import tarfile

import pytest

from raidproof.core.topology import MachineSpec, server_and_clients, with_standby
from raidproof.machine.login import LabKeys
from raidproof.provider.namespace_lab import BLOCK_BYTES, config_disk

KEYS = LabKeys.generate()
TOPOLOGY = server_and_clients(clients=2, disks=2)


def contents(spec: MachineSpec) -> dict[str, tuple[str, int]]:
    data = config_disk(spec, TOPOLOGY, KEYS)
    assert len(data) % BLOCK_BYTES == 0
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = {}
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            assert member.uid == member.gid == 0
            files[member.name] = (file.read().decode(), member.mode)
    return files


def test_the_config_disk_has_the_servers_disks() -> None:
    text, _ = contents(TOPOLOGY.server)["etc/raidproof/machine.env"]
    assert text == "ADDRESS=10.77.0.10/24\nROLE=server\nSERIALS='disk0 disk1'\n"


def test_a_client_has_none() -> None:
    text, _ = contents(TOPOLOGY.clients[0])["etc/raidproof/machine.env"]
    assert text == "ADDRESS=10.77.0.21/24\nROLE=client\nSERIALS=''\n"


@pytest.mark.parametrize("spec", TOPOLOGY.machines)
def test_the_config_disk_has_the_names_of_all_machines(spec: MachineSpec) -> None:
    files = contents(spec)
    assert files["etc/hostname"] == (spec.name + "\n", 0o644)
    hosts = files["etc/hosts"][0].splitlines()
    assert hosts == ["127.0.0.1 localhost", "10.77.0.10 server", "10.77.0.21 client1", "10.77.0.22 client2"]


def test_keys_have_the_place_and_mode_that_sshd_requires() -> None:
    files = contents(TOPOLOGY.server)
    assert files["etc/ssh/ssh_host_ed25519_key"] == (KEYS.host.private, 0o600)
    assert files["etc/ssh/ssh_host_ed25519_key.pub"][0] == KEYS.host.public
    assert files["root/.ssh/authorized_keys"] == (KEYS.user.public, 0o600)
    assert not any(KEYS.user.private in content for content, _ in files.values())


def test_a_standby_starts_as_a_server_with_the_same_disks() -> None:
    standby = with_standby(TOPOLOGY).standby
    assert standby is not None
    text, _ = contents(standby)["etc/raidproof/machine.env"]
    assert text == "ADDRESS=10.77.0.11/24\nROLE=server\nSERIALS='disk0 disk1'\n"
