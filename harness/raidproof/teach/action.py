"""The actions of lessons: a closed set of kinds, with settings that are named as in plan files."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raidproof.disk.cache import CacheMode, CutPolicy
from raidproof.plan.cell import Cell, matrix_of
from raidproof.plan.hardware import Hardware
from raidproof.plan.plan import Plan, read_plan
from raidproof.plan.table import Table
from raidproof.storage.stack import StackSpec
from raidproof.storage.tuning import TuningSpec
from raidproof.teach.quantity import meaning_of
from raidproof.workload.ledger import WORKER_KINDS

NAME = r"^[a-z][a-z0-9-]{0,39}$"
MOST_SECONDS = 120.0
"""Greatest number of seconds that clients work before a cut."""
MOST_REPEATS = 10


def _one_or_both(value: Any) -> Any:
    return [value, value] if isinstance(value, int | float) and not isinstance(value, bool) else value


class WriteBack(Table):
    """Write-back of the server's kernel; a field without a value leaves Linux's default."""

    expire_s: float | None = Field(default=None, ge=0.01, le=3600)
    """Age in seconds at which dirty data are written back (vm.dirty_expire_centisecs)."""
    wake_s: float | None = Field(default=None, ge=0.01, le=3600)
    """Seconds between two wake-ups of the write-back (vm.dirty_writeback_centisecs)."""
    xfs_sync_s: float | None = Field(default=None, ge=1, le=72)
    """Seconds between two flushes of the log of XFS (fs.xfs.xfssyncd_centisecs)."""

    def over(self, tuning: TuningSpec) -> TuningSpec:
        """Return kernel settings with these values of write-back."""
        return tuning.model_copy(
            update={
                "server_dirty_expire_s": self.expire_s,
                "server_dirty_writeback_s": self.wake_s,
                "server_xfs_sync_s": self.xfs_sync_s,
            }
        )


class _Action(Table):
    """What every action has."""

    name: str = Field(pattern=NAME)
    """Name of the action, by which questions and results refer to its values."""
    title: str = ""
    """The action in words, for tables; default: the name."""
    show: tuple[str, ...] = ()
    """Names of the values that the lesson shows after the action; default: the most important values."""

    @property
    def words(self) -> str:
        """The action in words."""
        return self.title or self.name

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of the values that the lesson shows after the action."""
        return self.show or self._usual()

    def _usual(self) -> tuple[str, ...]:
        raise NotImplementedError

    def refuse(self, hardware: Hardware) -> None:  # noqa: ARG002  actions with a stack need the hardware
        """Verify that the action is possible on this hardware. No machine needs to run.

        Raises:
            RequestError: a setting is unknown or impossible on this hardware, or a shown value is unknown.
        """
        for value in self.show:
            meaning_of(self.do, value)

    do: str


class _OnStack(_Action):
    """An action on a stack of its own."""

    settings: dict[str, Any] = Field(default={})
    """Settings of the stack, named as the axes of a plan: ``level = 5``, ``export = "async"``."""

    def plan(self, hardware: Hardware, seed: int) -> Plan:
        """Return the plan with one cell that has the settings of the action.

        Raises:
            RequestError: a setting is unknown or impossible.
        """
        return read_plan(
            {
                "hardware": hardware,
                "fixed": self.settings,
                "workload": self._work(),
                # md builds an array with a journal by a resync: mdadm refuses --assume-clean for it.
                "run": {
                    "repeats": 1,
                    "seed": seed,
                    "allow_cache": True,
                    "assume_clean": self.settings.get("consistency_policy") != "journal",
                },
            },
            source=f"action {self.name}",
            name=self.name,
        )

    def _work(self) -> dict[str, Any]:
        return {"tool": "dd"}

    def cell(self, hardware: Hardware, seed: int = 1) -> Cell:
        """Return the cell with the settings of the action.

        Raises:
            RequestError: a setting is unknown or impossible.
        """
        return matrix_of(self.plan(hardware, seed)).cells[0]

    def refuse(self, hardware: Hardware) -> None:
        """Verify that the action is possible on this hardware; see `_Action.refuse`."""
        super().refuse(hardware)
        self.stack(hardware)

    def stack(self, hardware: Hardware) -> StackSpec:
        """Return the stack of the action.

        Raises:
            RequestError: a setting is unknown or impossible.
        """
        return self.cell(hardware).stack


