"""The verdict on delegations, by captured traffic and by traffic with each error of a server."""

from collections.abc import Sequence

import pytest

from raidproof.core.blame import Culprit
from raidproof.monitor.capture import Exchange, Operation
from raidproof.record.outcome import Outcome
from raidproof.verdict.delegations import followed, judge_delegations

ONE, TWO = "10.77.0.21", "10.77.0.22"
DIRECTORY, FILE, OTHER = "0xd1", "0xf11e", "0x07e4"
LEASE_S = 10.0
READ, BOTH = 1, 3
TOOK_S = 0.1


def exchange(at_s: float, client: str, *operations: Operation) -> Exchange:
    """Return a call at a time, with a reply 0.1 s later."""
    return Exchange(client, f"{at_s}", at_s, operations, at_s + TOOK_S)


def opened(
    at_s: float, client: str, lent: int = 0, *, access: int = BOTH, status: str = "OK", file: str = FILE
) -> Exchange:
    """Return an OPEN by name, whose reply grants a delegation (0: none, 1, 4: read, 2, 5: write)."""
    asked = {"nfs.open.claim_type": "0", "nfs.open4.share_access": str(access), "nfs.pathname.component": file}
    operation = Operation("OPEN", asked, {"nfs.open.delegation_type": str(lent)}, status, DIRECTORY)
    got = Operation("GETFH", {}, {"nfs.fh.hash": file} if status == "OK" else {}, status, DIRECTORY)
    return exchange(at_s, client, operation, got)


def delayed(at_s: float, client: str) -> Exchange:
    return opened(at_s, client, status="NFS4ERR_DELAY")


def reclaimed(at_s: float, client: str, lent: int = 2, status: str = "OK") -> Exchange:
    asked = {"nfs.open.claim_type": "1", "nfs.open4.share_access": str(BOTH), "nfs.delegate_type": "2"}
    told = {"nfs.open.delegation_type": str(lent)}
    return exchange(at_s, client, Operation("OPEN", asked, told, status, FILE))


def returned(at_s: float, client: str, file: str = FILE) -> Exchange:
    return exchange(at_s, client, Operation("DELEGRETURN", {}, {}, "OK", file))


def forgotten(at_s: float, client: str) -> Exchange:
    return exchange(at_s, client, Operation("SEQUENCE", status="NFS4ERR_BADSESSION"))


def said(at_s: float, client: str, name: str = "SEQUENCE") -> Exchange:
    return exchange(at_s, client, Operation(name, status="OK"))


def verdict_of(*exchanges: Exchange) -> tuple[Outcome, str]:
    verdict = judge_delegations(exchanges, LEASE_S)
    if verdict.outcome is Outcome.FAIL:
        assert verdict.blame is not None
        assert verdict.blame.culprit is Culprit.NFSD
    return verdict.outcome, verdict.reason


def test_an_open_that_waits_for_the_return_is_right() -> None:
    found = verdict_of(opened(1, ONE, 2), delayed(2, TWO), returned(3, ONE), opened(4, TWO))
    assert found == (Outcome.PASS, "recalled: 1, write delegations granted: 1")


