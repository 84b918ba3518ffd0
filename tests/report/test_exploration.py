import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from raidproof.core.waiting import wall_clock
from raidproof.record import RunRecord, RunStore
from raidproof.record.exploration import (
    AllLossesRecord,
    ExplorationDryRun,
    ExplorationRecord,
    LossRecord,
    Possible,
    RedundancyRecord,
    SecondCutsRecord,
    StageTime,
    StateMark,
)
from raidproof.record.failure import (
    FailureRecord,
    MissingRecord,
    OrderRecord,
    ShortestRecord,
    ShrunkRecord,
    WriteRecord,
)
from raidproof.record.outcome import Outcome
from raidproof.record.recovery import Phase, PhaseCount, RecoveryRecord
from raidproof.record.sensitivity import Defect, Subject
from raidproof.report import exploration as words
from raidproof.report.charts.drawing import script
from raidproof.report.exploration import show_exploration
from raidproof.report.html import render, render_exploration, write_exploration, write_html
from tests.report.charts.unpacking import unpacked


def failure() -> FailureRecord:
    return FailureRecord(
        promise="metadata",
        damage="rename: the new name is not there, or the old one still is",
        end="read",
        states=12,
        examples=["17-00c0ffee", "18-00c0ffee"],
        state="17-00c0ffee",
        dump="[17,[[12,null]]]",
        policy="one-kept",
        cut=17,
        at_s=1.2345,
        reason="metadata: 1 of 40 acknowledged operations are missing",
        blame="the stack: no option and no injected fault explains the failure",
        said=["client1-4-metadata: rename of 3 <script>"],
        repeated=2,
        confirmed=2,
        shrunk=ShrunkRecord(
            state="17-0badcafe",
            dump="[17,[[12,null]]]",
            survivors=[
                WriteRecord(request=12, kind="write", member="disk2", lba=4096, sectors=8, stripe=21, owner="XFS log")
            ],
            not_there=4,
            tried=9,
        ),
        shortest=ShortestRecord(
            state="9-0badcafe",
            dump="[9,[]]",
            cut=9,
            of=12506,
            at_s=1.2311,
            earlier=8,
            earlier_s=0.0034,
            after_word_s=0.0089,
            acknowledged=3,
            of_acknowledged=40,
            tried=2,
        ),
        missing=MissingRecord(
            client="client1",
            kind="rename",
            path="client1-4-metadata",
            place=3,
            generation=1,
            acknowledged_before_s=0.0123,
            instead="the new name is not there, or the old one still is",
        ),
        missing_total=1,
        acknowledged=40,
        replay=["./raidproof", "explore", "run", "--cycle", "sync", "--state", "9-0badcafe", "--keep"],
    )


def exploration(**changes: object) -> ExplorationRecord:
    marks = [
        StateMark(name="17-00c0ffee", policy="one-kept", at_s=1.2345, checked=True, broken=True),
        StateMark(name="17-00000001", policy="one-kept", at_s=1.2346, checked=True, broken=False),
        StateMark(name="20-00000002", policy="drop-all", at_s=2.5, checked=False, broken=False),
        StateMark(name="30-00000003", policy="drop-all", at_s=4.0, checked=True, broken=False),
    ]
    fields: dict[str, object] = {
        "run": "20260504-123000-demo",
        "cycle": "sync",
        "title": "sync export, <honest> disks",
        "started": wall_clock(),
        "command": ["./raidproof", "explore", "20260504-123000-demo"],
        "log": "sync/write.log",
        "log_digest": "c0ffee",
        "seed": 1,
        "tear": 512,
        "asked": 1000,
        "requests": 12506,
        "cuts": 4158,
        "possible": Possible(log10=13.4),
        "candidates": 40000,
        "judged": 4,
        "distinct": 3,
        "checked": 3,
        "broken": 1,
        "failures": [failure()],
        "acknowledged_s": [1.1, 1.2, 1.2, 3.0],
        "span_s": (1.0, 4.0),
        "marks": marks,
        "policies": {"drop-all": 2, "one-kept": 2},
        "stages": [StageTime(stage="mount", count=3, median=42.0, p90=50.0, p99=50.0, greatest=50.0)],
        "seconds": 1.0,
        "states_per_minute": 240.0,
        "checked_per_minute": 180.0,
        "cannot_prove": ["a second crash"],
        "outcome": Outcome.FAIL,
        "reason": "1 of 4 crash states (3 different) break a promise",
    }
    return ExplorationRecord.model_validate(fields | changes)


