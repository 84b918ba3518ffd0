"""What the hardware should have given for a cell, in the unit of its workload."""

from dataclasses import asdict, replace
from typing import Any

from raidproof.core.topology import NO_MECHANICS, Topology
from raidproof.disk.profile import load_profile
from raidproof.monitor.model.access_of import access_of
from raidproof.monitor.model.expected import expected
from raidproof.monitor.model.hardware import Hardware, Member
from raidproof.plan.cell import Cell
from raidproof.plan.works import ARRAY, CLIENTS, SERVER
from raidproof.storage.array import capacity


def expectation(topology: Topology, cell: Cell, unit: str) -> dict[str, Any] | None:
    """Return what a cell should give, with the formula and its source; None where no formula is honest.

    Units whose names end in ``mb_s`` and ``iops`` have one; counts of transactions or files have none.
    """
    access = access_of(cell.workload, clients=cell.clients)
    if access is None or not topology.timed or cell.on not in {CLIENTS, SERVER, ARRAY}:
        return None
    sizes = {disk.serial: disk.size for disk in topology.disks}
    room = capacity(cell.stack.array, min(sizes[serial] for serial in cell.stack.array.members))
    span = access.span
    if access.working_set and not access.sequential:
        span = min(1.0, access.working_set / room)
    found = expected(hardware_of(topology), cell.stack, replace(access, remote=cell.on == CLIENTS, span=span))
    if found is None or not unit.endswith(("mb_s", "iops")):
        return None
    return {"value": found.mb_s if unit.endswith("mb_s") else found.iops, **asdict(found)}


def hardware_of(topology: Topology) -> Hardware:
    """Return the disks of a topology as the formulas take them."""
    members = {}
    for disk in topology.disks:
        profile = load_profile(disk.profile or NO_MECHANICS)
        reach = disk.size / profile.capacity if disk.placement == "outer" and profile.timed else 1.0
        members[disk.serial] = Member(profile, disk.controller, min(1.0, reach))
    return Hardware(members, {one.name: one for one in topology.controllers})
