"""The output of a build from source: the line that names the cause of a failure."""

import re

_CAUSES = (
    re.compile(r"^\S+:\d+(?::\d+)?: (?:fatal )?error: .*"),
    re.compile(r"^ERROR: modpost: .*"),
    re.compile(r".*undefined reference to .*"),
    re.compile(r".*The source tree is not clean.*"),
    re.compile(r"^make(?:\[\d+\])?: \*\*\* No rule to make target .*"),
    re.compile(r"^\S+:\d+: .*(?:syntax error|unexpected|invalid).*"),
    re.compile(r".*\berror\b.*", re.IGNORECASE),
)
"""Patterns of the line that names the cause of a failed build; an earlier pattern is more specific."""


def cause_of(output: str, root: str = "") -> str | None:
    """Return the line that names the cause of a failure, without the path ``root`` of the source; None without one."""
    lines = [line.strip() for line in output.splitlines()]
    for pattern in _CAUSES:
        for line in lines:
            if pattern.match(line):
                return line.replace(root, "") if root else line
    return None
