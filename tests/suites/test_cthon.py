"""Connectathon's output: what passed, what does not apply, and where it was cut off."""

from raidproof.record.outcome import Outcome
from raidproof.verdict.suite import judge_suite
from raidproof_suites import Cthon
from tests.suites.outputs import ended, real


def test_cthon_passed() -> None:
    assert len(Cthon().parse("basic", ended(real("cthon-basic.txt"))).passed) == 10
    lock = Cthon().parse("lock", ended(real("cthon-lock.txt")))
    assert "lock/15.2" in lock.passed
    assert not lock.failed


def test_cthon_says_what_does_not_apply() -> None:
    special = Cthon().parse("special", ended(real("cthon-special.txt")))
    assert [one.name for one in special.skipped] == ["special/test freesp and file size"]


def test_cthon_that_was_cut_off_has_not_passed() -> None:
    outcome = Cthon().parse("lock", ended(real("cthon-lock-cut-off.txt")))
    assert outcome.unknown
    assert judge_suite(outcome).outcome is Outcome.INCONCLUSIVE


def test_cthon_names_the_test_that_stopped_it() -> None:
    text = real("cthon-basic.txt")
    outcome = Cthon().parse("basic", ended(text[: text.index("\t./test5 ok")], 1, "./test5: can't read"))
    assert "can't read" in next(one.reason for one in outcome.failed if one.name == "basic/test5")


def test_cthon_lock_that_failed_once_has_failed() -> None:
    text = real("cthon-lock.txt").replace(
        "15.1  - F_ULOCK [               0,          ENDING] PASSED.",
        "15.1  - F_ULOCK [               0,          ENDING] FAILED!",
        1,
    )
    assert [one.name for one in Cthon().parse("lock", ended(text, 1)).failed] == ["lock/15.1"]
