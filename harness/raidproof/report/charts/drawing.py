"""What all charts share: Altair, the programs that draw in a browser, colours, shapes and fonts.

Colours are variables of the page's style sheet, so that light, dark and printed pages need no second drawing. They
derive from the palette of Okabe and Ito (2008), which readers with any kind of colour vision can tell apart.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from raidproof.core.errors import RequirementMissing, RigError
from raidproof.image import cache as artefacts
from raidproof.report.charts.figure import Specification, packed

INK, SOFT, LINE, CARD = "var(--ink)", "var(--soft)", "var(--line)", "var(--card)"
BLUE, ORANGE, GREEN, PURPLE = "var(--c-blue)", "var(--c-orange)", "var(--c-green)", "var(--c-purple)"
SKY, YELLOW = "var(--c-sky)", "var(--c-yellow)"
SAFETY = {"SAFE": (GREEN, "circle"), "LOSES DATA": (ORANGE, "cross"), "NOT SHOWN": (PURPLE, "diamond")}
"""Colour and shape of each safety verdict."""
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW)
"""Colours of lines, in order."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3])
"""Dashes of lines, in the order of `SERIES`."""
MAX_LINEAR_SPAN = 50.0
"""Ratio of the largest to the smallest positive value above which an axis becomes logarithmic."""

_SNIPPET = "window.vegaEmbed=vegaEmbed;"
"""The program that vl-convert bundles with what it imports."""
_SCRIPT = "script"
"""Name of the file in the cache."""


@cache
def library() -> Any:
    """Return the module Altair, which takes about a second to import."""
    import altair  # noqa: PLC0415

    return altair


@cache
def script() -> str:
    """Return the JavaScript of Vega and Vega-Lite, which draws specifications in a browser; see `packed`.

    It takes seconds to make, and is the same for each version of vl-convert: the cache keeps it, if it can be written.
    """
    made_for = artefacts.digest(version("vl-convert-python"), _SNIPPET)
    try:
        return (artefacts.build("charts", made_for, _write_script) / _SCRIPT).read_text()
    except (RequirementMissing, RigError):
        return _make_script()


def _write_script(folder: Path) -> None:
    (folder / _SCRIPT).write_text(_make_script())


def _make_script() -> str:
    import vl_convert  # noqa: PLC0415

    # Vega-Embed is the only one of the bundle's three names that is not null (vl-convert 1.9 with Vega 6).
    return packed(f"(() => {{{vl_convert.javascript_bundle(_SNIPPET)}}})();")


def finished(chart: Any, height: Any) -> Specification:
    """Return the Vega-Lite specification of an Altair chart in the style of the pages.

    ``height``: in pixels, or ``{"step": PIXELS}`` for each row. The page sets the width.
    """
    specification: dict[str, Any] = chart.properties(height=height).to_dict()
    specification.pop("$schema", None)
    specification["autosize"] = {"type": "fit-x", "contains": "padding"}
    specification["config"] = CONFIG
    return specification


def marks_by(field: str, looks: Mapping[Any, tuple[str, str]]) -> tuple[Any, Any]:
    """Return the encodings of colour and of shape by a field; ``looks``: colour and shape of each of its values."""
    alt, words = library(), [str(word) for word in looks]
    colours, shapes = zip(*looks.values(), strict=True)
    return (
        alt.Color(f"{field}:N", title=None, scale=alt.Scale(domain=words, range=list(colours))),
        alt.Shape(f"{field}:N", title=None, scale=alt.Scale(domain=words, range=list(shapes))),
    )


def spread_scale(values: Sequence[float]) -> dict[str, Any]:
    """Return the settings of a scale from 0: logarithmic above the smallest value if the values span a wide range."""
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) > MAX_LINEAR_SPAN:
        return {"type": "symlog", "constant": float(f"{min(positive):.1g}"), "zero": True, "nice": True}
    return {"type": "linear", "zero": True, "nice": True}


CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT,
        "titleColor": SOFT,
        "gridColor": LINE,
        "domainColor": SOFT,
        "tickColor": SOFT,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelOverlap": True,
    },
    "axisQuantitative": {"tickCount": 6},
    "legend": {
        "labelColor": INK,
        "titleColor": SOFT,
        "labelFontSize": {"expr": "width < 280 ? 10.5 : 12"},
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "bottom",
        "labelLimit": 320,
        "columns": {"expr": "width < 420 ? 1 : 3"},
        "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
        "symbolStrokeWidth": 2,
        "symbolSize": 90,
    },
    "text": {"color": INK, "fontSize": 12},
    "rule": {"color": SOFT},
    "point": {"size": 60, "strokeWidth": 2},
}
"""Configuration of all specifications."""
NAMES: dict[str, Any] = {
    "title": None,
    "labelAlign": "left",
    "labelBaseline": "bottom",
    "labelPadding": -2,
    "labelOffset": -6,
    "labelColor": INK,
    "labelLimit": {"expr": "width"},
    "domain": False,
    "ticks": False,
    "grid": False,
    "zindex": 1,
    "labelOverlap": False,
}
"""Settings of a vertical axis with names of rows: each name stands above its row, so that it needs no width."""
