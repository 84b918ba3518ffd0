"""The order and the names of the crash states of a stored recording, which recorded explorations refer to."""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from raidproof.crash.disk_states import DiskStates
from raidproof.crash.exploration import Budget
from raidproof.crash.journal import lines_of
from raidproof.crash.sampler import Choice
from raidproof.record.results.names import JOURNAL
from raidproof.run import crash_states as module
from raidproof.run.crash_states import Options, chosen
from raidproof.run.exploration import explore_cycle
from raidproof.run.source import Source, source_of
from tests.crash.made_up import ROUNDS
from tests.crash.stored import store_run
from tests.run.test_second_cuts import Recovering


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A stored crash test of which every second operation is a solo operation."""
    monkeypatch.setattr(module, "solo_operations", lambda history, _seen: history.operations[::2])
    return Recovering.of(source_of(store_run(tmp_path / "run", lies_from=ROUNDS)))


def digest_of(lines: Iterable[str]) -> str:
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def named(source: Source, options: Options) -> list[str]:
    """Return each choice in its order, with the name of its state and the digest of the disks' content."""
    choices = chosen(source, options)
    named: dict[Choice, str] = {}
    window = DiskStates(source.recording)
    for one in sorted(set(choices.order)):
        window.move(one.cut)
        state = choices.state(one, window.open)
        named[one] = f"{one.policy} {one.number} {state.name} {window.digest(state)}"
    return [named[one] for one in choices.order]


@pytest.mark.parametrize(("changes", "states", "digest"), [
    ({}, 495, "8dfcee84c6b3329d"),
    ({"seed": 2}, 495, "f4779209f41ca9d7"),
    ({"tear": 4096}, 359, "783c09f6f69a151b"),
    ({"uniform": True}, 495, "bce4242fce51e438"),
    ({"at_replies": True}, 5, "6a4bd22e6c15c477"),
    ({"at_replies": True, "uniform": True}, 5, "9941d4c6fc05c4ab"),
    ({"only_directed": True}, 3, "d6937495d78bbf4f"),
    ({"all_losses": 2}, 104, "65a3a61cef7488a2"),
    ({"all_losses": 3, "epochs": (2, 4)}, 41, "b42386d4b57872f7"),
])  # fmt: skip
def test_a_recording_has_the_same_states_in_the_same_order(
    source: Source, changes: dict[str, Any], states: int, digest: str
) -> None:
    found = named(source, Options(**changes))
    assert (len(found), digest_of(found)) == (states, digest)


@pytest.mark.parametrize(("changes", "journal", "second"), [
    ({}, "d3a79d4be16b0c3e", "11303e4a158345a3"),
    ({"seed": 3, "uniform": True}, "078ccbf97b6efcaf", "b7be6bd333c73802"),
])  # fmt: skip
def test_a_recording_has_the_same_second_cuts_with_the_same_states(
    source: Source, changes: dict[str, Any], journal: str, second: str
) -> None:
    options = Options(Budget(60), checkers=1, second_cuts=3, second_states=12, crash_page=False)
    record, _ = explore_cycle(source, replace(options, **changes))
    assert record.second_cuts is not None

    def judged(path: Path) -> list[str]:
        # The checks end in any order.
        return sorted(f"{line.policy} {line.number} {line.crash.name} {line.digest}" for line in lines_of(path))

    folder = source.store.path / source.stem
    recoveries = [one.state for one in record.second_cuts.recoveries]
    found = [line for one in recoveries for line in (one, *judged(folder / f"second-{one}.jsonl"))]
    assert digest_of(judged(folder / JOURNAL)) == journal
    assert digest_of(found) == second
