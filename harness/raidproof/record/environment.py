"""Where and with what a run was made: as it was found, not as it was asked."""

from raidproof.record.cell import Strict


class MachineRecord(Strict):
    """One machine of a lab."""

    name: str
    role: str
    asked: str
    """Kernel, image and packages in the words of the command line."""
    kernel: str
    """As ``uname -r`` says it."""
    build: str = ""
    """As /proc/version says it: tells two builds of one release apart."""
    packages: dict[str, str]
    """Version of each installed package that takes part; empty if nobody could tell."""
    cpus: int
    numa_nodes: int
    boot_s: float | None = None
    """From power to an answer, the last time."""


class Environment(Strict):
    """All machines, and the host below them."""

    raidproof: str
    provider: str
    host_kernel: str
    host_cpu: str
    host_cpus: int
    host_tools: dict[str, str]
    """Version of each host program that takes part."""
    machines: list[MachineRecord]
    notes: list[str]
    """What a reader must know about how the machines ran."""
    cannot_prove: list[str]
    """What a run on this provider says nothing about."""

    @property
    def kernels(self) -> str:
        """The machines' kernels in few words: of all, or by role where they differ."""
        return by_role({(one.role, one.kernel) for one in self.machines})


def by_role(values: set[tuple[str, str]]) -> str:
    """Say a value of all machines in few words, from pairs of role and value."""
    if len({value for _, value in values}) == 1:
        return next(iter(values))[1]
    return ", ".join(f"{role} {value}" for role, value in sorted(values, reverse=True))
