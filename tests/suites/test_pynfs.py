"""pynfs' lines and its summary, which must agree."""

from raidproof_suites import Pynfs
from tests.suites.outputs import ended, real


def test_pynfs_passed() -> None:
    outcome = Pynfs().parse("pynfs", ended(real("pynfs.txt")))
    assert len(outcome.passed) == outcome.total == 4


def test_pynfs_summary_must_agree() -> None:
    stars = "*" * 50
    body = "EID1     st_exchange_id.testSupported          : PASS\n"
    body += "SEQ1     st_sequence.testSupported             : FAILURE\n           nfs4lib.BadCompoundRes: no\n"
    tail = f"{stars}\nCommand line asked for 2 of 262 tests\nOf those: 0 Skipped, 1 Failed, 0 Warned, 1 Passed\n"
    outcome = Pynfs().parse("pynfs", ended(f"{stars}\n{body}{tail}"))
    assert outcome.passed == ("EID1 st_exchange_id.testSupported",)
    assert "BadCompoundRes" in outcome.failed[0].reason
    assert Pynfs().parse("pynfs", ended(f"{stars}\n{body}{tail}".replace("1 Passed", "2 Passed"))).unknown
    assert Pynfs().parse("pynfs", ended(f"{stars}\n{body}")).unknown
