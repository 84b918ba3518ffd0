"""From the settings of a cell to its stack: which disks it takes, and which layer gets which value."""

from collections.abc import Iterable
from typing import Any

from raidproof.core.errors import RequestError
from raidproof.plan.axes import Settings, axis_of, level_of
from raidproof.plan.hardware import Duty, Hardware
from raidproof.storage.array.spec import Level
from raidproof.storage.stack import StackSpec

LEASE_S = 10
"""The lease where a plan says nothing, in seconds: the shortest that nfsd takes, or each power cut under NFSv4.0 would
wait for the kernel's grace period of 90 s."""


def wanted(settings: Settings) -> dict[Duty, int]:
    """Return how many disks these settings want beside the members."""
    return {
        "spare": int(settings.get("spares", 0)),
        "journal": int(settings.get("consistency_policy") == "journal"),
        "log": int(settings.get("log") == "external"),
    }


def usual_members(hardware: Hardware, all_settings: Iterable[Settings]) -> int:
    """Return how many members an array has where nothing is said: as many as every cell can have.

    What one cell needs beside its members, all leave out, or they could not be compared.
    """
    duties = [disk.duty for disk in hardware.each_disk]
    missing = [
        sum(max(0, number - duties.count(duty)) for duty, number in wanted(settings).items())
        for settings in all_settings
    ]
    return duties.count("member") - max(missing, default=0)


def stack_of(hardware: Hardware, settings: Settings, members: int, *, assume_clean: bool) -> StackSpec:
    """Return the stack that the settings ask for, on disks that exist and have room for it.

    Raises:
        RequestError: it cannot be.
    """
    layers: dict[str, dict[str, Any]] = {
        "export": {"lease_s": LEASE_S},
        "array": {"assume_clean": assume_clean},
        "filesystem": {"type": "xfs"},
        "link": hardware.network.model_dump(),
    }
    for name, value in settings.items():
        layer, _, field = axis_of(name).field.partition(".")
        if field:
            layers.setdefault(layer, {})[field] = value
    # A grace period shorter than the lease ends before a silent client has noticed that the server was away.
    layers["export"].setdefault("grace_s", layers["export"]["lease_s"])
    array = layers["array"]
    # Said by name even where it is the default: the record of a cell needs no knowledge of defaults.
    array.setdefault("level", level_of(settings).value)
    _place(hardware, settings, members, layers)
    if array["level"] == Level.RAID1:
        array.setdefault("chunk_size", None)
    stack = StackSpec.model_validate(layers)
    stack.refuse_disks(hardware.disk_sizes)
    return stack


def _place(hardware: Hardware, settings: Settings, members: int, layers: dict[str, dict[str, Any]]) -> None:
    free: dict[str, list[str]] = {}
    for disk in hardware.each_disk:
        free.setdefault(disk.duty, []).append(disk.spec.serial)

    def take(duty: Duty, number: int) -> tuple[str, ...]:
        # Disks of that duty first, then what the members leave.
        found = [*free.get(duty, []), *(free.get("member", []) if duty != "member" else [])][:number]
        if len(found) < number:
            raise RequestError(f"{number} {duty} disk{'s' if number > 1 else ''} asked, and {len(found)} left")
        for serial in found:
            next(serials for serials in free.values() if serial in serials).remove(serial)
        return tuple(found)

    layers["array"]["members"] = take("member", int(settings.get("members", members)))
    wants = wanted(settings)
    if spares := take("spare", wants["spare"]):
        layers["array"]["spares"] = spares
    if journal := take("journal", wants["journal"]):
        layers["array"]["journal"] = journal[0]
    if log := take("log", wants["log"]):
        layers["filesystem"]["log"] = log[0]
