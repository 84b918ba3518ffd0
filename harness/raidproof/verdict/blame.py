"""Who is to blame for what a cycle lost where disks lied: the disks only as far as the write log allows."""

import json
from pathlib import Path

from raidproof.record.run import CycleRecord
from raidproof.verdict.contract import Conditions
from raidproof.verdict.ledger import Loss, balance_of
from raidproof.verdict.lies import blamed, read_lies
from raidproof.workload.history import History, WorkerSpec

PLACE, LOG = "on_server", "write log"


def of_lies(cycle: CycleRecord, history: History, directory: Path, conditions: Conditions) -> Conditions:
    """Return conditions in which disks that lied are blamed only if their lies explain what the server has lost.

    What of its caches survived a cut that kept some of it is not in the log: there all of it may be lost. Without a
    log nothing can be told apart, and every loss is theirs.
    """
    log, found = (directory / cycle.files.get(what, "none") for what in (LOG, PLACE))
    if not (conditions.lying_disks and log.is_file()):
        return conditions
    workers = [WorkerSpec.model_validate(worker) for worker in cycle.workers]
    lost = read_lies(log).lost()
    if cycle.not_recovered is not None:
        # Nothing is left of anything. What had reached no disk at all is not lost by one.
        by_number = {worker.number: worker for worker in workers}
        told = history.acknowledged(cycle.fault_at_ns)
        return blamed(conditions, [Loss(one, by_number[one.worker], cycle.not_recovered) for one in told], lost)
    if not found.is_file():
        return conditions
    balance = balance_of(
        workers,
        history,
        json.loads(found.read_text()),
        before_ns=cycle.fault_at_ns,
        seen_ns=cycle.resumed_ns if cycle.recovery.assemble_s is not None else None,
        torn=conditions.torn,
        unheard=cycle.lost_power,
        unsure={*cycle.allowed_errors, *cycle.allowed_by_fault},
    )
    return blamed(conditions, balance.losses, lost)
