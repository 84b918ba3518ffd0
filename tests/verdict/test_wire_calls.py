"""A promise whose call no client sent was not tested."""

import pytest

from raidproof.guest.ledger_format import APPLICATION
from raidproof.record.outcome import Outcome
from raidproof.verdict.contract import PROMISES
from raidproof.verdict.wire import calls_of, judge_calls, total

SENT = {"client1": {"WRITE": 5, "COMMIT": 2}, "client2": {"WRITE": 1, "LINK": 3}}


def test_calls_of_all_clients_are_added() -> None:
    assert total(SENT) == {"WRITE": 6, "COMMIT": 2, "LINK": 3}


@pytest.mark.parametrize(
    ("kind", "mount", "needed"),
    [
        ("fsync", {"vers": "4.2"}, {"WRITE"}),
        ("pages", {"vers": "4.2"}, {"WRITE", "COMMIT"}),
        ("pages", {"vers": "3"}, {"WRITE", "COMMIT"}),
        ("pages", {"vers": "4.2", "sync": True}, {"WRITE"}),
        ("pages", {"vers": "4.2", "noac": True}, {"WRITE"}),
        ("mkdir", {"vers": "4.1"}, {"CREATE"}),
        ("mkdir", {"vers": "3"}, {"MKDIR"}),
        ("rmdir", {"vers": "3"}, {"RMDIR"}),
        ("link", {"vers": "3"}, {"LINK"}),
        ("o_append", {"vers": "4.2"}, {"WRITE", "LOCK"}),
        ("o_append", {"vers": "3"}, {"WRITE"}),
    ],
)
def test_an_operation_needs_calls(kind: str, mount: dict[str, object], needed: set[str]) -> None:
    assert calls_of(kind, mount) == needed


@pytest.mark.parametrize("kind", [one for one in PROMISES if one != APPLICATION])
@pytest.mark.parametrize("vers", ["3", "4.2"])
def test_each_kind_of_operation_needs_some_call(kind: str, vers: str) -> None:
    assert calls_of(kind, {"vers": vers})


def test_a_server_with_stable_writes_needs_no_commit_but_the_writes() -> None:
    mount = {"vers": "4.2"}
    writes = {"client1": {"WRITE": 9}}
    (verdict,) = judge_calls(["pages"], writes, mount)
    assert (verdict.outcome, "COMMIT" in verdict.reason) == (Outcome.INCONCLUSIVE, True)
    assert [one.outcome for one in judge_calls(["pages"], writes, mount, stable_writes=True)] == [Outcome.PASS]
    (verdict,) = judge_calls(["pages"], {"client1": {"COMMIT": 9}}, mount, stable_writes=True)
    assert (verdict.outcome, "WRITE" in verdict.reason) == (Outcome.INCONCLUSIVE, True)


def test_a_promise_whose_call_was_never_sent_is_inconclusive() -> None:
    mount = {"vers": "4.2"}
    assert [one.outcome for one in judge_calls(["pages", "link"], SENT, mount)] == [Outcome.PASS]
    (verdict,) = judge_calls(["pages", "link", "rename"], SENT, mount)
    assert (verdict.outcome, verdict.checker) == (Outcome.INCONCLUSIVE, "rename, on the wire")
    assert "RENAME" in verdict.reason
