"""A chart on a page, and all charts of a page with their data, which the page contains once."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""One row of a chart's data: JSON values by name of the column."""
Specification = Mapping[str, Any]
"""A Vega-Lite specification whose data have a name; the page fills in the rows."""


@dataclass(frozen=True)
class Chart:
    """One chart on a page: a specification with the rows that it draws."""

    id: str
    """HTML id of the chart."""
    drawn_as: str
    """Name of the specification, which several charts can share."""
    title: str
    description: str
    """Text alternative for the chart."""
    where: Row = field(default_factory=dict)
    """The chart draws the rows of its data with these values."""
    params: Row = field(default_factory=dict)
    """Values of the specification's parameters: limits of axes, which make several charts comparable."""
    filtered: bool = False
    """Whether the chart draws only the cells that the page's filter shows."""

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the chart's HTML element, which the page's script reads."""
        return {
            "id": self.id,
            "data-spec": self.drawn_as,
            "data-where": json.dumps(dict(self.where)),
            "data-params": json.dumps(dict(self.params)),
            **({"data-filtered": "yes"} if self.filtered else {}),
        }


@dataclass
class Figures:
    """The specifications and the data of all charts of a page, and parts of the page that are shown on demand."""

    specifications: dict[str, Specification] = field(default_factory=dict)
    """Specifications by name."""
    data: dict[str, list[Row]] = field(default_factory=dict)
    """Rows by the name of the data in the specifications."""
    parts: dict[str, str] = field(default_factory=dict)
    """HTML by the id of the element that shows it when a reader opens the element."""

    def hold(self, name: str, rows: Sequence[Row]) -> None:
        """Add rows of data; several specifications can draw them."""
        self.data[name] = list(rows)

    def keep(self, id_: str, html: str) -> str:
        """Keep a part of the page until a reader opens the element with this id; return an empty text."""
        self.parts[id_] = str(html)
        return ""

    def packed(self) -> str:
        """Return everything as JSON, compressed with gzip, as base64; rows of data are stored by column."""
        content = {
            "specs": self.specifications,
            "data": {name: by_column(rows) for name, rows in self.data.items()},
            "parts": self.parts,
        }
        return packed(json.dumps(content, separators=(",", ":"), allow_nan=False))


def packed(text: str) -> str:
    """Return a text compressed with gzip, as base64, which can stand in a page."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def by_column(rows: Sequence[Row]) -> dict[str, Any]:
    """Return rows as a list of the names of the columns, and a list of values for each row."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": names, "rows": [[rounded(row.get(name)) for name in names] for row in rows]}


def rounded(value: Any) -> Any:
    """Return a value with at most seven significant digits, so that the page is small."""
    return float(f"{value:.7g}") if isinstance(value, float) else value
