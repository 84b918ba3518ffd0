from raidproof.record.outcome import Outcome
from raidproof.verdict.checks.export import judge_export

ASKED = ("rw", "sync", "root_squash")


def test_an_export_that_is_as_asked_passes() -> None:
    assert judge_export(ASKED, ("sync", "rw", "root_squash", "sec=1"), "/srv").outcome is Outcome.PASS


def test_an_export_that_became_async_fails_and_is_named() -> None:
    verdict = judge_export(ASKED, ("async", "rw", "root_squash"), "/srv")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == "/srv: export options requested but not in effect: sync; in effect instead: async"


def test_what_is_exported_no_more_fails() -> None:
    assert "not in effect: root_squash, rw, sync" in judge_export(ASKED, (), "/srv").reason
