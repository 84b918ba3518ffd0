from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from scenarios.core import (
    LONG,
    SHORT_S,
    Recorded,
    choose,
    elsewhere,
    is_core,
    load,
    longest_first,
    only_long,
    plants,
    rows_of,
    store,
    table,
)
from scenarios.coverage import Axis, Row, required

HOME = Path(__file__).resolve().parents[2]

ROWS = [Row(Axis.LEVEL, str(number)) for number in range(8)]
SCENARIOS = st.dictionaries(
    st.text("abc", min_size=1, max_size=4),
    st.builds(Recorded, st.floats(0.0, 120.0), st.frozensets(st.sampled_from(ROWS))),
    max_size=12,
)


def recorded(seconds: float, *levels: int) -> Recorded:
    return Recorded(seconds, frozenset(ROWS[level] for level in levels))


@given(SCENARIOS)
def test_the_core_has_each_row_of_a_short_scenario(scenarios: dict[str, Recorded]) -> None:
    chosen = choose(scenarios)
    assert all(scenarios[name].seconds <= SHORT_S for name in chosen)
    short = [name for name, one in scenarios.items() if one.seconds <= SHORT_S]
    assert rows_of(chosen, scenarios) == rows_of(short, scenarios)
    assert rows_of(scenarios, scenarios) == rows_of(chosen, scenarios) | set(only_long(scenarios))


@given(SCENARIOS)
def test_no_scenario_of_the_core_could_be_left_out(scenarios: dict[str, Recorded]) -> None:
    chosen = choose(scenarios)
    assert all(rows_of(chosen - {name}, scenarios) < rows_of(chosen, scenarios) for name in chosen)


@given(SCENARIOS)
def test_the_order_of_scenarios_does_not_matter(scenarios: dict[str, Recorded]) -> None:
    assert choose(scenarios) == choose(dict(reversed(scenarios.items())))


def test_the_shorter_of_two_equal_scenarios_is_chosen() -> None:
    assert choose({"a": recorded(9, 1), "b": recorded(8, 1)}) == {"b"}


def test_a_long_scenario_is_not_chosen_and_its_rows_are_listed() -> None:
    scenarios = {"a": recorded(SHORT_S + 1, 1, 2), "b": recorded(8, 1)}
    assert choose(scenarios) == {"b"}
    assert only_long(scenarios) == {ROWS[2]: ["a"]}


def test_an_early_choice_that_later_ones_cover_is_left_out() -> None:
    # Per second, "a" is the best first choice; then "b" and "c" are needed, which have its rows, too.
    scenarios = {"a": recorded(4, 1, 2, 3, 4), "b": recorded(5, 1, 2, 5), "c": recorded(5, 3, 4, 6)}
    assert choose(scenarios) == {"b", "c"}


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    scenarios = {"b": recorded(1.5, 1, 2), "a": recorded(0.0)}
    store(scenarios, tmp_path / "coverage.json")
    assert load.__wrapped__(tmp_path / "coverage.json") == scenarios


def test_the_core_has_each_row_of_the_table_or_it_is_listed_with_the_reason() -> None:
    recorded = load()
    rows = set(required(plants(recorded)))
    assert rows - rows_of(choose(recorded), recorded) == set(elsewhere())


def test_each_recorded_scenario_exists() -> None:
    for name in load():
        path, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (HOME / path).read_text(), f"{name}: record the coverage again"


def test_the_table_names_the_scenarios_of_each_row() -> None:
    console = Console(record=True, width=200)
    console.print(table({"scenarios/a.py::test_a": Recorded(7.0, frozenset({Row(Axis.LEVEL, "5")}))}))
    drawn = console.export_text()
    assert "core: 1 of 1 scenarios, 7 s on one worker" in drawn
    assert [line.split("│")[2].strip() for line in drawn.splitlines() if "level: 5 " in line] == [
        "scenarios/a.py::test_a"
    ]
    assert f"none: {LONG}" in drawn


def test_workers_begin_with_the_file_that_takes_the_longest_and_a_new_one_counts() -> None:
    known = {
        "a.py::one": recorded(40),
        "b.py::one": recorded(30),
        "b.py::two": recorded(20),
        "b.py::left-out": recorded(99),
    }
    names = ["a.py::one", "c.py::new", "b.py::two", "b.py::one"]
    assert longest_first(names, known) == ["c.py", "b.py", "a.py"]
    assert longest_first(names[:1] + names[2:3], known) == ["a.py", "b.py"]


def test_a_scenario_that_was_never_recorded_belongs_to_the_core() -> None:
    assert is_core("scenarios/test_new.py::test_of_tomorrow")
