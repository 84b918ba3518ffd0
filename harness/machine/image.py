"""The user space of the machines: built once from a declared recipe, and read-only ever after."""

import io
import json
import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from harness import command
from harness.errors import RequestError, RequirementMissing, nearest
from harness.log import step
from harness.machine import apt, cache, program, recipe
from harness.units import MIB, Size

DEFAULT = "debian/trixie"
RECIPES = recipe.VMS / "images"
FINISH = RECIPES / "finish"
BUILD_DEADLINE_S = 1500.0
ROOM_BYTES = 900 * MIB
"""What a build needs in its working folder: the packages, the tree, and the image beside it."""
PHASES = {
    "running apt-get update": "fetching the list of packages",
    "downloading packages": "downloading packages",
    "extracting archives": "extracting",
    "installing essential": "installing the essential packages",
    "installing remaining": "installing the other packages",
    "running --customize-hook": "making the file system",
}
"""What mmdebstrap says as it goes on, and what we show."""


class GuestFile(recipe.Recipe):
    """Where a file of ours goes in the guest."""

    to: str
    mode: int


class ImageRecipe(recipe.Recipe):
    """What an image is made from."""

    suite: str
    size: Size
    packages: tuple[str, ...] = Field(min_length=1)
    files: dict[str, GuestFile]


@dataclass(frozen=True)
class Image:
    """An image that is ready to be a machine's root, below a copy-on-write file."""

    name: str
    path: Path
    packages: dict[str, str]
    """The installed versions by package."""


def names() -> list[str]:
    """Return the images that have a recipe."""
    return sorted(path.stem.replace("-", "/", 1) for path in RECIPES.glob("*.toml"))


def get(name: str = DEFAULT) -> Image:
    """Return an image; build it where that is yet to be done.

    Raises:
        RequestError: there is no recipe of this name.
        RequirementMissing: a host tool is missing.
        RigError: it could not be built: the network, the mirror, a full disk; says which.
    """
    if name not in names():
        raise RequestError(f"no image {name!r}: {nearest(name, names())}")
    path = RECIPES / f"{name.replace('/', '-')}.toml"
    declared = recipe.read(path, ImageRecipe)
    folder = cache.build("image", address(declared), lambda partial: _build(declared, partial))
    packages = json.loads((folder / "packages.json").read_text())
    return Image(name, folder / "root.ext4", packages)


def address(declared: ImageRecipe) -> str:
    """Return the content address: the recipe, our own files in it, and the tools that build it."""
    return cache.digest(
        declared.model_dump_json(),
        *(part for name in sorted(declared.files) for part in (name, (recipe.VMS / name).read_bytes())),
        FINISH.read_bytes(),
        *tool_versions(),
    )


def tool_versions() -> tuple[str, str]:
    """Return the versions of what makes the tree and what makes the image of it."""
    return command.succeed(["mmdebstrap", "--version"]), command.run(["mkfs.ext4", "-V"]).stderr


def guest_archive(declared: ImageRecipe) -> bytes:
    """Return our own files as they go into the tree, with the last hook among them.

    The hook travels in the tree because an unprivileged build cannot read the user's home folder.
    """
    buffer = io.BytesIO()
    hook = {"images/finish": GuestFile(to="finish", mode=0o755)}
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, file in {**declared.files, **hook}.items():
            content = (recipe.VMS / name).read_bytes()
            member = tarfile.TarInfo(file.to)
            member.size, member.mode = len(content), file.mode
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def mmdebstrap_command(declared: ImageRecipe, source: apt.Source, archive: Path, options: Path) -> list[str]:
    """Return the command that makes the tree and, by its last hook, the image."""
    excluded = ("doc", "man", "info", "locale", "zoneinfo")
    return [
        "mmdebstrap",
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=minbase",
        "--format=null",
        "--architectures=amd64",
        f"--include={','.join(declared.packages)}",
        f"--aptopt={options}",
        '--aptopt=Apt::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in excluded),
        f'--customize-hook=tar-in "{archive}" /',
        '--customize-hook="$1/finish" "$1"',
        declared.suite,
        "/dev/null",
        source.line,
    ]


def _build(declared: ImageRecipe, partial: Path) -> None:
    step(f"building the guest image from Debian {declared.suite}")
    scratch = _scratch(partial)
    archive, options = scratch / "guest.tar", scratch / "apt.conf"
    archive.write_bytes(guest_archive(declared))
    options.write_text("\n".join(apt.acquire_options()) + "\n")
    image, manifest = partial / "root.ext4", partial / "packages"
    argv = mmdebstrap_command(declared, apt.source(declared.suite), archive, options)
    if os.geteuid() == 0:
        # What it mounts in the tree must not outlive it: a later removal of the tree would reach the host's /dev.
        argv = ["unshare", "--mount", "--propagation", "private", "--", *argv]
    with image.open("w") as image_file, manifest.open("w") as manifest_file:
        # The hook runs under other user ids and may not reach these by path: it gets them open. The folder is closed.
        os.fchmod(image_file.fileno(), 0o666)
        os.fchmod(manifest_file.fileno(), 0o666)
        completed = program.follow(
            argv,
            _show,
            environment={
                "LC_ALL": "C",
                "TMPDIR": str(scratch),
                "RAIDPROOF_IMAGE": f"/dev/fd/{image_file.fileno()}",
                "RAIDPROOF_PACKAGES": f"/dev/fd/{manifest_file.fileno()}",
                "RAIDPROOF_SIZE": f"{declared.size // 1024}k",
            },
            pass_fds=(image_file.fileno(), manifest_file.fileno()),
            deadline_s=BUILD_DEADLINE_S,
        )
    if not completed.ok:
        raise apt.explain(completed, "building the guest image", scratch.resolve())
    (partial / "packages.json").write_text(json.dumps(dict(map(str.split, manifest.read_text().splitlines()))))
    manifest.unlink()
    image.chmod(0o444)


def _show(line: str) -> None:
    phase = next((shown for start, shown in PHASES.items() if line.startswith(f"I: {start}")), None)
    if phase is not None:
        step(f"guest image: {phase}")


def _scratch(partial: Path) -> Path:
    """Return a folder to work in that the build's user ids can reach, linked from the partial artefact."""
    link = partial / cache.SCRATCH
    if os.geteuid() == 0:
        link.mkdir()
        return link
    candidates = [Path(os.environ.get("TMPDIR") or "/tmp"), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
    for parent in candidates:
        if parent.is_dir() and shutil.disk_usage(parent).free > ROOM_BYTES:
            folder = Path(tempfile.mkdtemp(prefix="raidproof-build-", dir=parent))
            link.symlink_to(folder)
            folder.chmod(0o711)
            return folder
    raise RequirementMissing(
        f"no room to build the guest image in {' or '.join(map(str, dict.fromkeys(candidates)))}",
        remedy=f"free {ROOM_BYTES // MIB} MiB there, or set TMPDIR",
    )
