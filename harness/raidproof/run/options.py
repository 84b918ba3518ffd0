"""What every command that makes machines is asked alike, as options of the command line and of pytest."""

from typing import NamedTuple


class Option(NamedTuple):
    """An option of the command line and of pytest."""

    name: str
    metavar: str
    help: str
    repeated: bool = False


OPTIONS = (
    Option("provider", "NAME", "How the machines come to be: uml, qemu, vagrant, hosts, or auto."),
    Option("inventory", "FILE", "The machines of provider hosts."),
    Option("kernel", "NAME", "What the machines boot: debian/sid, or the path of a .deb or bzImage."),
    Option("modules", "DIR", "The modules of a bzImage; on uml, modules in place of the kernel's own."),
    Option("image", "NAME", "The machines' user space: debian/trixie, or a recipe's folder."),
    Option("package", "DEB", "A package to put in place of the image's own; may be repeated.", repeated=True),
    Option("server", "KEY=VALUE", "Where the server differs: kernel=..., image=..., PACKAGE=...deb.", repeated=True),
    Option("clients", "KEY=VALUE", "Where the clients differ.", repeated=True),
)
