"""The options that choose provider and software, on the command line and in pytest."""

from pathlib import Path
from typing import NamedTuple

RESULTS = Path("results")
"""Default directory of stored runs."""
STATES = 60
"""Default number of directed crash states that are checked after a crash test."""


class Option(NamedTuple):
    """An option that chooses provider or software, on the command line and in pytest."""

    name: str
    metavar: str
    help: str
    repeated: bool = False
    """Whether the option may be given several times."""


OPTIONS = (
    Option("provider", "NAME", "Provider of the machines: uml, qemu, vagrant, hosts, or auto."),
    Option("inventory", "FILE", "Inventory file of the machines of provider hosts."),
    Option("kernel", "NAME", "Kernel of the machines: debian/sid, or the path of a .deb, bzImage or User-mode Linux."),
    Option(
        "modules",
        "DIR",
        "Folder of modules of a kernel's file; with provider uml, modules that replace a kernel's own.",
    ),
    Option("image", "NAME", "User space of the machines: debian/trixie, or the folder of a recipe."),
    Option("package", "DEB", "Package file that replaces the image's version; may be repeated.", repeated=True),
    Option(
        "server",
        "KEY=VALUE",
        "Different software of the server: kernel=..., image=..., PACKAGE=...deb.",
        repeated=True,
    ),
    Option("clients", "KEY=VALUE", "Different software of the clients; keys as for --server.", repeated=True),
)
