import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError, RigError
from raidproof.core.topology import MachineSpec, server_and_clients
from raidproof.core.units import MIB
from raidproof.core.waiting import Deadline
from raidproof.disk.cache import CutPolicy
from raidproof.image.image import Image
from raidproof.image.kernel import Kernel
from raidproof.machine.machine import MemberDisks
from raidproof.provider import kvm
from raidproof.provider.kvm import Accelerator, program_for
from raidproof.provider.qemu import QemuPower, overlay_command, overlay_path, qemu_command

KERNEL = Kernel("debian/sid", "7.2", Path("/k/vmlinuz"), Path("/k/modules.ext4"), initramfs=Path("/k/initramfs"))
USER_MODE = Kernel("debian/sid", "7.2", Path("/k/linux"), Path("/k/modules.ext4"))
IMAGE = Image("debian/trixie", Path("/i/root.ext4"), {})
TOPOLOGY = server_and_clients(memory=512 * MIB)


class FakeEngine:
    """A fake that records its calls in order."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def freeze(self) -> int:
        self.said.append("freeze")
        return 7

    def resolve(self, policy: CutPolicy, seed: int) -> tuple[()]:
        self.said.append(f"resolve {policy} {seed}")
        return ()

    def power_on(self) -> int:
        self.said.append("power on")
        return 8


def members(*serials: str, said: list[str] | None = None) -> MemberDisks:
    return MemberDisks(FakeEngine([] if said is None else said), Path("/lab/nbd.sock"), serials)  # type: ignore[arg-type]


def test_emulation_asks_for_a_qemu_that_can_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm, "for_emulation", lambda: ("ld.so", "qemu"))
    assert program_for(Accelerator.TCG) == ("ld.so", "qemu")
    assert program_for(Accelerator.KVM) == (kvm.PROGRAM,)
    argv = qemu_command(TOPOLOGY.server, KERNEL, IMAGE, Path("/lab"), "tap", Accelerator.TCG, None, ("ld.so", "qemu"))
    assert argv[:2] == ["ld.so", "qemu"]


def command_of(
    *serials: str, accelerator: Accelerator = Accelerator.TCG, spec: MachineSpec = TOPOLOGY.server
) -> list[str]:
    return qemu_command(spec, KERNEL, IMAGE, Path("/lab"), "tap-server", accelerator, members(*serials))


def options(argv: list[str], name: str) -> Iterator[Any]:
    for word, value in pairwise(argv):
        if word == name:
            yield json.loads(value) if value.startswith("{") else value


def test_the_root_is_read_only_below_a_file_of_the_machine() -> None:
    root, modules, config = options(command_of(), "-blockdev")
    assert root["file"]["filename"] == "/lab/server.qcow2"
    assert (root["backing"]["file"]["filename"], root["backing"]["read-only"]) == ("/i/root.ext4", True)
    assert (modules["file"]["filename"], modules["read-only"]) == ("/k/modules.ext4", True)
    assert (config["file"]["filename"], config["read-only"]) == ("/lab/server.config", True)
    assert overlay_path(Path("/lab"), "server") == Path(root["file"]["filename"])
    assert overlay_command(Path("/i/root.ext4"), Path("/lab/server.qcow2"))[-3:] == [
        "-b",
        "/i/root.ext4",
        "/lab/server.qcow2",
    ]


def test_members_are_the_engines_exports_and_keep_a_volatile_cache() -> None:
    argv = command_of("b", "a")
    nodes = [node for node in options(argv, "-blockdev") if node["driver"] == "nbd"]
    assert [node["export"] for node in nodes] == ["b", "a"]
    assert {node["server"]["path"] for node in nodes} == {"/lab/nbd.sock"}
    assert {node["discard"] for node in nodes} == {"unmap"}
    devices = {device["drive"]: device for device in options(argv, "-device") if "drive" in device}
    assert {node["node-name"] for node in nodes} <= set(devices)
    assert [(devices[node["node-name"]]["serial"], devices[node["node-name"]]["write-cache"]) for node in nodes] == [
        ("b", "on"),
        ("a", "on"),
    ]


def test_a_machine_has_no_unrequested_devices() -> None:
    argv = command_of()
    assert {"-nodefaults", "-no-user-config", "-no-reboot"} <= set(argv)
    assert list(options(argv, "-display")) == ["none"]
    network = next(device for device in options(argv, "-device") if device["driver"] == "virtio-net-pci")
    assert (network["mac"], network["romfile"]) == ("02:00:0a:4d:00:0a", "")
    assert list(options(argv, "-netdev")) == ["tap,id=lab,ifname=tap-server,script=no,downscript=no"]
    assert list(options(argv, "-m")) == ["512M"]


@pytest.mark.parametrize(("accelerator", "defended"), [(Accelerator.KVM, True), (Accelerator.TCG, False)])
def test_only_an_emulated_processor_goes_without_defences(accelerator: Accelerator, defended: bool) -> None:
    argv = command_of(accelerator=accelerator)
    [append], [word] = options(argv, "-append"), options(argv, "-accel")
    assert ("mitigations=off" not in append.split()) is defended
    assert {"console=ttyS0", "panic=1", "net.ifnames=0"} <= set(append.split())
    assert word.startswith(str(accelerator))


@given(st.integers(0, 64))
def test_each_device_has_a_place_of_its_own(count: int) -> None:
    argv = command_of(*(f"disk{number}" for number in range(count)))
    devices = list(options(argv, "-device"))
    places = [device["addr"] for device in devices]
    assert len(set(places)) == len(places) == count + 5
    # Without it the guest looks no further than function 0.
    assert all(device["multifunction"] is device["addr"].endswith(".0") for device in devices)


def test_more_disks_than_places_are_refused() -> None:
    with pytest.raises(RequestError, match="room for 240 devices"):
        command_of(*(f"disk{number}" for number in range(240)))


def test_a_user_mode_kernel_is_refused() -> None:
    with pytest.raises(RequestError, match="User-mode Linux"):
        qemu_command(TOPOLOGY.server, USER_MODE, IMAGE, Path("/lab"), "tap", Accelerator.TCG)


@given(st.integers(1, 8).flatmap(lambda nodes: st.tuples(st.just(nodes), st.integers(1, 4))), st.integers(256, 4096))
def test_nodes_share_all_processors_and_all_memory(shape: tuple[int, int], memory: int) -> None:
    nodes, each = shape
    spec = TOPOLOGY.server.model_copy(
        update={"cpus": nodes * each, "numa_nodes": nodes, "memory": memory * MIB},
    )
    argv = command_of(spec=spec)
    [smp] = options(argv, "-smp")
    assert smp.startswith(f"cpus={nodes * each},")
    backends = [one for one in options(argv, "-object") if one["qom-type"] == "memory-backend-ram"]
    if nodes > 1:
        assert sum(backend["size"] for backend in backends) == memory * MIB
    assert len(list(options(argv, "-numa"))) == (nodes if nodes > 1 else 0)


class FakeProcess:
    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.status: int | None = None

    def kill(self) -> None:
        self.said.append("kill")

    def wait(self, deadline: Deadline) -> int:
        self.said.append("wait")
        return 0


class FakeEnclosure:
    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.process = FakeProcess(said)

    def spawn(self, argv: list[str], *, output: Path) -> FakeProcess:
        assert argv[:2] == ["ld.so", "qemu"]
        self.said.append("spawn")
        output.write_text("[    1.5] Kernel panic - not syncing: Fatal exception\n")
        return self.process


def power_in(folder: Path, said: list[str]) -> QemuPower:
    overlay_path(folder, "server").touch()
    disks = members("a", said=said)
    site = SimpleNamespace(
        directory=folder, logs=folder, namespace=FakeEnclosure(said), members_of=lambda spec: disks if spec else None
    )
    return QemuPower(TOPOLOGY.server, KERNEL, IMAGE, site, Accelerator.TCG, ("ld.so", "qemu"))  # type: ignore[arg-type]


def test_a_cut_freezes_before_it_kills_and_resolves_after(tmp_path: Path) -> None:
    said: list[str] = []
    power = power_in(tmp_path, said)
    power.on()
    cut = power.cut(CutPolicy.DROP, 3)
    power.on()
    assert said == ["spawn", "freeze", "kill", f"resolve {CutPolicy.DROP} 3", "power on", "spawn"]
    assert (cut.at_ns, cut.seed) == (7, 3)
    assert [path.name for path in power.consoles] == ["server.console.1.log", "server.console.2.log"]


def test_after_a_clean_stop_the_disks_still_have_their_power(tmp_path: Path) -> None:
    said: list[str] = []
    power = power_in(tmp_path, said)
    power.on()
    power.wait_off(Deadline.after(1))
    power.on()
    assert said == ["spawn", "wait", "kill", "spawn"]


def test_the_error_about_a_dead_machine_has_its_last_output(tmp_path: Path) -> None:
    power = power_in(tmp_path, [])
    with pytest.raises(RigError, match="not switched on"):
        power.cut(CutPolicy.DROP, 0)
    power.on()
    power.require_on()
    power.site.namespace.process.status = 0  # type: ignore[attr-defined]
    with pytest.raises(RigError, match="QEMU ended with status 0: Kernel panic"):
        power.require_on()
