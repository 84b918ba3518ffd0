"""The record schema of a run's environment: its machines, and this host."""

from collections.abc import Iterator, Mapping
from typing import Any

from raidproof.record.cell import Strict


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of each leaf of a nested record; a list of plain values is one leaf."""
    if isinstance(tree, Mapping):
        for key, branch in tree.items():
            yield from flat(branch, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in tree):
        for place, branch in enumerate(tree):
            yield from flat(branch, f"{path}.{place}" if path else str(place))
    elif tree is not None or path:
        yield path or "value", list(tree) if isinstance(tree, tuple) else tree


class MachineRecord(Strict):
    """The effective software and hardware of one machine of a lab."""

    name: str
    role: str
    """``server`` or ``client``."""
    asked: str
    """Requested kernel, image and packages, as on the command line."""
    kernel: str
    """Kernel release (``uname -r``)."""
    build: str = ""
    """Kernel build (/proc/version), which distinguishes two builds of one release."""
    packages: dict[str, str]
    """Version of each installed package that may change a result, by name; empty if not known."""
    cpus: int
    numa_nodes: int
    boot_s: float | None = None
    """Duration of the last boot in seconds, from power on to the machine's first reply; None if not measured."""


class Environment(Strict):
    """All machines of a lab, and the host on which the harness runs."""

    raidproof: str
    """Version of raidproof."""
    provider: str
    host_kernel: str
    host_cpu: str
    host_cpus: int
    host_tools: dict[str, str]
    """Version of each program of the host that the harness uses, by name."""
    machines: list[MachineRecord]
    notes: list[str]
    """Notes for the reader about how the machines ran."""
    cannot_prove: list[str]
    """Sentences on what a run on this provider cannot prove."""

    @property
    def kernels(self) -> str:
        """The kernel release of all machines as text, or the releases by role if they differ."""
        return by_role({(one.role, one.kernel) for one in self.machines})


def by_role(values: set[tuple[str, str]]) -> str:
    """Return the common value of all machines as text, or the values by role; ``values``: pairs of role and value."""
    if len({value for _, value in values}) == 1:
        return next(iter(values))[1]
    return ", ".join(f"{role} {value}" for role, value in sorted(values, reverse=True))