@pytest.mark.parametrize(
    "exchanges",
    [
        pytest.param([opened(1, ONE, 2), opened(2, TWO)], id="at once"),
        pytest.param([opened(1, ONE, 2), opened(2, TWO, access=READ)], id="to read"),
        pytest.param([opened(1, ONE, 1), opened(2, TWO)], id="read delegation, to write"),
        pytest.param([opened(1, ONE, 2), opened(2, TWO, 2)], id="second write delegation"),
        pytest.param([opened(1, ONE, 5), opened(2, TWO, access=READ)], id="write delegation with times"),
        pytest.param([opened(1, ONE, 4), opened(2, TWO)], id="read delegation with times, to write"),
        pytest.param([opened(1, ONE, 2), opened(2, TWO, 1, access=READ)], id="conflicting read delegation"),
        pytest.param([opened(1, ONE, 2), delayed(2, TWO), opened(3, TWO), returned(4, ONE)], id="before the return"),
        pytest.param([opened(1, ONE, 2), returned(1.5, ONE, OTHER), opened(2, TWO)], id="return of another file"),
        pytest.param([opened(1, ONE, 2), returned(1.5, TWO), opened(2, TWO)], id="return by another client"),
        pytest.param([opened(1, ONE, 2), forgotten(2, TWO), opened(3, TWO)], id="after a restart, before the reclaim"),
        pytest.param([opened(1, ONE, 2), forgotten(2, ONE), opened(2.5, TWO)], id="while the holder comes back"),
        pytest.param(
            [opened(1, ONE, 2), forgotten(2, ONE), reclaimed(3, ONE), opened(4, TWO)], id="after the reclaim"
        ),
        pytest.param([reclaimed(3, ONE), opened(4, TWO)], id="granted by a reclaim"),
        pytest.param(
            [opened(1, ONE, 2), said(2, ONE, "RECLAIM_COMPLETE"), opened(3, TWO)], id="nothing was reclaimed"
        ),
        pytest.param([opened(1, ONE, 2), said(11, ONE), opened(12, TWO)], id="holder renews its lease"),
        pytest.param([opened(1, ONE, 2), delayed(2, TWO), said(9, ONE), opened(10, TWO)], id="revoked too early"),
        pytest.param(
            [opened(1, ONE, 2), opened(2, TWO, file=OTHER, status="NFS4ERR_DELAY"), said(12, ONE), opened(13, TWO)],
            id="another file was waited for",
        ),
    ],
)
def test_an_open_against_a_delegation_is_found(exchanges: Sequence[Exchange]) -> None:
    outcome, reason = verdict_of(*exchanges)
    assert outcome is Outcome.FAIL
    assert reason.startswith(f"{TWO} opened the file with handle {FILE}")
    assert f"while {ONE} held a" in reason


def test_the_reason_counts_further_conflicts() -> None:
    exchanges = [opened(1, ONE, 2), opened(2, TWO), opened(3, TWO)]
    assert verdict_of(*exchanges)[1].endswith("and not returned, and 1 more")


@pytest.mark.parametrize(
    ("exchanges", "reason"),
    [
        pytest.param([], "the server granted no delegation", id="nothing"),
        pytest.param([opened(1, ONE), opened(2, TWO)], "the server granted no delegation", id="none granted"),
        pytest.param([opened(1, ONE, 2)], "no client opened", id="no other client"),
        pytest.param([opened(1, ONE, 2), opened(2, ONE)], "no client opened", id="the holder itself"),
        pytest.param([opened(1, ONE, 2), opened(2, TWO, file=OTHER)], "no client opened", id="another file"),
        pytest.param(
            [opened(1, ONE, 1, access=READ), opened(2, TWO, 1, access=READ)], "no client opened", id="both read"
        ),
        pytest.param([opened(1, ONE, 2), returned(2, ONE), opened(3, TWO)], "no client opened", id="not recalled"),
        pytest.param([opened(1, ONE, 2), opened(1.05, TWO)], "no client opened", id="called before the grant"),
        pytest.param(
            [opened(1, ONE, 2), returned(2.05, ONE), opened(2, TWO)], "no client opened", id="at the same time"
        ),
        pytest.param([opened(1, ONE, 2), opened(2, TWO, status="NFS4ERR_GRACE")], "no client opened", id="refused"),
        pytest.param([opened(1, ONE, 2), delayed(2, TWO)], "no client opened", id="no end"),
        pytest.param(
            [opened(1, ONE, 2), forgotten(2, ONE), said(3, ONE, "RECLAIM_COMPLETE"), opened(4, TWO)],
            "not reclaimed: 1",
            id="given up",
        ),
        pytest.param(
            [opened(1, ONE, 2), forgotten(2, ONE), reclaimed(3, ONE, 0), opened(4, TWO)],
            "not reclaimed: 1",
            id="not granted again",
        ),
        pytest.param(
            [opened(1, ONE, 2), forgotten(2, ONE), reclaimed(3, ONE, 2, "NFS4ERR_NO_GRACE"), opened(4, TWO)],
            "with a refused reclaim: 1",
            id="reclaim refused",
        ),
        pytest.param(
            [opened(1, ONE, 2), said(2, ONE, "EXCHANGE_ID"), opened(4, TWO)], "no client opened", id="holder booted"
        ),
    ],
)
def test_without_a_conflict_nothing_is_proved(exchanges: Sequence[Exchange], reason: str) -> None:
    outcome, found = verdict_of(*exchanges)
    assert outcome is Outcome.INCONCLUSIVE
    assert reason in found