def test_a_failure_that_agrees_with_a_finding_names_it_everywhere() -> None:
    write = failure().shrunk.survivors[0]  # type: ignore[union-attr]
    order = OrderRecord(barrier=write.model_copy(update={"structure": "XFS log record"}), lost=write)
    known = failure().model_copy(
        update={"finding": "md-early-commit-block", "order": order, "kernel": ["oops: <here>"]}
    )
    record = exploration(failures=[known, known])
    page = render_exploration(record)
    for text in (page, "\n".join(words.lines_of(1, known)), words.lines_of(2, known, other=1)[0]):
        assert "agrees with the known finding md-early-commit-block" in text
    for text in (page, "\n".join(words.lines_of(1, known))):
        assert "The XFS log record on disk2 (sector 4,096) survives without a write to disk2" in text
    assert "oops: &lt;here&gt;" in page
    assert "agrees" not in "\n".join(words.lines_of(1, failure()))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id":
                self.ids.append(value or "")
            if key in {"href", "src", "xlink:href"}:
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.words += f"{data} "


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    return tags


def test_the_page_names_the_failure_its_state_and_the_command() -> None:
    said = " ".join(parsed(render_exploration(exploration())).words.split())
    assert "rename: the new name is not there, or the old one still is" in said
    assert "rename of client1-4-metadata, block or directory 3, generation" in said
    assert "./raidproof explore run --cycle sync --state 9-0badcafe --keep" in said
    assert "disk2 4,096 8 21 XFS log" in said
    assert "a second crash" in said


def test_the_page_needs_nothing_else_and_links_lead_somewhere() -> None:
    page = render_exploration(exploration())
    tags = parsed(page)
    assert not re.search(r"https?://|<script[^>]+src|<link|@import", page.replace(script(), ""))
    assert "rename of 3 &lt;script&gt;" in page
    assert len(tags.ids) == len(set(tags.ids))
    for link in tags.links:
        assert not re.match(r"[a-z]+:", link)
        assert not link.startswith("#") or link[1:] in tags.ids
    assert "prefers-color-scheme: dark" in page


@pytest.mark.parametrize(
    "changes",
    [
        {"failures": [], "broken": 0, "outcome": Outcome.PASS},
        {"marks": [], "judged": 0, "policies": {}, "stages": [], "acknowledged_s": [], "span_s": (0.0, 0.0)},
        {"loss": LossRecord(operations=7, of=9, bytes=4096, seconds=0.5, state="17-00c0ffee"), "failures": []},
        {"ended_early": "interrupted; the same command with --resume continues the exploration"},
        {"failures": [failure().model_copy(update={"shrunk": None, "missing": None, "confirmed": 0})]},
    ],
)
def test_every_end_has_a_page_and_a_table(changes: dict[str, object]) -> None:
    record = exploration(**changes)
    assert record.reason in parsed(render_exploration(record)).words
    screen = StringIO()
    show_exploration(record, Console(file=screen, width=100), Path("page.html"))
    assert record.reason in screen.getvalue()
    assert "page.html" in screen.getvalue()


def test_a_pass_with_a_measured_loss_is_not_green() -> None:
    loss = LossRecord(operations=7, of=9, bytes=4096, seconds=0.5, state="17-00c0ffee")
    clean: dict[str, object] = {"failures": [], "broken": 0, "outcome": Outcome.PASS}
    assert 'class="outcome PASS"' in render_exploration(exploration(**clean))
    assert 'class="outcome PASS"' not in render_exploration(exploration(loss=loss, **clean))


def test_the_charts_have_every_state_and_every_acknowledgement() -> None:
    record = exploration()
    drawn = unpacked(render_exploration(record))["data"]
    assert [row["name"] for row in drawn["states"]] == [mark.name for mark in record.marks]
    assert sum(row["end"] == "a promise is broken" for row in drawn["states"]) == 1
    assert sum(row["count"] for row in drawn["acknowledged"]) == 4


def test_what_was_noted_is_on_the_page_and_in_the_terminal() -> None:
    record = exploration(
        notes=["A look came to no end, and was taken once more: 17-00c0ffee: mount: no answer in time"]
    )
    screen = StringIO()
    show_exploration(record, Console(file=screen, width=400))
    assert record.notes[0] in screen.getvalue()
    assert record.notes[0] in parsed(render_exploration(record)).words


