"""Each image works with the oldest and the newest kernel, and a server works with a client of another image."""

import pytest

from raidproof.core.topology import Platform, SoftwareSpec, server_and_clients
from raidproof.image import image
from raidproof.image.software import software_of
from raidproof.provider.registry import lab_of
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.storage.stack import Stack, StackState

OLDEST, DEFAULT, NEWEST = "debian/bookworm", "debian/trixie", "debian/sid"
# Not sid with sid: there rpc.mountd switches pNFS on by mistake, and clients hang (docs/findings.md).
PAIRS = [(name, kernel) for name in image.names() for kernel in (OLDEST, NEWEST) if (name, kernel) != (NEWEST, NEWEST)]


def served(server: SoftwareSpec, client: SoftwareSpec) -> tuple[StackState, dict[str, str], dict[str, str]]:
    """Boot a server and a client, write a file on the client, and read the file on the server.

    Return the state of the stack, the packages of the server, and the packages of the client.
    """
    topology = server_and_clients(clients=1, platform=Platform(server=server, clients=client))
    with lab_of(topology) as lab:
        stack = Stack(stack_of(), lab.server, lab.clients)
        stack.create()
        state = stack.activate()
        (writer,) = lab.clients
        writer.put("kept", f"{stack.mounts[writer.name].directory}/word")
        stack.deactivate_clients()
        assert lab.server.get(f"{stack.filesystem.directory}/word") == "kept"
        found = (state, software_of(lab.server).packages, software_of(writer).packages)
        stack.activate_clients()
        stack.deactivate()
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "kernel"), PAIRS)
def test_image_works_with_oldest_and_newest_kernel(name: str, kernel: str) -> None:
    software = SoftwareSpec(image=name, kernel=kernel)
    _, server, client = served(software, software)
    assert server == client == image.get(software).packages


@pytest.mark.exhaustive
@pytest.mark.parametrize(("old", "new"), [(OLDEST, NEWEST), (NEWEST, OLDEST)], ids=["old-server", "new-server"])
def test_old_and_new_software_work_together(old: str, new: str) -> None:
    _, server, client = served(SoftwareSpec(image=old), SoftwareSpec(image=new))
    assert server["nfs-kernel-server"] == image.get(old).packages["nfs-kernel-server"]
    assert client["nfs-common"] == image.get(new).packages["nfs-common"]


@pytest.mark.exhaustive
def test_a_file_system_has_no_feature_unknown_to_its_kernel() -> None:
    software = SoftwareSpec(image=NEWEST, kernel=OLDEST)
    state, _, _ = served(software, SoftwareSpec())
    assert {"parent=0", "exchange=0", "nrext64=0"} <= set(state.filesystem.features)
    newest, _, _ = served(SoftwareSpec(image=NEWEST, kernel=DEFAULT), SoftwareSpec())
    assert {"parent=1", "exchange=1", "nrext64=1"} <= set(newest.filesystem.features)
