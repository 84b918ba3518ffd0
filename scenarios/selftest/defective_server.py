"""Separate runs whose server has a module of the kernel with planted defects: expected failures fail no shared run."""

from collections.abc import Callable
from pathlib import Path

from raidproof.core.errors import RequirementMissing
from raidproof.core.topology import Role, Topology
from raidproof.image import kernel
from raidproof.machine.machine import Machine
from raidproof.run.run import Run
from scenarios.selftest.planted_source import broken, parameter

LEFT_OUT = "left out"
"""The key of the number of steps left out among what a planted defect has stored (`defects.Places`)."""


def defective_run(name: str, current_run: Run, build: Callable[[str], Path]) -> Run:
    """Return a run of this name whose server has a changed module; the clients have the kernel's original modules.

    ``build``: builds the module for the kernel of a name, and returns the folder with it.

    Raises:
        RequirementMissing: the provider cannot replace a module.
    """
    if current_run.topology.provider != kernel.USER_MODE:
        raise RequirementMissing(
            f"provider {current_run.topology.provider} cannot replace a kernel module; only uml can (--provider uml)"
        )
    topology = with_module(current_run.topology, build)
    current_run.discard_lab()
    return Run(name, current_run.store.path, topology)


def select(server: Machine, module: str, defect: str) -> None:
    """Select a planted defect of a module (``nfsd``), or none if the name is empty, and reset the count of steps."""
    # Without the line feed, the kernel would get no write for an empty name, and keep the defect.
    server.put(f"{defect}\n", parameter(module))
    assert server.get(parameter(module)).strip() == defect
    server.put("0", broken(module))


def left_out(server: Machine, module: str) -> str:
    """Return the number of steps that the selected defect of a module has left out."""
    return server.get(broken(module))


def with_module(topology: Topology, build: Callable[[str], Path]) -> Topology:
    """Return a topology whose server has the module that ``build`` makes for its kernel."""
    machines = []
    for machine in topology.machines:
        software = machine.software
        if machine.role is Role.SERVER:
            folder = build(software.kernel or kernel.DEFAULT)
            software = software.model_copy(update={"modules": str(folder)})
        machines.append(machine.model_copy(update={"software": software}))
    return topology.model_copy(update={"machines": tuple(machines)})
