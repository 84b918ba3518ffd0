"""Measured values of lessons, in place of machines."""

from collections.abc import Mapping, Sequence
from typing import Any

from raidproof.core.waiting import wall_clock
from raidproof.record.lesson import ActionRecord, AnswersFrom, LessonRecord, ValueRecord
from raidproof.record.outcome import Outcome
from raidproof.teach.experiment import value_record

TEXT = """\
+++
title = "What is left"
minutes = 1
learn = ["what is left"]
+++

# Before

The server replies early.

```question
name = "lost"
ask = "How many seconds are lost?"
measured = "early.lost_seconds"
expect = [1, 40]
explain = "Lost: {early.lost_seconds}, {early.lost} operations, worst {early.lost_seconds.most}."
otherwise = "Another result: {early.lost_seconds}."
```

```question
name = "any"
ask = "Does the other one lose anything?"
choices = [
  { text = "no", when = "late.lost = 0" },
  { text = "a little", when = "late.lost < 0.5 * early.lost" },
  { text = "much" },
]
expect = "a"
```

```action
name = "early"
do = "cut"
title = "export async"
settings = { export = "async" }
seconds = [1, 2]
repeats = 2
```

```action
name = "late"
do = "cut"
settings = { export = "sync" }
```

```result
title = "Both"
actions = ["early", "late"]
columns = ["lost", "lost_seconds"]
```

The end: {late.lost} of {late.acknowledged}.
"""


def done(name: str, values: Mapping[str, Sequence[float]], *, do: str = "cut", **changes: Any) -> ActionRecord:
    """Return the record of an action with these values."""
    records = [value_record(do, value, list(each)) for value, each in values.items()]
    usual = {"title": name, "do": do, "values": records, "shown": list(values), "seconds": 1.5}
    return ActionRecord(name=name, **{**usual, **changes})


def cut(name: str, lost: Sequence[float], seconds: Sequence[float]) -> ActionRecord:
    """Return the record of a cut that lost so many of 100 operations."""
    return done(name, {"acknowledged": [100.0] * len(lost), "lost": lost, "lost_seconds": seconds})


class FakeMachines:
    """Stands for the machines: returns the values that it was given, or an error."""

    def __init__(self, **actions: ActionRecord) -> None:
        self.actions = actions
        self.performed: list[str] = []

    def perform(self, action: Any) -> ActionRecord:
        self.performed.append(action.name)
        found = self.actions.get(action.name)
        if found is None:
            return ActionRecord(
                name=action.name, title=action.words, do=action.do, outcome=Outcome.ERROR, error="no lab boots"
            )
        return found.model_copy(update={"title": action.words, "shown": list(action.shown)})


def usual_machines() -> FakeMachines:
    return FakeMachines(early=cut("early", [40, 60], [3.0, 5.0]), late=cut("late", [0], [0.0]))


def new_record(**changes: Any) -> LessonRecord:
    usual: dict[str, Any] = {
        "lesson": "left",
        "title": "What is left",
        "digest": "0123",
        "seed": 1,
        "answers_from": AnswersFrom.FILE,
        "started": wall_clock(),
        "run": "20261122-120649-teach-left",
        "command": ["./raidproof", "teach", "left"],
    }
    return LessonRecord(**{**usual, **changes})


__all__ = ["TEXT", "FakeMachines", "ValueRecord", "cut", "done", "new_record", "usual_machines"]
