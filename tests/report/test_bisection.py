import io

from rich.console import Console

from raidproof.core.waiting import wall_clock
from raidproof.record.bisection import BisectionRecord, CandidateAnswer, CandidateRecord, RepetitionResult, StepRecord
from raidproof.report.bisection import lines_of, show_bisection


def record(first_bad: list[int]) -> BisectionRecord:
    bad = RepetitionResult(answer=CandidateAnswer.BAD, reason="x", evidence="run-bad", seconds=3)
    good = RepetitionResult(answer=CandidateAnswer.GOOD, reason="x", evidence="run-good", seconds=4)
    return BisectionRecord(
        name="b",
        started=wall_clock(),
        command=[],
        digest="",
        predicate="promise fsync",
        model="the model",
        error_of_a_step=0.01,
        candidates=[CandidateRecord(name=f"{number}" * 40, title=f"change {number}") for number in range(4)],
        steps=[
            StepRecord(index=3, results=[bad], decision=CandidateAnswer.BAD, reason="failed", built=True, build_s=50),
            StepRecord(
                index=0, results=[bad, good], decision=CandidateAnswer.GOOD, reason="held", error=0.004, built=True
            ),
            StepRecord(index=1, results=[], decision=CandidateAnswer.UNTESTABLE, reason="does not build"),
        ],
        first_bad=first_bad,
        again=["./raidproof", "bisect", "--show=3333"],
    )


def test_the_table_names_evidence_on_both_sides() -> None:
    screen = Console(file=io.StringIO(), width=160)
    show_bisection(record([3]), screen, "here.json")
    said = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "run-bad" in said
    assert "run-good" in said
    assert said.index("000000000000") < said.index("111111111111") < said.index("333333333333")
    assert "does not build" in said


def test_one_first_bad_candidate_or_several() -> None:
    lines = list(lines_of(record([3]), "here.json"))
    assert lines[0] == f"the first bad candidate is {'3' * 40} change 3"
    assert "at most 0.40%; model: the model" in lines[1]
    assert lines[2] == "3 of 4 candidates tested in 3 repetitions (10 s); 2 builds (50 s)"
    assert lines[3:] == ["to show it again: ./raidproof bisect --show=3333", "record: here.json"]
    lines = list(lines_of(record([2, 3]), "here.json"))
    assert lines[0] == "the first bad candidate is one of 2; those before the last cannot be tested:"