def test_words_of_an_exploration() -> None:
    assert words.summary(exploration()) == (
        "12,506 requests of the write log and 4,158 instants of a power cut allow 10^13 crash states; 4 states of "
        "1,000 requested judged (240 per minute), with 3 different disk contents; machines checked 3 states (180 per "
        "minute); a promise is broken in 1 state"
    )
    assert words.possible(Possible(log10=3, exact=1024)) == "1,024"
    assert words.cold(exploration(cold={"checked": 3, "differing": ["a"]})).endswith(
        "booted machine: same result for 2"
    )
    assert words.cold(exploration(cold={"checked": 3}, through_nfsd=7)).endswith(
        "; the ledger of 7 other states was also read through the NFS server"
    )
    assert words.smallest(failure()) == "1 surviving write, 4 lost writes, found by checking 9 states"
    assert words.filesystems(exploration(filesystems=1)).endswith("ran on 1 state")


def test_what_a_state_could_have_lost_is_told_by_kind() -> None:
    assert words.tested(exploration()) == "acknowledged operations whose loss a state could have shown: none"
    undecided = {"states": 2, "state": "17-00c0ffee", "reason": "close may promise nothing"}
    record = exploration(tested={"fsync": 1200, "mkdir": 3}, undecided=undecided)
    assert words.tested(record) == (
        "acknowledged operations whose loss a state could have shown: 1,200 fsync, 3 mkdir; "
        "in 2 states a loss may or may not break a promise: close may promise nothing"
    )
    page = parsed(render_exploration(ExplorationRecord.model_validate(record.model_dump())))
    assert "1,200 fsync, 3 mkdir" in page.words


def test_the_control_of_the_check_is_stated() -> None:
    assert words.control(exploration()).endswith("the crash test has no solo operations")
    whole = {"fsync": {"states": 3, "reported": 3}}
    assert words.control(exploration(counterfactual=whole)) == (
        "control: 3 solo operations of 1 kind lacked in a checked state; the check reported each of them as missing"
    )
    flush = {"defect": Defect.FLUSH_OF_A_MEMBER, "instances": 9, "in_some_state": 4, "in_checked_states": 1}
    record = exploration(counterfactual={**whole, "link": {"states": 2}}, sensitivity=[flush])
    assert words.control(record) == (
        "control: 5 solo operations of 2 kinds lacked in a checked state; the check reported 3 of them as missing, "
        "and none of link. The states would have shown 1 missing flush of a member"
    )
    page = parsed(render_exploration(ExplorationRecord.model_validate(record.model_dump())))
    assert words.control(record) in page.words
    names = {**flush, "subject": Subject.NAMES, "instances": 7, "in_checked_states": 2}
    assert words.control(exploration(counterfactual=whole, sensitivity=[flush, names])).endswith(
        "1 missing flush of a member, and 2 of 7 that changes of names needed"
    )


BEFORE = "(0.00340 s) before the cut of the smallest state"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, f"the failure also shows at cut 9, 8 requests {BEFORE}, 0.00890 s after the lost acknowledgement"),
        ({"earlier": 1, "after_word_s": None}, f"the failure also shows at cut 9, 1 request {BEFORE}"),
        ({"earlier": 0, "not_at": 8}, "no earlier cut that was checked shows the failure"),
        ({"earlier": 0}, "no earlier cut could show the failure"),
    ],
)
def test_so_much_of_the_history_is_needed(changes: dict[str, object], said: str) -> None:
    one = failure()
    assert one.shortest is not None
    one.shortest = one.shortest.model_copy(update=changes)
    needed = "the shortest history that shows the failure has 9 of 12,506 requests, 3 of 40 acknowledged operations"
    assert words.shortest(one) == f"{said}; {needed}"
    record = exploration(failures=[one])
    screen = StringIO()
    show_exploration(record, Console(file=screen, width=400))
    assert f"  {said}; {needed}\n" in screen.getvalue()
    assert f"{said}; {needed}." in " ".join(parsed(render_exploration(record)).words.split())


