"""The output of commands in the documents is what the commands print."""

from pathlib import Path

import pytest

import site_output


@pytest.mark.parametrize("path", site_output.PAGES, ids=lambda path: path.stem)
def test_the_captured_output_is_current(path: Path, tmp_path: Path) -> None:
    page = path.read_text()
    site_output.prepare(tmp_path, page)
    printed = {words: site_output.output(words, tmp_path) for _, words, _, _ in site_output.BLOCK.findall(page)}
    assert printed
    for _, words, shown, _ in site_output.BLOCK.findall(page):
        assert shown == printed[words], "run python docs/site/write.py"


def test_other_output_is_written_again() -> None:
    page = "<!-- output of: ls -->\n\n```text\nold\n```\n\nmore\n"
    assert site_output.renewed(page, lambda words: f"new {words}\n") == page.replace("old", "new ls")