@pytest.mark.parametrize(
    "exchanges",
    [
        pytest.param([opened(1, ONE, 2), opened(10.2, TWO)], id="silent holder"),
        pytest.param(
            [opened(1, ONE, 2), delayed(2, TWO), said(10, ONE), opened(11.2, TWO)], id="no answer to the recall"
        ),
    ],
)
def test_a_server_may_revoke_a_delegation_after_the_lease(exchanges: Sequence[Exchange]) -> None:
    assert verdict_of(*exchanges) == (Outcome.PASS, "revoked: 1, write delegations granted: 1")


def test_an_identity_after_a_restart_keeps_what_the_client_can_reclaim() -> None:
    exchanges = [opened(1, ONE, 2), forgotten(2, ONE), said(2.5, ONE, "EXCHANGE_ID"), reclaimed(3, ONE)]
    rest = [said(3.5, ONE, "RECLAIM_COMPLETE"), delayed(4, TWO), returned(5, ONE), opened(6, TWO)]
    assert verdict_of(*exchanges, *rest) == (Outcome.PASS, "recalled: 1, reclaimed: 1, write delegations granted: 1")


def test_a_return_without_a_reply_ends_the_delegation() -> None:
    """The server may have carried out the call; its reply was lost."""
    call = Exchange(ONE, "7", 3, (Operation("DELEGRETURN", handle=FILE),))
    assert verdict_of(opened(1, ONE, 2), delayed(2, TWO), call, opened(4, TWO))[0] is Outcome.PASS


def test_the_file_of_an_open_is_known_by_its_stateid() -> None:
    """As tshark shows it with Linux 7.2, whose reply gives a reason for granting no delegation."""
    asked = {"nfs.open.claim_type": "0", "nfs.open4.share_access": "1", "nfs.pathname.component": FILE}
    told = {"nfs.open.delegation_type": "3", "nfs.stateid.other_hash": "0x57a7e"}
    cut_short = Operation("GETFH", handle=DIRECTORY)
    opening = exchange(3, TWO, Operation("OPEN", asked, told, "OK", DIRECTORY), cut_short)
    closing = exchange(5, TWO, Operation("CLOSE", {"nfs.stateid.other_hash": "0x57a7e"}, {}, "OK", FILE))
    assert verdict_of(opened(1, ONE, 5), opening, closing)[0] is Outcome.FAIL
    assert verdict_of(opened(1, ONE, 5), opening)[0] is Outcome.INCONCLUSIVE
    assert verdict_of(opened(1, ONE, 5), delayed(2, TWO), returned(2.5, ONE), opening, closing)[0] is Outcome.PASS
    of_another_client = exchange(5, ONE, *closing.operations)
    assert verdict_of(opened(1, ONE, 5), opening, of_another_client)[0] is Outcome.INCONCLUSIVE


def test_traffic_of_nfsv3_has_no_delegations() -> None:
    found = followed([Exchange(ONE, "1", 1, (Operation("WRITE", status="OK", handle=FILE),), 2, "3")], LEASE_S)
    assert (found.wrong, +found.counted) == ([], {})
