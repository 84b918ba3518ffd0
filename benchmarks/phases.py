"""Prints the share of each phase in the duration of a run, and the longest commands of the phase.

The program reads `raidproof.log` of a stored run, which has the times of all phases and commands. Run it as
`python -m benchmarks.phases results/RUN`; without an argument it runs the demo first.
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (\w+) (.*)$")
COMMAND = re.compile(r"^\S+: ([0-9.]+) s(?:, status \d+)?: (\S+)")
MOST = 4
"""Greatest number of commands that are printed with each phase."""


@dataclass
class Phase:
    """The total duration of one phase over all crash tests of a run, in seconds."""

    seconds: float = 0.0
    times: int = 0
    """Number of occurrences."""
    commands: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by name of the program."""


def events(log: str) -> Iterator[tuple[float, str, str]]:
    """Yield time in seconds, level and text of each line of a log."""
    for line in log.splitlines():
        if match := LINE.match(line):
            yield datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").timestamp(), match[2], match[3]


def phases(log: str) -> dict[str, Phase]:
    """Return the phases of a log in the order of their first occurrence, summed over all crash tests."""
    found: dict[str, Phase] = {}
    name, begun = "", 0.0
    for at, level, text in events(log):
        if level == "INFO":
            if name:
                found[name].seconds += at - begun
            # The name of the crash test precedes the phase; the machines after "booting" differ.
            name, begun = re.sub(r"^booting .*", "booting", text.rpartition(": ")[2]), at
            found.setdefault(name, Phase()).times += 1
        elif name and (command := COMMAND.match(text)):
            found[name].commands[command[2]] += float(command[1])
    return found


def table(found: dict[str, Phase]) -> Table:
    """Return a table of the phases and their shares, the largest share first."""
    whole = sum(phase.seconds for phase in found.values())
    drawn = Table(title=f"duration of all phases: {whole:.1f} s")
    for title in ("phase", "times", "s", "share", "longest commands"):
        drawn.add_column(title, justify="left" if title in {"phase", "longest commands"} else "right")
    for name, phase in sorted(found.items(), key=lambda one: -one[1].seconds):
        longest = sorted(phase.commands.items(), key=lambda one: -one[1])[:MOST]
        named = ", ".join(f"{program} {seconds:.1f} s" for program, seconds in longest)
        share = phase.seconds / whole if whole else 0.0
        drawn.add_row(name, str(phase.times), f"{phase.seconds:.1f}", f"{share:.0%}", named)
    return drawn


def demo(results: Path) -> Path:
    """Run the demo and return the folder of its run."""
    subprocess.run([sys.executable, "-m", "raidproof", "demo", f"--results={results}"], check=False)
    (run,) = results.iterdir()
    return run


def main() -> int:
    """Print the table of phases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="a folder of results/")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        run = options.run or demo(Path(folder))
        log = (run / "raidproof.log").read_text()
    Console().print(table(phases(log)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
