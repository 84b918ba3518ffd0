"""The site of the documents: each page is in the navigation, and each link has a target."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mkdocs.config.defaults import MkDocsConfig

import hooks
import site_links
import site_reference
from raidproof.cli.main import ORDER

HOME = Path(__file__).resolve().parents[2]
PAGES = site_reference.pages()
SITE = HOME / "docs" / "site"


def build(home: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder with the documents."""
    path = os.pathsep.join(map(str, (HOME / "harness", HOME / "scenarios" / "suites")))
    environment = {**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    config = home / "docs" / "site" / "mkdocs.yml"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(target)]
    return subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, check=False)


def small_home(tmp_path: Path, page: str) -> Path:
    """Return a copy of what the site reads, with short documents; ``page``: the text of the README."""
    home = tmp_path / "home"
    shutil.copytree(SITE, home / "docs" / "site", ignore=shutil.ignore_patterns("__pycache__"))
    config = yaml.safe_load((SITE / "mkdocs.yml").read_text())
    config["plugins"], config["theme"] = [], "mkdocs"
    (home / "docs" / "glossary.md").write_text("# Words\n")
    (home / "README.md").write_text(page)
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        (home / name).write_text(f"# {name}\n")
    config["nav"] = [{"How-to guides": ["index.md", "contributing.md", "security.md", "changelog.md"]}]
    (home / "docs" / "site" / "mkdocs.yml").write_text(yaml.safe_dump(config))
    return home


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("# A\n\n[words](docs/glossary.md#words), [this](CONTRIBUTING.md)\n", ""),
        ("# A\n\n[no page](docs/no-such.md)\n", "docs/no-such.md"),
        ("# A\n\n[no anchor](docs/glossary.md#no-such)\n", "no-such"),
        ("# A\n\n[no anchor here](#no-such)\n", "no-such"),
    ],
)
def test_a_link_without_a_target_stops_the_build(tmp_path: Path, page: str, said: str) -> None:
    ended = build(small_home(tmp_path, page), tmp_path / "site")
    assert (ended.returncode == 0) == (not said), ended.stderr
    assert said in ended.stderr


def test_every_page_is_in_the_navigation_once() -> None:
    config = yaml.safe_load((SITE / "mkdocs.yml").read_text())
    listed = hooks.listed(config["nav"])
    assert len(listed) == len(set(listed))
    pages = {path.name for path in site_links.DOCS.glob("*.md")}
    made = set(site_links.TOP_LEVEL.values())
    assert set(listed) <= pages | made
    assert made | set(PAGES) <= set(listed)


def test_a_page_that_is_not_listed_is_a_guide() -> None:
    config = MkDocsConfig()
    config.nav = [{"Tutorial": ["tutorial.md"]}, {"How-to guides": ["plans.md"]}]
    nav = hooks.on_config(config).nav
    assert nav is not None
    assert "glossary.md" in nav[1]["How-to guides"]
    assert nav[1]["How-to guides"].count("plans.md") == 1


def test_the_site_needs_no_other_host() -> None:
    config = yaml.safe_load((SITE / "mkdocs.yml").read_text())
    assert config["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript"} & set(config)


def test_links_of_documents_become_links_of_the_site() -> None:
    text = "[a](docs/plans.md#x) [b](tox.ini) [c](scenarios/) [d](https://e.f/g) [h](#i) [j](docs/none.md)"
    assert site_links.for_site(text, HOME) == (
        "[a](plans.md#x) [b](files/tox.ini.txt) c [d](https://e.f/g) [h](#i) [j](docs/none.md)"
    )
    code = "```\n[a](docs/plans.md)\n```\n"
    assert site_links.for_site(code, HOME) == code
    assert list(site_links.copied({HOME / "README.md": "[b](tox.ini)"})) == ["files/tox.ini.txt"]


@pytest.mark.parametrize("name", PAGES)
def test_the_stored_page_is_made_from_the_code(name: str) -> None:
    assert (site_links.DOCS / name).read_text() == PAGES[name], "run python docs/site/write.py"


def test_the_reference_has_every_command_fixture_and_fault() -> None:
    for name in ORDER:
        assert f"\n## {name}" in PAGES["reference-commands.md"]
        assert f"\n| [`{name}`](#{name}) | " in PAGES["reference-commands.md"]
    for name in ("cycle", "explore", "lab", "measure", "stack_of"):
        assert f"\n## {name}\n" in PAGES["reference-fixtures.md"]
    assert "| `rebuilding` | `Rebuilding(serial: str, " in PAGES["reference-fixtures.md"]
    assert "| `--exhaustive` |" in PAGES["reference-fixtures.md"]
    assert "| `level` |" in PAGES["reference-plan.md"]
    assert "### CellRecord" in PAGES["reference-records.md"]
    assert "## Provider hosts\n\n* " in PAGES["reference-limits.md"]


def test_a_table_cell_is_one_line_without_bars() -> None:
    assert site_reference.cell("a | b\nc <d>") == "a \\| b c &lt;d>"
    assert site_reference.kind({"enum": ["5", 5, "6"]}) == "`5`, `6`"
    assert site_reference.kind({"type": "array", "items": {"$ref": "#/$defs/Disk"}}) == "list of [Disk](#disk)"


def test_a_picture_of_the_readme_is_a_picture_of_the_site() -> None:
    text = "![First screen.](docs/report.png) and [the plans](docs/plans.md)"
    assert site_links.for_site(text, site_links.HOME) == "![First screen.](report.png) and [the plans](plans.md)"
