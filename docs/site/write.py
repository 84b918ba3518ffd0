"""Write everything in docs/ that is made from the code: reference pages, the manual page, the output of commands.

`python docs/site/write.py`; tests compare the stored files with what this program writes.
"""

import typer

import site_links
import site_output
import site_reference
from raidproof.cli.main import app
from raidproof.cli.reference import man

MAN = site_links.DOCS / "man" / "raidproof.1"
"""The manual page, which a wheel has in share/man/man1."""


def main() -> None:
    """Write all files."""
    for name, text in site_reference.pages().items():
        (site_links.DOCS / name).write_text(text)
    MAN.write_text(man.page(typer.main.get_command(app)))
    site_output.write()


if __name__ == "__main__":
    main()
