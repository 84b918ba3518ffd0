"""A server has clients of three suites (kernel and image). Its power is cut while all of them work."""

from itertools import combinations

import pytest

from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import Platform, SoftwareSpec, Topology, server_and_clients
from raidproof.image import image, kernel
from raidproof.pytest_plugin.fixtures import CrashTestRunner, stack_of
from raidproof.run.run import Run

SUITES = {"client1": "debian/bookworm", "client2": "debian/trixie", "client3": "debian/sid"}
"""The suite of each client's kernel and image, the oldest first. The server has the default of both."""


def clients_of_three_suites() -> Topology:
    """Return a topology whose server has the default software, with one client of each suite."""
    topology = server_and_clients(clients=len(SUITES), platform=Platform(provider=kernel.USER_MODE))
    machines = [
        one.model_copy(update={"software": SoftwareSpec(kernel=SUITES[one.name], image=SUITES[one.name])})
        if one.name in SUITES
        else one
        for one in topology.machines
    ]
    return topology.model_copy(update={"machines": tuple(machines)})


@pytest.mark.exhaustive
def test_clients_of_three_suites_keep_every_promise(current_run: Run) -> None:
    if current_run.topology.provider != kernel.USER_MODE:
        raise RequirementMissing(f"provider {current_run.topology.provider} boots no kernels of User-mode Linux")
    current_run.discard_lab()
    with Run("three-suites", current_run.store.path, clients_of_three_suites()) as own:
        CrashTestRunner(own, "three-suites")(stack_of()).must_keep_every_promise()
    assert own.record.environment is not None
    found = {machine.name: machine for machine in own.record.environment.machines}
    assert len({found[name].kernel for name in SUITES}) == len(SUITES)
    for name, suite in SUITES.items():
        assert found[name].packages["nfs-common"] == image.get(SoftwareSpec(image=suite)).packages["nfs-common"]
    versions = [found[name].packages["nfs-common"] for name in SUITES]
    assert all(one != other for one, other in combinations(versions, 2)), versions
