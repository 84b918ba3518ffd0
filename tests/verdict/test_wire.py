"""What the checks of the wire say yes to, and what they find out."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.monitor.capture import Exchange, Operation, parse_connections, parse_packets
from raidproof.record.outcome import Outcome
from raidproof.verdict.wire import (
    Range,
    by_client,
    failed_s,
    judge_late_reclaim,
    judge_locks_kept,
    judge_resent,
    judge_restart,
    judge_verifier,
    reconnected_s,
    restarted_s,
)

DATA = Path(__file__).parents[1] / "data" / "tshark"
ONE, TWO = "10.77.0.21", "10.77.0.22"
FILE = "0xf11e"


def exchange(at_s: float, client: str, *operations: Operation) -> Exchange:
    return Exchange(client, f"{at_s}", at_s, operations, at_s)


def write(
    at_s: float, offset: int, verifier: str, *, length: int = 10, stable: int = 0, status: str = "OK"
) -> Exchange:
    told = {"nfs.count4": str(length), "nfs.stable_how4": str(stable), "nfs.verifier4": verifier}
    return exchange(at_s, ONE, Operation("WRITE", {"nfs.offset4": str(offset)}, told, status, FILE))


def commit(at_s: float, verifier: str, *, offset: int = 0, count: int = 0, status: str = "OK") -> Exchange:
    asked = {"nfs.offset4": str(offset), "nfs.count4": str(count)}
    return exchange(at_s, ONE, Operation("COMMIT", asked, {"nfs.verifier4": verifier}, status, FILE))


def restart(at_s: float) -> Exchange:
    return exchange(at_s, ONE, Operation("SEQUENCE", status="NFS4ERR_BADSESSION"))


def lock(at_s: float, client: str, *, reclaim: bool = False, status: str = "OK") -> Exchange:
    return exchange(at_s, client, Operation("LOCK", {"nfs.lock.reclaim": str(int(reclaim))}, {}, status, FILE))


def reopen(at_s: float, client: str, status: str = "OK") -> Exchange:
    return exchange(at_s, client, Operation("OPEN", {"nfs.open.claim_type": "1"}, {}, status, FILE))


def real(name: str) -> list[Exchange]:
    return parse_packets((DATA / name).read_text())


def test_real_restart_shows_in_the_verifier_and_writes_are_sent_again() -> None:
    exchanges = real("writes.json")
    assert restarted_s(exchanges) is not None
    assert judge_verifier(exchanges).outcome is Outcome.PASS
    verdict = judge_resent(exchanges)
    assert verdict.outcome is Outcome.PASS
    assert "65,536 bytes" in verdict.reason


def real3(was: str = "", now: str = "") -> list[Exchange]:
    """A restart as NFSv3 shows it, with some text of tshark's output replaced."""
    connections = parse_connections((DATA / "writes-v3.connections.txt").read_text())
    return parse_packets((DATA / "writes-v3.json").read_text().replace(was, now), connections)


BEFORE, AFTER = "d2:68:ac:ae:53:b6:f7:e4", "b8:28:b9:4e:01:92:4e:c2"


def test_real_restart_shows_in_nfsv3_too() -> None:
    exchanges = real3()
    verdict = judge_verifier(exchanges)
    assert (verdict.outcome, verdict.reason) == (
        Outcome.PASS,
        "d268acae53b6f7e4 before the restart, b828b94e01924ec2 after the restart",
    )
    verdict = judge_resent(exchanges)
    assert (verdict.outcome, "131,072 bytes" in verdict.reason) == (Outcome.PASS, True)


def test_verifier_of_nfsv3_that_stays_is_found_out() -> None:
    exchanges = real3(AFTER, BEFORE)
    assert judge_verifier(exchanges).outcome is Outcome.FAIL
    assert [verdict.outcome for verdict in judge_restart(exchanges, restarted=True)] == [Outcome.FAIL]


