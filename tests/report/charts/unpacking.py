"""The data of a page's charts, as the page's script reads them."""

import base64
import gzip
import json
import re
from typing import Any


def unpacked(page: str) -> dict[str, Any]:
    """Return specifications, data (as rows) and parts of a page."""
    found = re.search(r'id="figures">([^<]*)<', page)
    assert found is not None
    content: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    content["data"] = {
        name: [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        for name, table in content["data"].items()
    }
    return content
