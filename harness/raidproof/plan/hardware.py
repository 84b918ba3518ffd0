"""The hardware of a plan: disks and their controllers, the network, the machines."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.core.errors import RequestError
from raidproof.core.topology import (
    NO_MECHANICS,
    ControllerSpec,
    DiskSpec,
    Platform,
    Topology,
    client_spec,
    server_spec,
)
from raidproof.core.units import GIB, MIB, format_duration, format_rate, format_size
from raidproof.disk.profile import load_profile
from raidproof.plan.table import Bandwidth, Bytes, Placement, Table, placed, refusal
from raidproof.storage.link import LinkSpec

AUTO: Literal["auto"] = "auto"
"""Value of ``slow_motion``: the factor is found by a probe before the first repetition."""
Duty = Literal["member", "spare", "journal", "cache", "log"]
"""Use of a disk: member or spare of the array, journal of a RAID5, cache of the volume, or log of the file system."""


class DiskGroup(Table):
    """A group of disks: ``count`` disks with one profile, or one disk for each of ``profiles``."""

    count: int = Field(default=0, ge=0, le=64)
    """Number of disks; 0: one for each element of ``profiles``, or 4 without ``profiles``."""
    profile: str = NO_MECHANICS
    """Drive that the disks simulate: the name or path of a profile; ``none``: no simulated latency."""
    profiles: tuple[str, ...] = ()
    """Profiles, one for each disk, instead of ``profile``."""
    size: Bytes = Field(default=GIB, ge=16 * MIB)
    """Bytes of each simulated disk; latency is computed for the capacity of the real drive."""
    placement: Placement = "spread"
    """Which part of the real drive the simulated bytes occupy: spread over all of it, or its fast outer tracks."""
    duty: Duty = "member"
    """Use of the disks. A cell that needs a spare, journal, cache or log disk takes a member disk if no other is
    left."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.profiles and "profile" in self.model_fields_set:
            raise ValueError("the keys profile and profiles exclude each other")
        if self.profiles and self.count not in {0, len(self.profiles)}:
            raise ValueError(f"{len(self.profiles)} profiles for {self.count} disks: give one profile for each disk")
        for name in dict.fromkeys(self.each):
            refusal(load_profile, name)
        return self

    @property
    def each(self) -> tuple[str, ...]:
        """The name of each disk's profile."""
        return self.profiles or (self.profile,) * (self.count or 4)


class Controller(Table):
    """The controllers of the disks: ``count`` equal controllers, each with these limits."""

    count: int = Field(default=1, ge=1, le=16)
    order: Literal["in turn", "grouped"] = "in turn"
    """Assignment of disks to controllers: round robin (``in turn``), or consecutive disks together (``grouped``)."""
    bandwidth: Bandwidth | None = None
    """Limit of reads and writes together in 10^6 bytes per second; None: no limit."""
    command_rate: float | None = Field(default=None, gt=0)
    """Greatest number of commands per second; None: no limit."""
    cache: Bytes = 0
    """Bytes of battery-backed write cache; 0: no cache."""
    battery: Literal["good", "failed", "unnoticed"] = "good"
    """``failed``: the controller writes through. ``unnoticed``: it still caches writes, and a cut loses them."""


class Memory(Table):
    """Memory of the server and of each client, in bytes."""

    server: Bytes = Field(default=768 * MIB, ge=128 * MIB)
    client: Bytes = Field(default=768 * MIB, ge=128 * MIB)


class Cpus(Table):
    """Number of processors of the server and of each client."""

    server: int = Field(default=1, ge=1, le=64)
    server_numa_nodes: int = Field(default=1, ge=1, le=8)
    client: int = Field(default=1, ge=1, le=64)


class Disk(NamedTuple):
    """One disk of the server, and its use."""

    spec: DiskSpec
    duty: Duty


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    # The functions that parse rates and durations accept only text and numbers.
    odd = (
        [name for name, of in value.items() if not isinstance(of, str | int | float)]
        if isinstance(value, dict)
        else []
    )
    if odd:
        raise ValueError(f"{', '.join(odd)}: neither text nor a number")
    return value


