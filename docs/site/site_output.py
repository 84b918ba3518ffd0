"""The output of commands that documents show: the blocks after a comment `<!-- output of: ... -->` are captured."""

import lzma
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

HOME = Path(__file__).resolve().parents[2]
PAGES = (HOME / "docs" / "tutorial.md",)
"""Documents with captured output."""
RECORD = HOME / "tests" / "data" / "docs" / "mail.json.xz"
"""The record of the run that the tutorial shows."""
RUN = "20261123-054315-mail"
BLOCK = re.compile(r"(<!-- output of: (.*?) -->\n\n```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
PLAN = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
WIDTH = "96"
"""Columns of the terminal."""


def prepare(folder: Path, page: str) -> None:
    """Write the files to a folder that the commands of a page read: the first plan of the page, and the stored run."""
    plan = PLAN.search(page)
    if plan is not None:
        (folder / "mail.toml").write_text(plan[1])
    run = folder / "results" / RUN
    run.mkdir(parents=True)
    (run / "report.json").write_bytes(lzma.decompress(RECORD.read_bytes()))


def output(words: str, folder: Path) -> str:
    """Return what a command of raidproof prints on standard output in a folder.

    Raises:
        CalledProcessError: the exit status is not 0.
    """
    environment = {**os.environ, "COLUMNS": WIDTH, "RAIDPROOF_CONFIG": ""}
    command = [sys.executable, "-P", "-m", "raidproof", *words.split()]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return "".join(f"{line.rstrip()}\n" for line in ended.stdout.splitlines())


def renewed(page: str, printed: Callable[[str], str]) -> str:
    """Return the text of a page with the output of each block as ``printed`` returns it for the command."""
    return BLOCK.sub(lambda match: f"{match[1]}{printed(match[2])}{match[4]}", page)


def write() -> None:
    """Write the captured output of all documents again."""
    for path in PAGES:
        page = path.read_text()
        with TemporaryDirectory() as folder:
            prepare(Path(folder), page)
            path.write_text(renewed(page, partial(output, folder=Path(folder))))