def test_failures_shown_in_the_same_state_are_told_in_one_line() -> None:
    other = failure().model_copy(update={"promise": "write + fsync", "damage": "the block is missing"})
    apart = other.model_copy(update={"shrunk": None, "shortest": None, "damage": "garbage"})
    record = exploration(failures=[failure(), other, apart, failure()])
    assert [words.same_as(record.failures, place) for place in (1, 2, 3, 4)] == [None, 1, None, 1]
    line = (
        "2 write + fsync: the block is missing: same state as failure 1: 17-0badcafe; state "
        "9-0badcafe shows the failure with a shorter history; rename of client1-4-metadata"
    )
    screen = StringIO()
    show_exploration(record, Console(file=screen, width=400))
    assert line in screen.getvalue()
    assert screen.getvalue().count("./raidproof explore") == 2
    tags = parsed(render_exploration(record))
    assert line in " ".join(tags.words.split())
    assert {"failure-1", "failure-2", "failure-3", "failure-4"} <= set(tags.ids)


def test_a_history_that_nobody_has_looked_for_is_not_told_of() -> None:
    assert words.shortest(failure().model_copy(update={"shortest": None})) is None


def test_the_terminal_names_the_smallest_state() -> None:
    screen = StringIO()
    show_exploration(exploration(), Console(file=screen, width=120))
    said = screen.getvalue()
    assert "write disk2 sector 4,096 + 8, stripe 21: XFS log" in said
    assert "--state 9-0badcafe --keep" in said


def test_the_runs_page_leads_to_its_explorations(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(RunRecord(run="run", started=wall_clock(), command=["./raidproof", "demo"]))
    page = write_exploration(exploration(), store, "explore-sync")
    stored = ExplorationRecord.model_validate_json((tmp_path / "explore-sync.json").read_text())
    assert page.read_text() == render_exploration(stored)
    write_html(store.load(), tmp_path / "report.html")
    tags = parsed((tmp_path / "report.html").read_text())
    assert "./explore-sync.html" in tags.links
    assert "crash-states" in tags.ids


def test_a_run_without_explorations_says_nothing_of_them() -> None:
    page = render(RunRecord(run="run", started=wall_clock(), command=["./raidproof", "demo"]))
    assert "crash-states" not in parsed(page).ids


def test_an_exploration_of_another_version_is_passed_over(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(RunRecord(run="run", started=wall_clock(), command=["./raidproof", "demo"]))
    (tmp_path / "explore-old.json").write_text('{"schema_version": 99}')
    write_exploration(exploration(), store, "explore-sync")
    write_html(store.load(), tmp_path / "report.html")
    links = parsed((tmp_path / "report.html").read_text()).links
    assert "./explore-old.html" not in links


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (RedundancyRecord(), "the redundancy of no state was computed"),
        (RedundancyRecord(checked=2), "copies or parity are inconsistent in 0 of 2 states"),
        (
            RedundancyRecord(checked=9, differing=8),
            "copies or parity are inconsistent in 8 of 9 states; md would resync all inconsistent rows",
        ),
        (
            RedundancyRecord(checked=9, differing=8, unmarked=2, uneven=1),
            "copies or parity are inconsistent in 8 of 9 states; in 2 states md would not resync all "
            "inconsistent rows; in 1 state the resync depends on which member's bitmap md reads",
        ),
        (
            RedundancyRecord(checked=9, differing=8, all_marked=3),
            "copies or parity are inconsistent in 8 of 9 states; md would resync all inconsistent rows; "
            "in 3 states the bitmap marks every region, so that md would resync every row",
        ),
        (
            RedundancyRecord(checked=9, differing=8, changed=1),
            "copies or parity are inconsistent in 8 of 9 states; md would resync all inconsistent rows; "
            "in 1 state copies differ because a page changed while md wrote it, which md allows",
        ),
        (
            RedundancyRecord(unchecked={"1 of 4 members are missing": 7}),
            "redundancy of 7 states not computed: 1 of 4 members are missing",
        ),
    ],
)
def test_redundancy_is_told_in_one_sentence(counted: RedundancyRecord, said: str) -> None:
    record = exploration().model_copy(update={"redundancy": counted})
    assert words.redundancy(record) == said
    out = StringIO()
    show_exploration(record, Console(file=out, width=400))
    assert f"{said}\n" in out.getvalue()
    assert said.replace("'", "&#39;") in render_exploration(record)


def all_losses(**changes: int | list[int]) -> AllLossesRecord:
    fields = {"most": 2, "first_epoch": 1, "last_epoch": 40, "of_epochs": 40, "states": [300, 4000, 20000]}
    return AllLossesRecord.model_validate(fields | {"judged": [300, 4000, 20000]} | changes)


