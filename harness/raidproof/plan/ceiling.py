"""The ceiling of a cell: the throughput that the model computes for its hardware and settings."""

from dataclasses import replace

from raidproof.core.topology import NO_MECHANICS, Topology
from raidproof.disk.profile import load_profile
from raidproof.monitor.disk_model import Hardware, Member
from raidproof.monitor.model import NOTHING_FOUND, Expected, Found, expected
from raidproof.plan.cell import Cell, Matrix
from raidproof.plan.works import ARRAY
from raidproof.storage.array import capacity
from raidproof.workload.workload import CLIENTS, SERVER

PLACES = (CLIENTS, SERVER, ARRAY)
"""Where a workload runs if the model has a formula for it; it has none for a workload on a single disk."""


def hardware_of(topology: Topology) -> Hardware:
    """Return the disks and controllers of a topology in the form that the model's formulas use."""
    members = {}
    for disk in topology.disks:
        profile = load_profile(disk.profile or NO_MECHANICS)
        reach = disk.size / profile.capacity if disk.placement == "outer" and profile.timed else 1.0
        members[disk.serial] = Member(profile, disk.controller, min(1.0, reach), disk.size)
    return Hardware(members, {one.name: one for one in topology.controllers})


def ceiling_of(
    topology: Topology, cell: Cell, read_back: Found = NOTHING_FOUND, hardware: Hardware | None = None
) -> Expected | None:
    """Return the expected throughput of a cell; None if no formula applies or no term of the model limits the cell.

    ``read_back``: values that were read from the built stack, which make the result more accurate. ``hardware``: the
    result of `hardware_of`, to compute many cells faster.
    """
    access = cell.workload.access(clients=cell.clients)
    if access is None or not topology.timed or cell.on not in PLACES:
        return None
    sizes = {disk.serial: disk.size for disk in topology.disks}
    room = capacity(cell.stack.array, min(sizes[serial] for serial in cell.stack.array.members))
    span = access.span
    if access.working_set and not access.sequential:
        span = min(1.0, access.working_set / room)
    served = replace(access, remote=cell.on == CLIENTS, span=span)
    return expected(hardware or hardware_of(topology), cell.stack, served, read_back)


def ceilings_of(matrix: Matrix) -> dict[str, Expected | None]:
    """Return the ceiling of each cell of a plan, by name of the cell."""
    topology = matrix.plan.hardware.topology()
    hardware = hardware_of(topology)
    return {cell.name: ceiling_of(topology, cell, hardware=hardware) for cell in matrix.cells}
