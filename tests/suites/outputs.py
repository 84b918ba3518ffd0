"""Output of the real suites, recorded in a user-mode lab."""

from pathlib import Path

from raidproof.core.command import Completed

DATA = Path(__file__).parents[1] / "data" / "suites"


def ended(text: str, status: int = 0, stderr: str = "") -> Completed:
    return Completed(("suite",), status, text, stderr, "client1")


def real(name: str) -> str:
    return (DATA / name).read_text()
