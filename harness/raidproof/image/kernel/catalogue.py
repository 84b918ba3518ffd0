"""Which kernels there are by name: ``vms/kernels.toml``."""

from raidproof.core.errors import RequestError, nearest
from raidproof.image import recipe


class KernelRecipe(recipe.Recipe):
    """A suite's kernels as declared; series and arguments are those of its User-mode Linux."""

    suite: str
    series: str
    arguments: tuple[str, ...] = ()


class Catalogue(recipe.Recipe):
    """``vms/kernels.toml``."""

    default: str
    default_flavour: str
    flavours: dict[str, str]
    """The metapackage of each flavour of Debian's kernels for PCs."""
    kernels: dict[str, KernelRecipe]


CATALOGUE = recipe.read(recipe.VMS / "kernels.toml", Catalogue)
DEFAULT = CATALOGUE.default


def user_mode(name: str) -> KernelRecipe:
    """Return the User-mode kernel of this name.

    Raises:
        RequestError: there is none.
    """
    if name not in CATALOGUE.kernels:
        raise RequestError(f"no kernel {name!r} for User-mode Linux: {nearest(name, CATALOGUE.kernels)}")
    return CATALOGUE.kernels[name]


def metapackage(name: str) -> tuple[str, str]:
    """Return the suite and the metapackage of a kernel for PCs, by ``debian/SUITE`` or ``debian/SUITE/FLAVOUR``.

    Raises:
        RequestError: there is none.
    """
    known = {
        label: (declared.suite, package)
        for suite, declared in CATALOGUE.kernels.items()
        for flavour, package in CATALOGUE.flavours.items()
        for label in ([suite] if flavour == CATALOGUE.default_flavour else []) + [f"{suite}/{flavour}"]
    }
    if name not in known:
        raise RequestError(
            f"no kernel {name!r}: {nearest(name, known)}; or the path of a .deb or of a bzImage, with a slash in it"
        )
    return known[name]
