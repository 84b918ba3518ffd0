"""The hooks of MkDocs: documents outside of docs/, and pages that the navigation does not list."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import site_links

GUIDES = "How-to guides"
"""Section of the pages that mkdocs.yml does not list."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that mkdocs.yml does not list to the navigation."""
    nav: list[Any] = config.nav or []
    known = set(listed(nav))
    unlisted = sorted(path.name for path in site_links.DOCS.glob("*.md") if path.name not in known)
    for part in nav:
        if isinstance(part, dict) and GUIDES in part:
            part[GUIDES] = [*part[GUIDES], *unlisted]
    return config


def listed(nav: Any) -> list[str]:
    """Return the names of the pages in a part of a navigation."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [name for part in parts for name in listed(part)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside of docs/, and the files that documents link to."""
    documents = [*site_links.DOCS.glob("*.md"), *(site_links.HOME / name for name in site_links.TOP_LEVEL)]
    for path, target in site_links.copied({one: one.read_text() for one in documents}).items():
        files.append(File.generated(config, path, content=target.read_text()))
    for name, page in site_links.TOP_LEVEL.items():
        text = site_links.for_site((site_links.HOME / name).read_text(), site_links.HOME)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Return the text of a page of docs/ with the links of the site."""
    source = page.file.abs_src_path
    return markdown if source is None else site_links.for_site(markdown, Path(source).parent)
