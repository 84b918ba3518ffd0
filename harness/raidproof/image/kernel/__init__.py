"""The kernels that a machine can run. A name means the kernel of a Debian suite that the provider can boot."""

from pathlib import Path

from raidproof.core.errors import RequestError
from raidproof.image.kernel import pc, uml
from raidproof.image.kernel.catalogue import CATALOGUE, DEFAULT, Kernel

__all__ = ["CATALOGUE", "DEFAULT", "Kernel", "get", "is_path"]

USER_MODE = "uml"
"""The only provider that boots kernels of the architecture um."""


def get(name: str | None = None, *, modules: str | None = None, provider: str = USER_MODE) -> Kernel:
    """Return a kernel that a provider can boot; fetch and prepare it if needed.

    ``name`` is a name of the catalogue (None: its default). For a PC it may also be the path of a linux-image ``.deb``
    or of a bzImage, whose modules are in the folder ``modules``. For User-mode Linux ``modules`` is a folder of
    modules that replace the kernel's own.

    Raises:
        RequestError: there is no such kernel, or the provider cannot boot it.
        RequirementMissing: a host tool is missing.
        RigError: it could not be fetched, or does not run here.
    """
    name = name or DEFAULT
    if provider == USER_MODE:
        if is_path(name):
            raise RequestError(f"User-mode Linux cannot boot {name}", remedy="a kernel of one's own runs on qemu")
        return uml.get(name, modules)
    if is_path(name):
        return pc.get(Path(name).expanduser(), modules)
    if modules is not None:
        raise RequestError(f"modules beside {name!r}, which has its own", remedy="leave out the modules")
    return pc.named(name)


def is_path(name: str) -> bool:
    """Return whether this is the path of a file, not a name of the catalogue."""
    return name.startswith(("/", "./", "../", "~")) or name.endswith(".deb") or Path(name).is_file()