def test_the_states_with_few_losses_are_counted_on_the_page_and_in_the_terminal() -> None:
    record = exploration(all_losses=all_losses())
    said = (
        "judged: all 24,300 crash states with up to 2 lost requests of all 40 flush epochs: 300 of 300 with 0 lost, "
        "4,000 of 4,000 with 1 lost, 20,000 of 20,000 with 2 lost"
    )
    screen = StringIO()
    show_exploration(record, Console(file=screen, width=400))
    assert said in screen.getvalue()
    assert said in parsed(render_exploration(record)).words


def test_what_is_left_of_the_states_with_few_losses() -> None:
    part = all_losses(first_epoch=11, last_epoch=20, judged=[300, 1000, 0])
    assert words.exhaustive(exploration(all_losses=part)) == (
        "judged: 1,300 of the 24,300 crash states with up to 2 lost requests of the flush epochs 11 to 20 of 40: "
        "300 of 300 with 0 lost, 1,000 of 4,000 with 1 lost, 0 of 20,000 with 2 lost"
    )
    assert words.exhaustive(exploration()) is None


def second_cuts(**changes: object) -> SecondCutsRecord:
    recovery = RecoveryRecord(
        state="17-00c0ffee", log="recoveries-sync/17-00c0ffee/write.log", log_digest="beef", requests=764,
        seconds=2.5, resync_first_s=10.0, settled=True, judged=10, distinct=9, states_broken=1,
    )  # fmt: skip
    phases = [PhaseCount(phase=Phase.RESYNC, judged=4), PhaseCount(phase=Phase.LOG_RECOVERY, judged=6, broken=1)]
    fields = {"asked": 2, "states_each": 10, "recoveries": [recovery], "judged": 10, "distinct": 9, "broken": 1}
    return SecondCutsRecord.model_validate({**fields, "phases": phases, **changes})


def test_second_cuts_are_told_by_phase_and_by_recovery() -> None:
    second = {"recovery": "17-00c0ffee", "state": "17-00c0ffee+5-1", "shrunk": None}
    later = failure().model_copy(update={**second, "phase": Phase.LOG_RECOVERY})
    whole = failure().model_copy(update={**second, "damage": "other", "state": "17-00c0ffee"})
    record = exploration(failures=[failure(), later, whole], second_cuts=second_cuts())
    said = words.second_cuts(record)
    assert said is not None
    assert "second power cut during the recovery of 1 crash state of 2 requested: 10 states judged" in said
    assert "4 resync (0 broken), 6 log recovery (1 broken)" in said
    page = render_exploration(record)
    assert said in page
    assert "Second power cuts during recoveries" in page
    assert "Shown by: second cut, log recovery" in page
    terminal = Console(file=StringIO(), width=200)
    show_exploration(record, terminal)
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    for words_of in ("first cut", "second cut, log recovery", "after the recovery", "4 resync (0 broken)"):
        assert words_of in shown


def test_what_a_recovery_did_not_reach_is_told() -> None:
    recoveries = second_cuts().recoveries
    recovery = recoveries[0].model_copy(update={"settled": False, "broken": True})
    said = words.second_cuts(exploration(second_cuts=second_cuts(recoveries=[recovery]))) or ""
    assert "a promise is broken after 1 of the recoveries without a second cut" in said
    assert "the log of 1 recovery ended before md had ended its resync" in said


def test_without_second_cuts_nothing_is_said_of_them() -> None:
    assert words.second_cuts(exploration()) is None
    page = render_exploration(exploration())
    assert "Second power cuts" not in page
    assert "first cut" not in page


def test_words_of_a_dry_run() -> None:
    possible = Possible(log10=13.4)
    fields = {"run": "run", "cycle": "sync", "requests": 1234, "possible": possible, "candidates": 24300}
    every = all_losses(judged=[])
    record = ExplorationDryRun.model_validate(fields | {"all_losses": every, "refused": "choose --all-losses 1"})
    assert words.dry_run(record) == [
        "1,234 requests of the write log allow 10^13 crash states",
        "40 flush epochs; chosen: 1 to 40",
        "24,300 crash states with up to 2 lost requests: 300 with 0 lost, 4,000 with 1 lost, 20,000 with 2 lost",
        "too many for one exploration: choose --all-losses 1",
    ]
    assert words.dry_run(ExplorationDryRun.model_validate(fields))[1:] == ["the policies propose 24,300 states"]
