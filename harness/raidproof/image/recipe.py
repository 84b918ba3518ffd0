"""The declarations in ``vms/``: kernels, images, and the recipe of an image, raidproof's or a user's."""

import io
import tarfile
import tomllib
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from raidproof.core.errors import RequestError, nearest
from raidproof.core.units import Size

VMS = Path(__file__).resolve().parents[1] / "vms"

R = TypeVar("R", bound="Recipe")

RECIPES = VMS / "images"
FOLDERS_RECIPE = "recipe.toml"
FIRST = "guest"
"""The root of all recipes: the files and programs that every guest needs."""


class Recipe(BaseModel):
    """A declaration in a TOML file; an unknown key in it is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read(path: Path, model: type[R]) -> R:
    """Read a TOML file and validate it as a ``model``.

    Raises:
        RequestError: the file cannot be read or is invalid; the message names the file and the key.
    """
    return validated(path, tables(path), model)


def tables(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        RequestError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise RequestError(f"{path}: {error}") from error


def validated(path: Path, declared: dict[str, Any], model: type[R]) -> R:
    """Return the validated content of a file.

    Raises:
        RequestError: it is invalid; says where.
    """
    try:
        return model.model_validate(declared)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestError(": ".join([str(path), *([where] if where else []), first["msg"]])) from error


class GuestFile(Recipe):
    """The destination of a file in the guest."""

    to: str = Field(pattern=r"^[^/].*$")
    """Its path from the guest's root, without the leading slash."""
    mode: int = Field(ge=0, le=0o777)


class ImageRecipe(Recipe):
    """The inputs of an image, including those of the recipes that it extends."""

    suite: str | None = None
    """The Debian suite of its packages; or else ``root``."""
    root: Path | None = None
    """A tar archive of a whole root, relative to the recipe."""
    size: Size
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...]
    """Programs that the image must contain."""
    files: dict[Path, GuestFile]
    """By their paths on this host."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.suite is None) == (self.root is None):
            raise ValueError("give either suite (of Debian) or root (a tar archive)")
        if self.root is not None and self.packages:
            raise ValueError("packages are chosen from a suite; a root has what it has")
        for file in (*self.files, *([self.root] if self.root else [])):
            if not file.is_file():
                raise ValueError(f"there is no file {file}")
        return self

    def content(self) -> bytes:
        """Return the files for the tree, as a tar archive that does not depend on their location."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path, file in sorted(self.files.items(), key=lambda item: item[1].to):
                content = path.read_bytes()
                member = tarfile.TarInfo(file.to)
                member.size, member.mode = len(content), file.mode
                archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()


def names() -> list[str]:
    """Return the images with a recipe of raidproof."""
    return sorted(path.relative_to(RECIPES).with_suffix("").as_posix() for path in RECIPES.glob("*/*.toml"))


def find(asked: str) -> Path:
    """Return the recipe of an image by its name, or by the path of its folder.

    Raises:
        RequestError: there is none.
    """
    if asked in names():
        return RECIPES / f"{asked}.toml"
    folder = Path(asked).expanduser()
    if folder.is_dir():
        if (folder / FOLDERS_RECIPE).is_file():
            return folder / FOLDERS_RECIPE
        raise RequestError(f"the folder {asked} holds no {FOLDERS_RECIPE}", remedy="docs/images.md has an example")
    raise RequestError(f"no image {asked!r}, and no such folder: {nearest(asked, names())}")


def load(path: Path) -> ImageRecipe:
    """Read a recipe together with those that it extends.

    Raises:
        RequestError: one of the files is invalid; says which and where.
    """
    return validated(path, _merged(path, ()), ImageRecipe)


def _merged(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    """Return the merged tables of a recipe and those that it extends: join lists and tables, replace others."""
    own = tables(path)
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
        # The recipe's own origin replaces the extended one's.
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
