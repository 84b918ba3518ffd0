"""fstests' lists at its end, without which nothing has passed."""

from raidproof_suites import Fstests
from tests.suites.outputs import ended, real


def test_fstests_lists() -> None:
    text = (
        "generic/001 3s ...  4s\ngeneric/004       [not run] O_TMPFILE is not supported\n"
        "generic/013 - output mismatch (see x.out.bad)\n"
        "Ran: generic/001 generic/004 generic/013\nNot run: generic/004\nFailures: generic/013\nFailed 1 of 3 tests\n"
    )
    outcome = Fstests().parse("fstests", ended(text, 1))
    assert outcome.passed == ("generic/001",)
    assert outcome.skipped[0].reason == "O_TMPFILE is not supported"
    assert "output mismatch" in outcome.failed[0].reason
    cut_off = Fstests().parse("fstests", ended(text[:60], 1))
    assert not cut_off.passed
    assert cut_off.unknown


def test_fstests_of_which_one_failed() -> None:
    outcome = Fstests().parse("fstests", ended(real("fstests.txt"), 1))
    assert outcome.passed == ("generic/001",)
    assert [(one.name, one.reason.split(" (see")[0]) for one in outcome.failed] == [
        ("generic/013", "[failed, exit status 1]- output mismatch")
    ]
    cut_off = Fstests().parse("fstests", ended(real("fstests.txt").partition("Ran:")[0], 1))
    assert not cut_off.passed
    assert {one.name for one in cut_off.unknown} == {"generic/001", "generic/013", "fstests"}
