"""`raidproof summary`: the result of a stored run as Markdown."""

import json
from pathlib import Path
from typing import Annotated

import typer

from raidproof.cli.completion import stored_runs
from raidproof.cli.options import Results
from raidproof.core.errors import RequestError
from raidproof.run.options import RESULTS


def summary(
    run: Annotated[
        str,
        typer.Argument(
            help="name or directory of a stored run or comparison, or a file with the output of --json",
            autocompletion=stored_runs,
        ),
    ],
    results: Results = RESULTS,
) -> None:
    """Print the result of a run or a comparison as Markdown, for a pull request or the page of a CI job.

    The exit status is 0 whatever the result is.
    """
    print(markdown(run, results), end="")  # noqa: T201


def markdown(run: str, results: Path) -> str:
    """Return the summary of a stored run or comparison, or of the record in a file.

    Raises:
        RequestError: no run has this name, or the file has no record.
    """
    from raidproof.record import RunStore  # noqa: PLC0415
    from raidproof.record.results.names import COMPARISON  # noqa: PLC0415
    from raidproof.report.results.summary import summary_of_run  # noqa: PLC0415

    if Path(run).is_file():
        return _of_file(Path(run))
    for folder in (Path(run), results / run):
        if (folder / COMPARISON).is_file():
            return _of_file(folder / COMPARISON)
    return summary_of_run(RunStore.find(run, results).load())


def _of_file(path: Path) -> str:
    from pydantic import ValidationError  # noqa: PLC0415

    from raidproof.record.comparison import ComparisonRecord  # noqa: PLC0415
    from raidproof.record.run import RunRecord  # noqa: PLC0415
    from raidproof.report.results.summary import summary_of_comparison, summary_of_run  # noqa: PLC0415

    try:
        record = json.loads(path.read_text())
        if isinstance(record, dict) and "pairs" in record:
            return summary_of_comparison(ComparisonRecord.model_validate(record))
        return summary_of_run(RunRecord.model_validate(record))
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from error
    except (ValidationError, ValueError) as error:
        raise RequestError(
            f"{path} has no record of a run or a comparison", remedy="name a file with the output of --json"
        ) from error
