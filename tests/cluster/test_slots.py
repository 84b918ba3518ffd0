"""The slots of a worker, and what must be equal on all workers."""

from types import SimpleNamespace

import pytest

from raidproof.cluster import identity, slots
from raidproof.core.units import GIB


@pytest.mark.parametrize(
    ("cpus", "memory", "share", "expected"),
    [
        (8, 64 * GIB, 1, (4, 8)),
        (8, 64 * GIB, 4, (1, 2)),
        (8, 6 * GIB, 1, (1, 3)),
        (1, GIB, 1, (1, 1)),
    ],
)
def test_slots_are_limited_by_cores_and_memory(
    monkeypatch: pytest.MonkeyPatch, cpus: int, memory: int, share: int, expected: tuple[int, int]
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpus)))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=memory))
    assert slots.slots_of(share=share) == {slots.LAB: expected[0], slots.CHECKER: expected[1]}


def test_the_version_has_a_digest_of_the_source() -> None:
    number, _, digest = identity.version().partition("-")
    assert number[0].isdigit()
    assert len(digest) >= 16


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n", "A CPU @ 2 GHz"), ("Processor : none\n", "x86_64")],
)
def test_the_model_of_the_cpu(monkeypatch: pytest.MonkeyPatch, cpuinfo: str, model: str) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert identity.cpu_model(cpuinfo) == model
