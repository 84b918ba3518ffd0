"""What one cycle is asked to be."""

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from raidproof.core.errors import RequestError, nearest
from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.fault import CleanReboot, ClientPowerCut, Fault, KernelPanic, NfsdRestart, PowerCut
from raidproof.record.run import ControlSpec
from raidproof.storage.stack import StackSpec
from raidproof.workload.fio import FioSpec
from raidproof.workload.ledger import LedgerSpec

NO_FAULT = "none"


class CycleSpec(BaseModel):
    """What one cycle is to be."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    stack: StackSpec
    cache_mode: CacheMode = CacheMode.VOLATILE
    fault: str | SkipValidation[Fault] = PowerCut.name
    """A fault, or the name of one that needs nothing but ``policy`` and ``seed``; ``none`` is none."""
    during: tuple[SkipValidation[Fault], ...] = ()
    """What is wrong before the clients begin and stays so through the fault: a member that is missing, a rebuild."""
    policy: CutPolicy = CutPolicy.DROP
    cache_mode_of: tuple[str, ...] | None = None
    """Serials of the disks whose cache is of that mode; the others' is volatile. None is all of them."""
    seed: int = 1
    ledger: LedgerSpec = LedgerSpec()
    ledger_seconds: float = 3.0
    fio: FioSpec | None = None
    capture: bool = False
    """Whether NFS is looked at on the wire too while the ledger runs, and judged."""
    control: ControlSpec | None = None

    @property
    def fault_name(self) -> str:
        """What the fault is called."""
        return self.fault if isinstance(self.fault, str) else self.fault.name


def fault_of(spec: CycleSpec) -> Fault | None:
    """Return the fault that a cycle asks for.

    Raises:
        RequestError: there is none of that name.
    """
    if not isinstance(spec.fault, str):
        return spec.fault
    faults: dict[str, Fault | None] = {
        PowerCut.name: PowerCut(spec.policy, spec.seed),
        ClientPowerCut.name: ClientPowerCut(spec.policy, spec.seed),
        CleanReboot.name: CleanReboot(),
        KernelPanic.name: KernelPanic(),
        NfsdRestart.name: NfsdRestart(),
        NO_FAULT: None,
    }
    if spec.fault not in faults:
        raise RequestError(f"no such fault: {spec.fault!r}", remedy=nearest(spec.fault, faults))
    return faults[spec.fault]
