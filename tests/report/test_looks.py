from raidproof.record.outcome import Outcome
from raidproof.report.looks import LOOKS, NO_VERDICT, colour_of
from raidproof.verdict.cell import SafetyWord


def test_every_verdict_has_a_sign_and_a_colour() -> None:
    assert set(LOOKS) == {word.value for word in (*Outcome, *SafetyWord)}
    assert colour_of("FAIL") == "red"
    assert colour_of("running") == NO_VERDICT