class Hardware(Table):
    """The table ``[hardware]`` of a plan: disks, controllers, network and machines of the lab."""

    disks: Annotated[tuple[DiskGroup, ...], BeforeValidator(_as_list)] = (DiskGroup(count=4),)
    controller: Controller | None = None
    network: Annotated[LinkSpec, placed, BeforeValidator(_plain)] = LinkSpec()
    """The link of each machine to the switch."""
    clients: int = Field(default=1, ge=1, le=16)
    memory: Memory = Memory()
    cpus: Cpus = Cpus()
    slow_motion: Annotated[float, Field(ge=1, le=1000)] | Literal["auto"] = AUTO
    """Slow-motion factor, for hardware that this host is too slow to simulate: disks and network run slower by this
    factor, and measured rates are multiplied by this factor. ``auto``: found by a probe before the first repetition
    of ``run``, ``ab`` and ``advise``; 1 elsewhere, and for disks without latency."""

    @property
    def each_disk(self) -> tuple[Disk, ...]:
        """All disks, ``disk0`` first."""
        return tuple(self._each_disk())

    def _each_disk(self) -> Iterator[Disk]:
        total = sum(len(group.each) for group in self.disks)
        number = 0
        for group in self.disks:
            for profile in group.each:
                spec = DiskSpec(
                    serial=f"disk{number}",
                    size=group.size,
                    profile=profile,
                    placement=group.placement,
                    controller=self._controller_of(number, total),
                )
                yield Disk(spec, group.duty)
                number += 1

    def _controller_of(self, number: int, total: int) -> str | None:
        if self.controller is None:
            return None
        count = self.controller.count
        return controller_name(number % count if self.controller.order == "in turn" else number * count // total)

    @property
    def controllers(self) -> tuple[ControllerSpec, ...]:
        """All controllers, ``controller0`` first."""
        if (asked := self.controller) is None:
            return ()
        return tuple(
            ControllerSpec(
                name=controller_name(number),
                bandwidth_mb_s=asked.bandwidth,
                commands_per_s=asked.command_rate,
                cache=asked.cache,
                battery=asked.battery,
            )
            for number in range(asked.count)
        )

    @property
    def disk_sizes(self) -> dict[str, int]:
        """Bytes of each disk, by serial."""
        return {disk.spec.serial: disk.spec.size for disk in self.each_disk}

    @property
    def factor(self) -> float:
        """The slow-motion factor; 1 if it is not yet found."""
        return 1.0 if self.slow_motion == AUTO else self.slow_motion

    def refuse_auto(self, where: str) -> None:
        """Verify that the plan does not request a probe ``where`` none is made.

        Raises:
            RequestError: the plan has ``slow_motion = "auto"``; the default is no request.
        """
        if self.slow_motion == AUTO and "slow_motion" in self.model_fields_set:
            raise RequestError(
                f'slow_motion = "auto" is not possible {where}, which makes no probe',
                remedy="give a factor, for example the one that `raidproof run` prints",
            )

    def topology(self, platform: Platform | None = None) -> Topology:
        """Return the topology of the lab: machines ``server``, ``client1``, ..., and disks ``disk0``, ..."""
        platform = platform or Platform()
        server = server_spec(
            platform, memory=self.memory.server, cpus=self.cpus.server, numa_nodes=self.cpus.server_numa_nodes
        )
        clients = (
            client_spec(number, platform, memory=self.memory.client, cpus=self.cpus.client)
            for number in range(1, self.clients + 1)
        )
        return Topology(
            machines=(server, *clients),
            disks=tuple(disk.spec for disk in self.each_disk),
            controllers=self.controllers,
            slow_motion=self.factor,
            provider=platform.provider,
            inventory=platform.inventory,
        )

    def __str__(self) -> str:
        parts = [self._disks_in_words()]
        if self.controller:
            parts.append(_controller_in_words(self.controller))
        if not self.network.bare:
            parts.append(_network_in_words(self.network))
        if self.factor != 1:
            parts.append(f"slow motion, factor {self.factor:g}")
        parts.append(f"{self.clients} client{'s' if self.clients > 1 else ''}")
        return "; ".join(parts)

    def _disks_in_words(self) -> str:
        alike: dict[tuple[int, Placement, Duty], Counter[str]] = {}
        for group in self.disks:
            alike.setdefault((group.size, group.placement, group.duty), Counter()).update(group.each)
        words = []
        for (size, placement, duty), profiles in alike.items():
            kinds = ", ".join(f"{number} x {_drive_in_words(profile)}" for profile, number in profiles.items())
            use = "" if duty == "member" else f", duty {duty}"
            words.append(f"{kinds}, {format_size(size)} each, placement {placement}{use}")
        return " and ".join(words)


def _drive_in_words(profile: str) -> str:
    return "disk without latency" if profile == NO_MECHANICS else profile


def controller_name(number: int) -> str:
    """Return the name of the controller with this number, from 0 on."""
    return f"controller{number}"


def _controller_in_words(controller: Controller) -> str:
    limits = [
        *([f"{controller.bandwidth:g} MB/s"] if controller.bandwidth else []),
        *([f"{controller.command_rate:g} commands/s"] if controller.command_rate else []),
        f"cache {format_size(controller.cache)}" if controller.cache else "no cache",
        *([f"battery {controller.battery}"] if controller.cache and controller.battery != "good" else []),
    ]
    number = "1 controller" if controller.count == 1 else f"{controller.count} controllers, order {controller.order},"
    return f"{number} with {', '.join(limits)}"


def _network_in_words(link: LinkSpec) -> str:
    words = [
        *([format_rate(link.rate)] if link.rate else []),
        *([f"delay {format_duration(link.delay)}"] if link.delay else []),
        *([f"jitter {format_duration(link.jitter)}"] if link.jitter else []),
        *([f"loss {link.loss:g} %"] if link.loss else []),
    ]
    return f"network {', '.join(words)}"
