"""A reader of TOML files, such as those in ``vms/``; the recipes of images, raidproof's or a user's."""

import io
import tarfile
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.core.toml import read_toml
from raidproof.core.units import Size

VMS = Path(__file__).resolve().parents[1] / "vms"
"""The folder with the sources of images, kernels and boxes."""

R = TypeVar("R", bound="Recipe")

RECIPES = VMS / "images"
FOLDERS_RECIPE = "recipe.toml"
"""The name of the recipe's file in a user's folder."""
FIRST = "guest"
"""The recipe that all others extend: the files and programs that every guest needs."""


class Recipe(BaseModel):
    """The base class of the models of TOML files; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read(path: Path, model: type[R]) -> R:
    """Return the content of a TOML file, validated as a ``model``.

    Raises:
        RequestError: the file cannot be read, is not TOML, or has an invalid key or value.
    """
    return validated(path, read_toml(path), model)


def validated(path: Path, declared: dict[str, Any], model: type[R]) -> R:
    """Return the content of a file, validated as a ``model``; ``path`` is the file's name for messages.

    Raises:
        RequestError: a key or value is invalid; the message names the file and the first invalid key.
    """
    try:
        return model.model_validate(declared)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestError(": ".join([str(path), *([where] if where else []), first["msg"]])) from error


class GuestFile(Recipe):
    """The destination of a file that is copied into an image."""

    to: str = Field(pattern=r"^[^/].*$")
    """The path of the file in the image, without the leading slash."""
    mode: int = Field(ge=0, le=0o777)
    """The permission bits of the file in the image."""


class ImageRecipe(Recipe):
    """The inputs of an image, including the inputs of the recipes that its recipe extends."""

    suite: str | None = None
    """The Debian suite of the packages; None: the root file system is ``root``."""
    components: tuple[str, ...] = ()
    """The components of the suite from which packages are installed, in addition to ``main``."""
    root: Path | None = None
    """The path of a tar archive of a root file system; None: the root file system is made from ``suite``."""
    size: Size
    """The size of the image's file system in bytes."""
    packages: tuple[str, ...] = ()
    """The names of the Debian packages to install, in addition to the essential ones."""
    programs: tuple[str, ...]
    """The programs that the image must contain; a build without one of them fails."""
    files: dict[Path, GuestFile]
    """The files to copy into the image, by their paths on this host."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.suite is None) == (self.root is None):
            raise ValueError("give either suite (a Debian suite) or root (a tar archive)")
        if self.root is not None and self.packages:
            raise ValueError("packages can only be added to a suite, not to a root")
        for file in (*self.files, *([self.root] if self.root else [])):
            if not file.is_file():
                raise ValueError(f"there is no file {file}")
        return self

    def content(self) -> bytes:
        """Return the files as a tar archive with their paths in the image; paths on this host do not change it."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path, file in sorted(self.files.items(), key=lambda item: item[1].to):
                content = path.read_bytes()
                member = tarfile.TarInfo(file.to)
                member.size, member.mode = len(content), file.mode
                archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()


def names() -> list[str]:
    """Return the names of the images whose recipes are in ``vms/images``."""
    return sorted(path.relative_to(RECIPES).with_suffix("").as_posix() for path in RECIPES.glob("*/*.toml"))


def find(asked: str) -> Path:
    """Return the path of a recipe; ``asked`` is the name of an image in ``vms/images``, or a user's folder.

    Raises:
        RequestError: there is neither an image nor a folder of this name, or the folder has no recipe.toml.
    """
    if asked in names():
        return RECIPES / f"{asked}.toml"
    folder = Path(asked).expanduser()
    if folder.is_dir():
        if (folder / FOLDERS_RECIPE).is_file():
            return folder / FOLDERS_RECIPE
        raise RequestError(f"the folder {asked} has no {FOLDERS_RECIPE}", remedy="docs/images.md shows a recipe")
    raise RequestError(f"{asked!r} is neither an image nor a folder with a recipe: {nearest(asked, names())}")


def load(path: Path) -> ImageRecipe:
    """Return a recipe, merged with the recipes that it extends.

    Raises:
        RequestError: one of the files is invalid; the message names the file and the key.
    """
    return validated(path, _merged(path, ()), ImageRecipe)


def _merged(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    """Return the tables of a recipe, merged with those of the recipes that it extends.

    Lists and tables of both recipes are joined; any other value replaces the value in the extended recipe.
    """
    own = read_toml(path)
    home = path.resolve().parent
    if isinstance(files := own.get("files", {}), dict):
        own["files"] = {str((home / name).resolve()): file for name, file in files.items()}
    if isinstance(root := own.get("root"), str):
        own["root"] = str(home / Path(root).expanduser())
    extends = own.pop("extends", None if path == RECIPES / f"{FIRST}.toml" else FIRST)
    if extends is None:
        return own
    first = RECIPES / f"{extends}.toml"
    if not first.is_file() or path in below:
        lists = [file.relative_to(RECIPES).with_suffix("").as_posix() for file in RECIPES.rglob("*.toml")]
        raise RequestError(f"{path}: extends: {nearest(str(extends), lists)}")
    merged = _merged(first, (*below, path))
    if "suite" in own or "root" in own:
        # A recipe has one origin: its own suite or root replaces that of the extended recipe.
        merged.pop("suite", None)
        merged.pop("root", None)
    for key, value in own.items():
        before = merged.get(key)
        if isinstance(value, list) and isinstance(before, list):
            merged[key] = [*before, *(word for word in value if word not in before)]
        elif isinstance(value, dict) and isinstance(before, dict):
            merged[key] = {**before, **value}
        else:
            merged[key] = value
    return merged
