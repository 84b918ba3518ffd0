"""What is rebuilt between two configurations. Stack and lab are faked; scenarios build real ones."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.units import KIB
from raidproof.lab.lab import Lab
from raidproof.run.stack_deployer import NOTHING, StackDeployer, lowest_difference
from raidproof.storage.array import MdSpec
from raidproof.storage.filesystem import Ext4Spec
from raidproof.storage.link import LinkSpec
from raidproof.storage.mount import MountSpec
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import StackSpec

ARRAY = MdSpec(level="5", members=("disk0", "disk1", "disk2"))


def stack(**changes: Any) -> StackSpec:
    return StackSpec(**{"array": ARRAY, **changes})


@pytest.mark.parametrize(
    ("changes", "lowest"),
    [
        ({}, NOTHING),
        ({"mount": MountSpec(wsize=64 * KIB)}, "mount"),
        ({"export": ExportSpec(sync=False)}, "export"),
        ({"export": ExportSpec(sync=False), "mount": MountSpec(wsize=64 * KIB)}, "export"),
        ({"filesystem": Ext4Spec()}, "array"),
        ({"link": LinkSpec(rate="1Gbit")}, "array"),
        ({"server_link": LinkSpec(rate="1Gbit")}, "array"),
        ({"array": ARRAY.model_copy(update={"members": ("disk0", "disk1", "disk3")})}, "array"),
    ],
)
def test_the_lowest_layer_that_differs(changes: dict[str, Any], lowest: str) -> None:
    assert lowest_difference(stack(), stack(**changes)) == lowest
    assert lowest_difference(stack(**changes), stack()) == lowest


def test_the_first_configuration_is_built_completely() -> None:
    assert lowest_difference(None, stack()) == "array"


class FakeStack:
    """A fake that records the actions on each stack."""

    done: list[str]
    made = 0

    def __init__(self, spec: StackSpec, *_: object) -> None:
        FakeStack.made += 1
        self.spec, self.number = spec, FakeStack.made
        self.tuning: Any = [f"tuning{self.number}"]
        self.client_tuning: dict[str, Any] = {}
        self.links: dict[str, Any] = {}
        self.tls: dict[str, Any] = {}
        self.kerberos: dict[str, Any] = {}
        self.export = SimpleNamespace(
            activate=lambda: self._did("export"),
            deactivate=lambda: self._did("no export"),
            end_grace=lambda: self._did("no grace"),
        )

    def _did(self, what: str) -> SimpleNamespace:
        self.done.append(f"{self.number} {what}")
        return SimpleNamespace(model_dump=lambda **_: {"stack": self.number})

    def __getattr__(self, name: str) -> Any:
        return lambda: self._did(name)


@pytest.fixture
def deployer(monkeypatch: pytest.MonkeyPatch) -> StackDeployer:
    FakeStack.done, FakeStack.made = [], 0
    monkeypatch.setattr("raidproof.run.stack_deployer.Stack", FakeStack)
    monkeypatch.setattr("raidproof.run.stack_deployer.Monitor", lambda *_: None)
    engine = SimpleNamespace(
        reset=lambda: FakeStack.done.append("blank disks"), describe=lambda: SimpleNamespace(members=()), zeroed=True
    )
    topology = SimpleNamespace(timed=False, slow_motion=1.0)
    lab = SimpleNamespace(server=None, clients=(), disks=engine, topology=topology)
    return StackDeployer(cast("Lab", lab))


def test_only_what_differs_is_built(deployer: StackDeployer) -> None:
    assert deployer.deploy(stack()) == ({"stack": 1}, "array")
    assert FakeStack.done == ["blank disks", "1 create", "1 activate"]
    FakeStack.done.clear()
    assert deployer.deploy(stack()) == ({"stack": 2}, NOTHING)
    assert FakeStack.done == ["2 state"]
    FakeStack.done.clear()
    deployer.deploy(stack(mount=MountSpec(wsize=64 * KIB)))
    assert FakeStack.done == ["2 deactivate_clients", "3 activate_clients"]
    FakeStack.done.clear()
    deployer.deploy(stack(export=ExportSpec(sync=False)))
    # try_all goes in the order that it is given: clients first.
    assert FakeStack.done == [
        "3 deactivate_clients",
        "3 deactivate_export",
        "4 activate_export",
        "4 no grace",
        "4 activate_clients",
    ]
    FakeStack.done.clear()
    deployer.deploy(stack(filesystem=Ext4Spec()))
    assert FakeStack.done == ["4 deactivate", "blank disks", "5 create", "5 activate"]


def test_what_has_to_be_put_back_is_remembered(deployer: StackDeployer) -> None:
    deployer.deploy(stack())
    first = deployer.stack
    deployer.deploy(stack(mount=MountSpec(wsize=64 * KIB)))
    assert first is not None
    assert deployer.stack is not None
    assert deployer.stack.tuning is first.tuning
    deployer.deploy(stack(filesystem=Ext4Spec()))
    assert deployer.stack.tuning is not first.tuning


def test_keys_are_kept_until_the_server_is_activated_again(deployer: StackDeployer) -> None:
    deployer.deploy(stack())
    first = deployer.stack
    assert first is not None
    deployer.deploy(stack(mount=MountSpec(wsize=64 * KIB)))
    second = deployer.stack
    assert second is not None
    assert (second.tls is first.tls, second.kerberos is first.kerberos) == (True, True)
    # Kerberos has the names of all users, also of the anonymous one, which is a setting of the export.
    deployer.deploy(stack(mount=MountSpec(wsize=64 * KIB), export=ExportSpec(anonuid=4711)))
    third = deployer.stack
    assert third is not None
    assert (third.tls is first.tls, third.kerberos is first.kerberos) == (False, False)


def test_a_removed_stack_is_rebuilt(deployer: StackDeployer) -> None:
    deployer.deploy(stack())
    deployer.teardown()
    assert deployer.deploy(stack())[1] == "array"
