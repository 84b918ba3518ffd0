import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.core.topology import server_and_clients
from raidproof.core.units import MIB
from raidproof.core.waiting import now_ns
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.machine.kernel_log import cause_of_death
from raidproof.machine.machine import MemberDisks
from raidproof.namespace.network import hardware_address
from raidproof.provider.uml import WITHOUT_RAID6, UmlPower, memory_folder, uml_command

KERNEL = Kernel("debian/sid", "7.2", Path("/k/linux"), Path("/k/modules.ext4"), {}, ("seccomp=on",))
IMAGE = Image("debian/trixie", Path("/i/root.ext4"), {})
TOPOLOGY = server_and_clients(memory=512 * MIB)


def command_of(*sockets: str) -> list[str]:
    return uml_command(
        TOPOLOGY.server, KERNEL, IMAGE, Path("/lab"), "tap-server", [Path(socket) for socket in sockets]
    )


def test_the_root_is_read_only_below_a_file_of_the_machine() -> None:
    argv = command_of()
    assert argv[0] == "/k/linux"
    assert "ubda=/lab/server.cow,/i/root.ext4" in argv
    assert "ubdbr=/k/modules.ext4" in argv
    assert "ubdcr=/lab/server.config" in argv
    assert {"mem=512M", "umid=server", "uml_dir=/lab", "panic=1"} <= set(argv)


def test_members_are_given_in_their_order() -> None:
    devices = [word for word in command_of("/lab/b", "/lab/a") if word.startswith("virtio_uml")]
    assert devices == ["virtio_uml.device=/lab/b:2", "virtio_uml.device=/lab/a:2"]


def test_arguments_of_user_mode_linux_are_last() -> None:
    assert command_of("/lab/a")[-1] == "seccomp=on"


def test_a_machine_boots_without_raid6_unless_it_is_required() -> None:
    assert WITHOUT_RAID6 in command_of()
    assert WITHOUT_RAID6 not in uml_command(TOPOLOGY.server, KERNEL, IMAGE, Path("/lab"), "tap", [], raid6=True)


def test_a_machine_keeps_its_hardware_address_and_has_it_alone() -> None:
    addresses = [hardware_address(machine) for machine in TOPOLOGY.machines]
    assert addresses[0] == "02:00:0a:4d:00:0a"
    assert len(set(addresses)) == len(addresses)
    assert f"mac={addresses[0]}" in " ".join(command_of())


def test_memory_goes_where_there_is_room(tmp_path: Path) -> None:
    assert memory_folder(MIB, [tmp_path / "no", tmp_path]) == tmp_path


def test_too_little_memory_is_reported_before_the_boot(tmp_path: Path) -> None:
    more_than_there_is = shutil.disk_usage(tmp_path).free + MIB
    with pytest.raises(RequirementMissing, match=rf"no room for the memory .* in {tmp_path} \(.*--shm-size"):
        memory_folder(more_than_there_is, [tmp_path])


@pytest.mark.parametrize(
    ("console", "cause"),
    [
        (
            "<6>Initmem setup\n<3>Bus error - the host /dev/shm or /tmp mount likely just ran out of space\n"
            "<0>Kernel panic - not syncing: Kernel mode signal 7\n<4> [<60030b5a>] ? panic+0x0/0x43\n",
            "Bus error - the host /dev/shm or /tmp mount likely just ran out of space",
        ),
        (
            "[    0.32] VFS: Finished mounting rootfs\n[    1.52] Kernel panic - not syncing: Fatal exception\n",
            "Kernel panic - not syncing: Fatal exception",
        ),
        ("/lab/linux: cannot execute\n\n", "/lab/linux: cannot execute"),
        ("", "no output"),
    ],
)
def test_what_a_kernel_died_of(console: str, cause: str) -> None:
    assert cause_of_death(console) == cause


def test_a_fence_kills_the_machine_before_its_disks_refuse_its_requests() -> None:
    together: Any = Mock()
    site: Any = SimpleNamespace(members_of=lambda _: MemberDisks(together.engine, Path("nbd"), ("d0",), "server"))
    power = UmlPower(TOPOLOGY.server, KERNEL, IMAGE, site, {})
    power._guest, power._storage = together.guest, together.storage
    begun = now_ns()
    at_ns = power.fence()
    # The storage daemon ends last: while it runs, the engine knows the connections of the machine.
    assert together.mock_calls == [call.guest.kill(), call.engine.fence("server"), call.storage.kill()]
    assert begun <= at_ns <= now_ns()
    with pytest.raises(RigError, match="not switched on"):
        power.fence()
