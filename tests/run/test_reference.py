"""The reference measurement: its parts, and a server that lacks a program. The lab is faked."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raidproof.core.command import CommandFailed, Completed
from raidproof.record.reference import ReferenceRecord
from raidproof.run.reference import PIECES, SENT, VERSION, measure_reference
from raidproof.run.stack_deployer import StackDeployer


class FakeServer:
    """A fake server that records what it does, and lacks a program."""

    def __init__(self, missing: str = "") -> None:
        self.missing = missing
        self.done: list[str] = []

    def succeed(self, argv: list[str]) -> str:
        self.done.append(argv[0])
        if argv[0] == self.missing:
            raise CommandFailed(Completed(tuple(argv), 127, "", "not found", "server"))
        return ""

    def put(self, content: bytes, path: str) -> None:
        assert (len(content), path) == (SENT, "/dev/null")
        self.done.append("put")


def measured(server: FakeServer) -> tuple[ReferenceRecord | None, list[str]]:
    timing: list[str] = []
    deployer: Any = SimpleNamespace(
        lab=SimpleNamespace(server=server, topology=SimpleNamespace(disks=[SimpleNamespace(serial="disk0")])),
        disable_timing=lambda: timing.append("off"),
    )
    return measure_reference(cast("StackDeployer", deployer)), timing


def test_the_parts_are_measured_in_turn_without_disk_timing() -> None:
    server = FakeServer()
    found, timing = measured(server)
    assert found is not None
    assert found.version == VERSION
    assert server.done == ["python3", "dd", "put"] * PIECES
    assert timing == ["off"]


@pytest.mark.parametrize("program", ["python3", "dd"])
def test_a_server_without_a_program_has_no_reference_measurement(program: str) -> None:
    assert measured(FakeServer(program))[0] is None


def test_each_part_has_the_same_weight() -> None:
    before = ReferenceRecord(version=1, processor_s=0.5, disks_s=0.1, network_s=0.01)
    for name in ("processor_s", "disks_s", "network_s"):
        slower = before.model_copy(update={name: 8 * getattr(before, name)})
        assert slower.seconds == pytest.approx(2 * before.seconds)
