"""An nfsd that does not recall delegations is found in the traffic, and the same nfsd without the defect is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from raidproof.image.kernel.rebuild import SourceEdit, Substitution, rebuilt
from raidproof.record.outcome import Outcome, Verdict
from raidproof.run.run import Run
from raidproof.verdict.delegations import judge_delegations
from scenarios.nfs.test_delegations import EXPORT, FILE, lent
from scenarios.nfs.two_clients import LEASE_S, Clients
from scenarios.selftest.defective_server import defective_run, left_out, select
from scenarios.selftest.nfsd_defects import MODULE, NFSD
from scenarios.selftest.planted_source import inserted

pytestmark = pytest.mark.exhaustive

DEFECT = "no-recall"
EDIT = SourceEdit(
    "fs/nfsd/nfs4state.c",
    inserted(),
    (
        Substitution(
            "nfsd_breaker_owns_lease",
            "rqst = nfsd_current_rqst();",
            f'if (planted("{DEFECT}"))\n\t\treturn true;\n\trqst = nfsd_current_rqst();',
        ),
    ),
)
"""With the defect, nfsd treats each open as one by the holder of the delegation, which needs no recall."""


def build(kernel: str) -> Path:
    """Return the folder with the changed nfsd for a kernel; build the module if needed."""
    return rebuilt(kernel, MODULE, EDIT)


@pytest.fixture(scope="module")
def defective(current_run: Run) -> Iterator[Run]:
    """Yield a separate run, in which the server has the nfsd with the defect."""
    with defective_run("planted-delegations", current_run, build) as own:
        yield own


def shared(run: Run, defect: str) -> tuple[Verdict, int]:
    """Let a client open and change a file that another client holds under a write delegation.

    Return the verdict on the traffic, and the number of recalls that nfsd has left out.
    """
    with Clients(run, f"delegation-{defect or 'clean'}")(stack={"export": EXPORT}) as clients:
        file = lent(clients)
        select(clients.server, NFSD, defect)
        other = clients.one.open(clients.path(FILE))
        clients.one.do("write", other, "theirs").require("write")
        clients.one.do("close", other).require("close")
        broken = int(left_out(clients.server, NFSD))
        select(clients.server, NFSD, "")
        clients.two.do("close", file).require("close")
    return judge_delegations(clients.exchanges, LEASE_S), broken


@pytest.mark.plants
def test_an_open_without_a_recall_is_found(defective: Run) -> None:
    verdict, broken = shared(defective, DEFECT)
    assert broken > 0
    assert verdict.outcome is Outcome.FAIL, verdict
    assert str(verdict.blame) == "nfsd"
    assert "write delegation" in verdict.reason


def test_without_the_defect_the_same_nfsd_recalls(defective: Run) -> None:
    verdict, broken = shared(defective, "")
    assert broken == 0
    assert verdict.outcome is Outcome.PASS, verdict
    assert "recalled: 1" in verdict.reason