class Cut(_OnStack):
    """Clients write, then the server loses power; after the reboot, every acknowledged operation is searched."""

    do: Literal["cut"] = "cut"
    work: tuple[str, ...] = ("fsync",)
    """What each client does, one worker for each word: ``fsync``, ``o_sync``, ``close``, ``metadata``, ..."""
    seconds: Annotated[tuple[float, float], BeforeValidator(_one_or_both)] = (3.0, 3.0)
    """Seconds that the clients work before the cut. Two numbers: a random time between them, by the seed."""
    repeats: int = Field(default=1, ge=1, le=MOST_REPEATS)
    disks: CacheMode = CacheMode.VOLATILE
    """The cache of the disks: ``volatile``, ``lying``, ``protected`` or ``none``."""
    disks_of: tuple[str, ...] | None = None
    """Serials of the disks with this cache; all others have a volatile cache. Default: all disks."""
    policy: CutPolicy = CutPolicy.DROP
    """Which unflushed writes survive: ``drop``, ``keep``, ``random`` or ``torn``."""
    missing: str | None = None
    """Serial of a member that is missing while the clients work: ``disk1``."""
    power: Literal["cut", "stays"] = "cut"
    """Whether the power is cut. If it stays, the disks' requests are recorded for an action ``explore``."""
    write_back: WriteBack = WriteBack()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        least, most = self.seconds
        if not 0 < least <= most <= MOST_SECONDS:
            raise ValueError(f"seconds: two numbers from 0 to {MOST_SECONDS:g}, the smaller one first")
        if unknown := [word for word in self.work if word not in WORKER_KINDS]:
            raise ValueError(f"work: unknown word {unknown[0]!r}; valid: {', '.join(WORKER_KINDS)}")
        if not self.work:
            raise ValueError("work: name at least one kind of work")
        return self

    def _usual(self) -> tuple[str, ...]:
        return ("acknowledged", "lost", "lost_seconds") if self.power == "cut" else ("acknowledged", "worked_seconds")

    def stack(self, hardware: Hardware) -> StackSpec:
        """Return the stack of the action, with the settings of write-back.

        Raises:
            RequestError: a setting is unknown or impossible.
        """
        stack = super().stack(hardware)
        # Under a delegation, `close` promises nothing.
        quiet = {} if "delegations" in self.settings else {"delegations": False}
        return stack.model_copy(
            update={"export": stack.export.model_copy(update=quiet), "tuning": self.write_back.over(stack.tuning)}
        )

    def refuse(self, hardware: Hardware) -> None:
        """Verify that the action is possible on this hardware; see `_Action.refuse`."""
        super().refuse(hardware)
        members = self.stack(hardware).array.members
        for key, serials in (("missing", (self.missing,)), ("disks_of", self.disks_of or ())):
            if unknown := [serial for serial in serials if serial is not None and serial not in members]:
                raise ValueError(f"{key}: the array has no member {unknown[0]!r}; valid: {', '.join(members)}")


class Measure(_OnStack):
    """A workload runs, and its speed is measured, with the requests that NFS, md and the disks needed for it."""

    do: Literal["measure"] = "measure"
    workload: dict[str, Any]
    """The workload, as the table ``[[workload]]`` of a plan."""
    repeats: int = Field(default=1, ge=1, le=MOST_REPEATS)

    def _work(self) -> dict[str, Any]:
        return self.workload

    def _usual(self) -> tuple[str, ...]:
        return ("member_reads", "member_writes")


class Explore(_Action):
    """Checkers assemble, mount and read the crash states that the power cut of an earlier action could have left."""

    do: Literal["explore"] = "explore"
    of: str
    """Name of an earlier action ``cut``."""
    states: int = Field(default=60, ge=1, le=2000)
    """Number of crash states to check."""
    starts_dirty: bool = False
    """Whether md starts an array that is dirty and degraded, which it refuses by default."""

    def _usual(self) -> tuple[str, ...]:
        return ("judged", "differing", "broken")


class Locks(_OnStack):
    """One client locks a file, another one wants the lock, and the server restarts or the holder is disconnected."""

    do: Literal["locks"] = "locks"
    event: Literal["restart", "missed-grace", "lease-expiry"]
    """``restart``: nfsd restarts. ``missed-grace``: nfsd restarts, and the holder is disconnected until the grace
    period ends. ``lease-expiry``: the holder is disconnected for longer than its lease."""

    def refuse(self, hardware: Hardware) -> None:
        """Verify that the action is possible on this hardware; see `_Action.refuse`."""
        super().refuse(hardware)
        if hardware.clients < 2:
            raise ValueError("locks need two clients: write `clients = 2` under [hardware] in the lesson's head")

    def stack(self, hardware: Hardware) -> StackSpec:
        """Return the stack of the action, without delegations: the holder of one needs no lock of the server."""
        stack = super().stack(hardware)
        return stack.model_copy(update={"export": stack.export.model_copy(update={"delegations": False})})

    def _usual(self) -> tuple[str, ...]:
        return ("kept", "taken", "wait_seconds", "holder_errors")


Action = Annotated[Cut | Measure | Explore | Locks, Field(discriminator="do")]
