"""Names of the directories of runs, and of the files in them."""

import re
from datetime import UTC, datetime

RECORD = "report.json"
"""The record of a run."""
COMPARISON = "comparison.json"
"""The record of a comparison of two runs, in a directory of its own."""
ADVICE = "advice.json"
"""The record of `raidproof advise`, in the directory of its run."""
EXPLORATIONS = "explore-*.json"
"""The records of explorations, in the directory of their run."""
CRASH_PAGE = ".crash.html"
"""End of the name of an exploration's crash page, after the stem of the exploration's files."""
JOURNAL = "states.jsonl"
"""The file to which an exploration appends; it is locked (flock(2)) meanwhile."""
LATEST = "latest"
"""Name of the newest run; ``latest:NAME``: the newest run of the plan or command NAME."""
REMOVED = ".removed-"
"""Beginning of the name of a directory whose removal has begun."""
TIME = "%Y%m%d-%H%M%S"
"""Format of the time at which a run began, in UTC, at the beginning of the name of its directory."""
NAMED = re.compile(r"(\d{8}-\d{6})-(.+?)(?:-(\d+))?")
"""The name of a run's directory: time, name of the plan or command, number from 2 if the name was in use."""


def begun_at(name: str) -> datetime | None:
    """Return the time in the name of a run's directory; None if the name has another form."""
    if NAMED.fullmatch(name) is None:
        return None
    try:
        return datetime.strptime(name[:15], TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def crash_page_of(stem: str) -> str:
    """Return the name of the crash page of an exploration, by the stem of the exploration's files."""
    return f"{stem}{CRASH_PAGE}"
