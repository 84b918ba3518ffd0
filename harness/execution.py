"""A plan carried out: every cell visited once in each round, in one lab; then, if asked, its power cut."""

from datetime import timedelta

from harness.campaign import Campaign
from harness.cell import Standing, visit
from harness.cycle import CycleSpec
from harness.disk.assignment import riskiest_mode
from harness.errors import NotEffective, RigError
from harness.log import logger, step
from harness.plan.axes import write_value
from harness.plan.cell import Cell, Matrix
from harness.plan.order import visits_of
from harness.plan.plan import Plan
from harness.record.cell import CellRecord, PlanRecord, Repeat
from harness.waiting import now_ns
from harness.workload.ledger import LedgerSpec

GIVE_UP_AFTER = 3
"""Failed visits after which a cell is not visited again."""
LEDGER_SECONDS = 2.0


class Execution:
    """The cells of a plan in one campaign; what an earlier campaign has measured of them is not measured again."""

    def __init__(self, matrix: Matrix, campaign: Campaign) -> None:
        self.plan = plan = matrix.plan
        cells = matrix.cells
        self.campaign = campaign
        self.cells = {cell.name: cell for cell in cells}
        known = {record.name: record for record in campaign.record.cells}
        self.records = {cell.name: known.get(cell.name) or new_record(cell) for cell in cells}
        campaign.record.cells = list(self.records.values())
        self.order = [(one.round, one.cell.name) for one in visits_of(cells, plan.run.repeats, plan.run.seed)]
        self._standing: Standing | None = None

    def run(self) -> None:
        """Make every visit that has not been made, then every cut."""
        record = self.campaign.record.plan
        assert record is not None  # noqa: S101  whoever makes a campaign for a plan puts it in
        record.order = self.order
        left = [(round_, name) for round_, name in self.order if not self._visited(round_, name)]
        begun = now_ns()
        for done, (round_, name) in enumerate(left):
            number = len(self.order) - len(left) + done + 1
            step(f"visit {number} of {len(self.order)}: {name}{_left(begun, done, len(left))}")
            self._visit(round_, self.cells[name], record)
        if self.plan.run.cut is not None:
            self._cut_all()

    def _visited(self, round_: int, name: str) -> bool:
        record = self.records[name]
        failed = sum(repeat.rig_error is not None for repeat in record.repeats)
        return (
            any(repeat.round == round_ and repeat.rig_error is None for repeat in record.repeats)
            or record.not_effective is not None
            or failed >= GIVE_UP_AFTER
        )

    def _visit(self, round_: int, cell: Cell, record: PlanRecord) -> None:
        if self._visited(round_, cell.name):
            return
        mine, begun = self.records[cell.name], now_ns()
        repeat = Repeat(round=round_)
        try:
            directory = self.campaign.store.directory(f"cells/{cell.index:03}-{round_}")
            visit(self.standing(), self.plan, cell, mine, repeat, directory)
        except NotEffective as error:
            mine.not_effective = str(error)
            self._discard()
        except RigError as error:
            logger.exception("visit to %s", cell.name)
            repeat.rig_error = str(error)
            self._discard()
        repeat.visit_s = (now_ns() - begun) / 1e9
        mine.repeats.append(repeat)
        record.visits_s += repeat.visit_s
        record.timed_s += repeat.timed_s
        self.campaign.store.save(self.campaign.record)

    def standing(self) -> Standing:
        """What stands in the lab, which is booted if there is none."""
        lab = self.campaign.lab
        if self._standing is None or self._standing.lab is not lab:
            self._standing = Standing(lab)
        return self._standing

    def _discard(self) -> None:
        self._standing = None
        self.campaign.discard_lab()

    def _cut_all(self) -> None:
        """Cut the power of every configuration once, whatever workloads it has."""
        if self._standing is not None:
            self._standing.fall()
            self._standing = None
        made = {cycle.name: cycle for cycle in self.campaign.record.cycles}
        by_stack: dict[str, str] = {}
        for cell in self.cells.values():
            mine, key = self.records[cell.name], cell.stack.model_dump_json()
            if mine.cycle is None and mine.measured:
                name = by_stack.get(key) or f"cut-{cell.index:03}"
                if name not in made:
                    step(f"power cut: {cell.name}")
                    made[name] = self.campaign.cycle(cut_of(self.plan, cell, name))
                mine.cycle = by_stack[key] = name
                self.campaign.store.save(self.campaign.record)


def cut_of(plan: Plan, cell: Cell, name: str) -> CycleSpec:
    """Return the cycle that shows what a configuration loses."""
    return CycleSpec(
        name=name,
        title=cell.name,
        stack=cell.stack,
        cache_mode=riskiest_mode(plan.hardware.topology()),
        seed=plan.run.seed,
        ledger=LedgerSpec(seed=plan.run.seed),
        ledger_seconds=LEDGER_SECONDS,
    )


def new_record(cell: Cell) -> CellRecord:
    """Return the record of a cell that was not visited yet."""
    return CellRecord(
        name=cell.name,
        settings={name: write_value(name, value) for name, value in cell.settings.items()},
        workload=cell.workload.model_dump(mode="json"),
        unit="",
        asked=cell.stack.model_dump(mode="json"),
        resync="skipped: blank members agree" if cell.stack.array.assume_clean else "waited for",
    )


def _left(begun_ns: int, done: int, total: int) -> str:
    if not done:
        return ""
    seconds = (now_ns() - begun_ns) / 1e9 / done * (total - done)
    return f" (about {timedelta(seconds=round(seconds))} left)"