def test_nfsv3_write_that_is_not_sent_again_is_found_out() -> None:
    again = [one for one in real3() if one.operations[0].name == "WRITE"][2]
    verdict = judge_resent([one for one in real3() if one != again])
    assert verdict.outcome is Outcome.FAIL
    assert "bytes 0 to 65536" in verdict.reason


def test_whoever_only_connects_anew_has_seen_no_restart() -> None:
    """A network that was cut, say: NFSv3 tells the two apart in nothing."""
    assert judge_restart(real3(AFTER, BEFORE)) == []
    assert judge_restart([replace(one, connection="0") for one in real3()], restarted=True) == []


def wrote3(at_s: float, client: str, connection: str, verifier: str = "a", name: str = "WRITE") -> Exchange:
    told = {"nfs.count3": "10", "nfs.write.committed": "0", "nfs.verifier": verifier}
    operation = Operation(name, {"nfs.offset3": "0"}, told, "OK", FILE)
    return Exchange(client, f"{at_s}", at_s, (operation,), at_s, "3", connection)


def test_all_connections_have_to_be_new_after_a_restart() -> None:
    begun = [wrote3(1, ONE, "0"), wrote3(1, TWO, "1"), wrote3(2, ONE, "2")]
    assert reconnected_s([*begun, wrote3(3, TWO, "3")]) == 2
    assert reconnected_s([*begun, wrote3(3, TWO, "1")]) is None
    assert reconnected_s([wrote3(1, ONE, "0"), wrote3(2, TWO, "1")]) is None
    assert reconnected_s([wrote3(1, ONE, "0", name="NULL"), wrote3(2, ONE, "1")]) is None


def test_verifier_of_nfsv3_after_a_failed_commit() -> None:
    failed = wrote3(2, ONE, "0", name="COMMIT")
    failed = replace(failed, operations=(replace(failed.operations[0], status="NFS3ERR_IO"),))
    for verifier, outcome in (("b", Outcome.PASS), ("a", Outcome.FAIL)):
        exchanges = [wrote3(1, ONE, "0"), failed, wrote3(3, ONE, "0", verifier)]
        assert judge_verifier(exchanges, after_s=failed_s(exchanges)).outcome is outcome


def test_real_lock_is_reclaimed() -> None:
    verdict = judge_locks_kept(real("locks.json"))
    assert verdict.outcome is Outcome.PASS
    assert verdict.reason == "reclaimed locks: 1; requests for new locks that got NFS4ERR_GRACE: 1"


def test_verifier_that_stays_is_found_out() -> None:
    verdict = judge_verifier([write(1, 0, "a"), restart(2), write(3, 0, "a")])
    assert verdict.outcome is Outcome.FAIL
    assert str(verdict.blame) == "nfsd"


def test_verifier_that_comes_back_later_is_found_out() -> None:
    assert judge_verifier([write(1, 0, "a"), restart(2), write(3, 0, "b"), write(4, 0, "a")]).outcome is Outcome.FAIL


def test_verifier_that_changes_without_a_restart_is_found_out() -> None:
    assert judge_verifier([write(1, 0, "a"), restart(2), write(3, 0, "b"), write(4, 0, "c")]).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "exchanges",
    [[], [write(1, 0, "a")], [write(1, 0, "a"), restart(2)], [restart(2), write(3, 0, "a")]],
)
def test_without_writes_on_both_sides_of_a_restart_nothing_is_known_of_the_verifier(exchanges: list[Exchange]) -> None:
    assert judge_verifier(exchanges).outcome is Outcome.INCONCLUSIVE


def test_verifier_after_a_failed_commit() -> None:
    begin, failed = [write(1, 0, "a")], commit(2, "", status="NFS4ERR_IO")
    for verifier, outcome in (("b", Outcome.PASS), ("a", Outcome.FAIL)):
        exchanges = [*begin, failed, write(3, 0, verifier)]
        assert judge_verifier(exchanges, after_s=failed_s(exchanges)).outcome is outcome


