"""The sign and the colour of each verdict, on a terminal and on pages."""

from typing import Final

LOOKS: Final = {
    "PASS": ("\u2713", "green"),
    "FAIL": ("\u2717", "red"),
    "ERROR": ("!", "magenta"),
    "SKIP": ("\u2013", "cyan"),
    "INVALID": ("\u2298", "magenta"),
    "INCONCLUSIVE": ("?", "yellow"),
    "SAFE": ("\u2713", "green"),
    "LOSES DATA": ("\u2717", "red"),
    "NOT SHOWN": ("?", "yellow"),
}
"""For each verdict the sign before its word in HTML, for readers without colour vision, and its terminal colour."""
NO_VERDICT: Final = "cyan"
"""Terminal colour of a word that is no verdict, such as the state of a run without an outcome."""


def colour_of(word: str) -> str:
    """Return the terminal colour of a verdict or of another word."""
    return LOOKS[word][1] if word in LOOKS else NO_VERDICT
