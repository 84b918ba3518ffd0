"""A client with nothing to send notices a restart of the server soon."""

import pytest

from findings.answer import Record, conclude
from raidproof.core.waiting import Deadline, now_ns, wait_until
from raidproof.fault import FaultContext, PowerCut
from raidproof.pytest_plugin.fixtures import stack_of
from raidproof.run.run import Run
from raidproof.storage.server import ExportSpec
from raidproof.storage.stack import Stack

SOON_S = 5.0
"""Seconds after the end of the server's start in which a client that tries to reconnect has reconnected."""
DEADLINE_S = 150.0
CLIENTS = "/proc/fs/nfsd/clients"


@pytest.mark.parametrize("lease_s", [30, pytest.param(90, marks=pytest.mark.exhaustive)])
def test_an_idle_client_returns_soon_after_a_restart(current_run: Run, record: Record, lease_s: int) -> None:
    lab = current_run.lab
    lab.disks.reset()
    export = ExportSpec(delegations=False, lease_s=lease_s, grace_s=lease_s)
    stack = Stack(stack_of(export=export), lab.server, lab.clients[:1])
    stack.create()
    stack.activate()
    context = FaultContext(lab, stack)
    cut, cut_ns = PowerCut(), now_ns()
    cut.inject(context)
    cut.heal(context)
    for step in stack.server_steps():
        step.run()
    served_ns = now_ns()
    wait_until(
        lambda: lab.server.run(["ls", CLIENTS]).stdout.split() or None,
        Deadline.after(DEADLINE_S),
        "the idle client to return to the restarted server",
        0.5,
    )
    waited_s, since_cut_s = (now_ns() - served_ns) / 1e9, (now_ns() - cut_ns) / 1e9
    measured = (
        f"with a lease of {lease_s} s, the idle client returned {waited_s:.0f} s after the server exported again, "
        f"{since_cut_s:.0f} s after the power cut"
    )
    try:
        conclude(record, lab.server, measured, wrong=int(waited_s > SOON_S), seen=1, least=1)
    finally:
        current_run.discard_lab()
