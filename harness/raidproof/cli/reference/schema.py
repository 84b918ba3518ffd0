"""`raidproof schema`: the JSON Schemas of plans and of the records that commands print with ``--json``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from raidproof.core.errors import RequestError, nearest

SUFFIX = ".schema.json"
"""Ending of the names of stored schemas."""


class Published(NamedTuple):
    """A published schema."""

    title: str
    make: Callable[[str, str], dict[str, Any]]
    """Return the schema for its name and its title."""


def record(kind: Any, version: int) -> Callable[[str, str], dict[str, Any]]:
    """Return a function that makes the schema of a type that a command prints; ``version``: that of the type."""
    from raidproof.core.json_schema import json_schema  # noqa: PLC0415

    return lambda name, title: json_schema(kind, name=name, title=title, version=version)


def published(*, built_in: bool = False) -> dict[str, Published]:
    """Return all schemas by name; ``built_in``: without the kinds of other distributions, as in the stored files."""
    from raidproof.cli.defaults import DEFAULTS_SCHEMA, Defaults, Settings  # noqa: PLC0415
    from raidproof.core.json_schema import json_schema  # noqa: PLC0415
    from raidproof.core.versions import VERSIONS_SCHEMA, Versions  # noqa: PLC0415
    from raidproof.drive_measurement.result import MEASUREMENT_SCHEMA, DriveMeasurement  # noqa: PLC0415
    from raidproof.existing.imported import IMPORT_SCHEMA, Imported  # noqa: PLC0415
    from raidproof.plan.dry_run import DRY_RUN_SCHEMA, ComparisonDryRun, DryRun  # noqa: PLC0415
    from raidproof.plan.schema import OfPlans, plan_schema  # noqa: PLC0415
    from raidproof.record import exploration, finding, run  # noqa: PLC0415
    from raidproof.record.advice import ADVICE_SCHEMA, AdviceRecord  # noqa: PLC0415
    from raidproof.record.bisection import BISECTION_SCHEMA, BisectionRecord  # noqa: PLC0415
    from raidproof.record.comparison import COMPARISON_SCHEMA, ComparisonRecord  # noqa: PLC0415
    from raidproof.record.lesson import LESSON_SCHEMA, ClassRecord, LessonEntry, LessonRecord  # noqa: PLC0415
    from raidproof.record.results import baseline, entry  # noqa: PLC0415
    from raidproof.record.results.baseline import Baseline  # noqa: PLC0415
    from raidproof.record.results.entry import RunEntry  # noqa: PLC0415
    from raidproof.record.selftest import SELFTEST_SCHEMA, SelftestRecord  # noqa: PLC0415
    from raidproof.record.storm import STORM_SCHEMA, StormRecord  # noqa: PLC0415
    from raidproof.run.advise.dry_run import ADVICE_DRY_RUN_SCHEMA, AdviceDryRun  # noqa: PLC0415
    from raidproof.run.doctor import HostCheck  # noqa: PLC0415
    from raidproof.verdict.change import history  # noqa: PLC0415
    from raidproof.verdict.change.history import CellHistory  # noqa: PLC0415

    return {
        "plan": Published("plan file", lambda name, title: plan_schema(name, title, built_in=built_in)),
        "run": Published("result of `run`, `demo`, `judge` and `show`", record(run.RunRecord, run.SCHEMA)),
        "comparison": Published("result of `ab` and `compare`", record(ComparisonRecord, COMPARISON_SCHEMA)),
        "runs": Published("result of `ls`", record(list[RunEntry], entry.SCHEMA)),
        "baselines": Published("result of `baseline list`", record(list[Baseline], baseline.SCHEMA)),
        "history": Published("result of `history`", record(list[CellHistory], history.SCHEMA)),
        "advice": Published("result of `advise`", record(AdviceRecord, ADVICE_SCHEMA)),
        "advice-dry-run": Published("result of `advise --dry-run`", record(AdviceDryRun, ADVICE_DRY_RUN_SCHEMA)),
        "findings": Published("result of `findings list`", record(list[finding.Finding], finding.SCHEMA)),
        "findings-run": Published("result of `findings run`", record(finding.FindingsRecord, finding.SCHEMA)),
        "bisection": Published("result of `bisect`", record(BisectionRecord, BISECTION_SCHEMA)),
        "exploration": Published("result of `explore`", record(exploration.ExplorationRecord, exploration.SCHEMA)),
        "lesson": Published("result of `teach`", record(LessonRecord, LESSON_SCHEMA)),
        "lessons": Published("result of `teach` without a lesson", record(list[LessonEntry], LESSON_SCHEMA)),
        "class": Published("result of `teach --compare`", record(ClassRecord, LESSON_SCHEMA)),
        "exploration-dry-run": Published(
            "result of `explore --dry-run`", record(exploration.ExplorationDryRun, exploration.SCHEMA)
        ),
        "state": Published(
            "result of `explore --state`, and of `recover`", record(exploration.StateRecord, exploration.SCHEMA)
        ),
        "dry-run": Published("result of `run --dry-run`", record(DryRun, DRY_RUN_SCHEMA)),
        "import": Published("result of `import`", record(Imported, IMPORT_SCHEMA)),
        "measurement": Published("result of `profile measure`", record(DriveMeasurement, MEASUREMENT_SCHEMA)),
        "comparison-dry-run": Published("result of `ab --dry-run`", record(ComparisonDryRun, DRY_RUN_SCHEMA)),
        "selftest": Published("result of `selftest`", record(SelftestRecord, SELFTEST_SCHEMA)),
        "storm": Published("result of `storm`", record(StormRecord, STORM_SCHEMA)),
        "doctor": Published("result of `doctor`", record(list[HostCheck], 1)),
        "config": Published(
            "raidproof.toml",
            lambda name, title: json_schema(
                Defaults, name=name, title=title, version=DEFAULTS_SCHEMA, mode="validation", generator=OfPlans
            ),
        ),
        "settings": Published("result of `config`", record(Settings, DEFAULTS_SCHEMA)),
        "version": Published("result of `version`", record(Versions, VERSIONS_SCHEMA)),
    }


def schema(
    name: Annotated[str | None, typer.Argument(help="name of a schema; without a name, all names are printed")] = None,
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all schemas to files in this directory.")
    ] = None,
) -> None:
    """Print the JSON Schema of plans, or of the result of a command with --json."""
    every = published()
    if write is not None:
        if name is not None:
            raise RequestError("--write writes all schemas", remedy=f"omit --write or the name {name!r}")
        write_all(write)
    elif name is None:
        for known, one in every.items():
            print(f"{known:<20} {one.title}")  # noqa: T201
    elif name not in every:
        raise RequestError(f"unknown schema {name!r}", remedy=nearest(name, every))
    else:
        print(text_of(name, every[name]))  # noqa: T201


def text_of(name: str, one: Published) -> str:
    """Return a schema as text."""
    return json.dumps(one.make(name, f"raidproof: {one.title}"), indent=1)


def write_all(folder: Path) -> None:
    """Write each schema to a file of its name, and remove the files of schemas that are no longer published."""
    texts = {f"{name}{SUFFIX}": f"{text_of(name, one)}\n" for name, one in published(built_in=True).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
        for path in folder.glob(f"*{SUFFIX}"):
            if path.name not in texts:
                path.unlink()
    except OSError as error:
        raise RequestError(f"cannot write schemas to {folder}: {error.strerror}") from error
