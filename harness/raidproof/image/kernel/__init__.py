"""The kernels that machines boot: those of Debian suites, or the user's own; built for PCs or for User-mode Linux."""

from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.image.kernel import own, pc, uml
from raidproof.image.kernel.catalogue import CATALOGUE, DEFAULT, Kernel

__all__ = ["CATALOGUE", "DEFAULT", "Kernel", "get", "is_path"]

USER_MODE = "uml"
"""The name of the provider whose kernels have the architecture um; all others boot kernels for PCs."""


def get(name: str | None = None, *, modules: str | None = None, provider: str = USER_MODE) -> Kernel:
    """Return a kernel that a provider can boot; fetch and prepare the kernel if the cache lacks it.

    ``name`` is a name in the catalogue (None: the default). For a PC ``name`` may also be the path of a linux-image
    ``.deb``, or of a bzImage, whose modules are in the folder ``modules``. For User-mode Linux it may be a folder that
    `kernel build` made, or the path of a binary, whose modules are in the folder ``modules``; with a kernel that has
    its modules, those in ``modules`` replace the kernel's own.

    Raises:
        RequestError: the kernel does not exist, or the provider cannot boot it.
        RequirementMissing: this host lacks a program for preparing the kernel.
        RigError: the kernel cannot be fetched, or a User-mode kernel does not run on this host.
    """
    name = name or DEFAULT
    if provider == USER_MODE:
        return own.get(Path(name).expanduser(), modules) if is_path(name) else uml.get(name, modules)
    if is_path(name):
        return pc.get(Path(name).expanduser(), modules)
    if modules is not None:
        raise RequestError(
            f"kernel {name!r} has its own modules, which the folder {modules} cannot replace",
            remedy=f"leave out modules={modules}",
        )
    return pc.named(name)


def is_path(name: str) -> bool:
    """Return whether ``name`` is the path of a kernel's file or of a folder that `kernel build` made."""
    if name.startswith(("/", "./", "../", "~")) or name.endswith(".deb"):
        return True
    return Path(name).is_file() or (Path(name) / own.DESCRIPTION).is_file()
