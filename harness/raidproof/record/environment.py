"""The record of a run's environment: machines and host."""

from collections.abc import Iterator, Mapping
from typing import Any

from raidproof.record.cell import Strict


def flat(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a nested record by dotted path; a list of plain values is one leaf."""
    if isinstance(tree, Mapping):
        for key, branch in tree.items():
            yield from flat(branch, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in tree):
        for place, branch in enumerate(tree):
            yield from flat(branch, f"{path}.{place}" if path else str(place))
    elif tree is not None or path:
        yield path or "value", list(tree) if isinstance(tree, tuple) else tree


class MachineRecord(Strict):
    """One machine of a lab."""

    name: str
    role: str
    asked: str
    """Requested kernel, image and packages, as on the command line."""
    kernel: str
    """Kernel release (``uname -r``)."""
    build: str = ""
    """Kernel build (/proc/version), which distinguishes two builds of one release."""
    packages: dict[str, str]
    """Version of each relevant installed package; empty if not known."""
    cpus: int
    numa_nodes: int
    boot_s: float | None = None
    """Duration of the last boot in seconds, from power on to the first answer."""


class Environment(Strict):
    """All machines of a lab, and their host."""

    raidproof: str
    provider: str
    host_kernel: str
    host_cpu: str
    host_cpus: int
    host_tools: dict[str, str]
    """Version of each relevant host program."""
    machines: list[MachineRecord]
    notes: list[str]
    """Notes for the reader about how the machines ran."""
    cannot_prove: list[str]
    """What a run on this provider cannot prove."""

    @property
    def kernels(self) -> str:
        """The kernel of all machines, or the kernels by role where they differ."""
        return by_role({(one.role, one.kernel) for one in self.machines})


def by_role(values: set[tuple[str, str]]) -> str:
    """Return the common value of all machines, or the values by role; ``values``: pairs of role and value."""
    if len({value for _, value in values}) == 1:
        return next(iter(values))[1]
    return ", ".join(f"{role} {value}" for role, value in sorted(values, reverse=True))
