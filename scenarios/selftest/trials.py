"""Scenarios that must not pass: in each of them a real event causes another outcome.

`test_every_end.py` runs these scenarios; pytest does not collect this file by itself.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from raidproof.core.topology import Topology, server_and_clients
from raidproof.disk.cache import CacheMode
from raidproof.fault import NfsdRestart
from raidproof.image import kernel
from raidproof.image.kernel import Kernel
from raidproof.lab.lab import Lab
from raidproof.machine.machine import Machine
from raidproof.provider.registry import lab_of
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.record import ControlSpec
from raidproof.run.run import Run
from raidproof.workload.fio import FioSpec


@pytest.fixture(scope="session")
def lab_topology(lab_topology: Topology) -> Topology:
    """One client: no trial is about several."""
    return lab_topology.model_copy(update={"machines": (lab_topology.server, lab_topology.clients[0])})


def test_lying_disks(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), cache_mode=CacheMode.LYING).must_keep_every_promise()


def test_one_lying_disk_of_four(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), cache_mode=CacheMode.LYING, cache_mode_of=["disk2"]).must_keep_every_promise()


def test_control_that_passes(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), control=ControlSpec(expects_loss=True)).must_pass()


def test_async_export_that_loses_nothing(cycle: CrashTestRunner) -> None:
    cycle(stack_of(sync=False), fault="clean-reboot").must_lose_by_design()


@pytest.fixture
def client_without_fio(current_run: Run) -> Iterator[Machine]:
    """Yield a client without the program fio."""
    client = current_run.lab.clients[0]
    client.succeed(["mv", "/usr/bin/fio", "/usr/bin/fio.away"])
    yield client
    client.succeed(["mv", "/usr/bin/fio.away", "/usr/bin/fio"])


@pytest.mark.usefixtures("client_without_fio")
def test_missing_tool(cycle: CrashTestRunner) -> None:
    cycle(stack_of(), fio=FioSpec()).must_pass()


def test_oops(lab: Lab) -> None:
    # The message that the kernel logs at an oops, with the same log level (0).
    lab.server.put("<0>BUG: unable to handle page fault\n", "/dev/kmsg")


def test_stuck_mount(cycle: CrashTestRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raidproof.run.fault_sequence.RESUME_DEADLINE_S", 2.0)
    monkeypatch.setattr("raidproof.run.fault_sequence.protocol_s", lambda _: 0.0)
    monkeypatch.setattr(NfsdRestart, "heal", lambda *_: None)
    # With 1 s of outage, the reports that clients sent before the fault arrive before the wait for the clients begins.
    cycle(stack_of(), fault=NfsdRestart(down_s=1.0)).must_keep_every_promise()


def test_crashed_init(monkeypatch: pytest.MonkeyPatch) -> None:
    real = kernel.get
    broken = ("init=/bin/false",)

    def get(*asked: Any, **also: Any) -> Kernel:
        found = real(*asked, **also)
        return replace(found, arguments=(*found.arguments, *broken))

    monkeypatch.setattr(kernel, "get", get)
    with lab_of(server_and_clients(clients=1)):
        pytest.fail("a lab booted although /bin/false is the init of its machines")