def test_range_that_is_not_sent_again_is_found_out() -> None:
    verdict = judge_resent([write(1, 0, "a"), write(1.5, 10, "a"), restart(2), write(3, 0, "b")])
    assert verdict.outcome is Outcome.FAIL
    assert verdict.blame == by_client(ONE)
    assert "bytes 10 to 20" in verdict.reason


def test_part_that_is_not_sent_again_is_found_out() -> None:
    verdict = judge_resent([write(1, 0, "a"), restart(2), write(3, 0, "b", length=4)])
    assert verdict.outcome is Outcome.FAIL
    assert "bytes 4 to 10" in verdict.reason


def test_what_was_committed_need_not_be_sent_again() -> None:
    exchanges = [write(1, 0, "a"), commit(1.2, "a"), write(1.5, 10, "a"), restart(2), write(3, 10, "b")]
    verdict = judge_resent(exchanges)
    assert verdict.outcome is Outcome.PASS
    assert "10 bytes" in verdict.reason


def test_commit_of_another_range_saves_nothing() -> None:
    exchanges = [write(1, 0, "a"), commit(1.2, "a", offset=10, count=10), restart(2), write(3, 20, "b")]
    assert judge_resent(exchanges).outcome is Outcome.FAIL


def test_what_was_written_stable_need_not_be_sent_again() -> None:
    exchanges = [write(1, 0, "a", stable=2), restart(2), write(3, 10, "b")]
    assert judge_resent(exchanges).outcome is Outcome.INCONCLUSIVE


def test_of_a_cycle_only_what_was_seen_is_judged() -> None:
    assert judge_restart([write(1, 0, "a")]) == []
    seen = judge_restart([write(1, 0, "a", stable=2), restart(2), write(3, 0, "a", stable=2)])
    assert [(verdict.checker, verdict.outcome) for verdict in seen] == [("write verifier", Outcome.FAIL)]


def test_reclaim_that_is_refused_is_found_out() -> None:
    exchanges = [lock(1, ONE), restart(2), reopen(3, ONE, "NFS4ERR_NO_GRACE")]
    verdict = judge_locks_kept(exchanges)
    assert verdict.outcome is Outcome.FAIL
    assert str(verdict.blame) == "nfsd"
    assert "NFS4ERR_NO_GRACE" in verdict.reason


def test_lock_that_is_given_away_before_it_is_reclaimed_is_found_out() -> None:
    verdict = judge_locks_kept([lock(1, ONE), restart(2), lock(3, TWO), reopen(4, ONE), lock(5, ONE, reclaim=True)])
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason.startswith(f"{TWO} got a lock")


def test_lock_that_was_given_back_may_be_taken() -> None:
    unlock = exchange(1.5, ONE, Operation("LOCKU", {}, {}, "OK", FILE))
    assert judge_locks_kept([lock(1, ONE), unlock, restart(2), lock(3, TWO)]).outcome is Outcome.INCONCLUSIVE


def test_holder_that_does_not_come_back_leaves_it_open() -> None:
    verdict = judge_locks_kept([lock(1, ONE), restart(2), lock(3, TWO, status="NFS4ERR_GRACE")])
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_late_reclaim_must_be_refused() -> None:
    assert judge_late_reclaim([reopen(3, ONE, "NFS4ERR_NO_GRACE")], ONE).outcome is Outcome.PASS
    assert judge_late_reclaim([reopen(3, ONE)], ONE).outcome is Outcome.FAIL
    assert judge_late_reclaim([reopen(3, TWO)], ONE).outcome is Outcome.INCONCLUSIVE


RANGES = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: Range(min(pair), max(pair)))


@given(RANGES, RANGES)
def test_a_range_without_another_is_what_is_left_of_it(one: Range, other: Range) -> None:
    left = {byte for part in one.without(other) for byte in range(*part)}
    assert left == set(range(*one)) - set(range(*other))
