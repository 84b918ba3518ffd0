"""CITATION.cff and SECURITY.md agree with the project."""

import re
import tomllib
from pathlib import Path

import yaml

HOME = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
REQUIRED = {"cff-version", "message", "title", "authors"}
"""Keys that version 1.2.0 of the Citation File Format requires."""
ALLOWED = REQUIRED | {
    *("abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url"),
    *("preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url"),
    "version",
}
"""Keys that it permits."""
AUTHOR = {"name", "family-names", "given-names", "orcid", "website"}


def test_the_citation_is_valid() -> None:
    citation = yaml.safe_load((HOME / "CITATION.cff").read_text())
    assert set(citation) >= REQUIRED
    assert set(citation) <= ALLOWED
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in {"software", "dataset"}
    assert citation["authors"]
    assert all(set(author) <= AUTHOR for author in citation["authors"])
    assert all(isinstance(word, str) for word in citation["keywords"])


def test_the_citation_agrees_with_the_project() -> None:
    citation = yaml.safe_load((HOME / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_readme_begins_with_what_for_whom_and_the_command() -> None:
    begin = (HOME / "README.md").read_text().partition("\n## ")[0].splitlines()
    assert len(begin) <= 24
    assert any("It is for" in line for line in begin)
    assert any(re.fullmatch(r" {4}\./raidproof demo", line) for line in begin)


def test_the_readme_is_short() -> None:
    assert len((HOME / "README.md").read_text().splitlines()) <= 150
