import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.command import Completed
from harness.errors import DeadlineExceeded, RequestError, RequirementMissing, RigError
from harness.machine import apt, image, program, recipe
from harness.machine.image import ImageRecipe
from harness.waiting import Deadline, wait_until

MMDEBSTRAP = Path(__file__).parents[1] / "data" / "mmdebstrap"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "keys").touch()
    monkeypatch.setattr(apt, "source", lambda suite: apt.Source("http://deb.example/debian", suite, tmp_path / "keys"))
    monkeypatch.setattr(apt, "acquire_options", list[str])
    monkeypatch.setattr(image, "tool_versions", lambda: ("mmdebstrap 1.3.5", "mke2fs 1.47.0"))
    return tmp_path / "cache"


@pytest.fixture
def declared() -> ImageRecipe:
    return recipe.read(image.RECIPES / "debian-trixie.toml", ImageRecipe)


class FakeMmdebstrap:
    """Builds no tree, but writes what the last hook does: the image and the manifest, into the files it is given."""

    def __init__(self, status: int = 0, said: str = "I: success\n") -> None:
        self.status = status
        self.said = said
        self.argv: list[str] = []

    def __call__(
        self,
        argv: list[str],
        on_line: Callable[[str], None],
        *,
        environment: dict[str, str],
        pass_fds: tuple[int, ...],
        deadline_s: float,
    ) -> Completed:
        self.argv = argv
        for line in self.said.splitlines():
            on_line(line)
        if self.status == 0:
            os.write(pass_fds[0], b"image")
            os.write(pass_fds[1], b"fio 3.39-1\nmdadm 4.4-11\n")
        return Completed(tuple(argv), self.status, self.said, "")


def test_the_default_has_a_recipe_and_every_file_in_it_exists(declared: ImageRecipe) -> None:
    assert image.DEFAULT in image.names()
    with tarfile.open(fileobj=io.BytesIO(image.guest_archive(declared))) as archive:
        modes = {member.name: member.mode for member in archive}
    assert modes["usr/sbin/raidproof-init"] == 0o755
    assert modes["etc/ssh/sshd_config"] == 0o644
    assert modes["finish"] == 0o755


def test_a_typo_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'debian/trixie'"):
        image.get("debian/trixei")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('suite = "sid"\nsize = "1GiB"\npackages = []\nfiles = {}', "packages"),
        ('suite = "sid"\nsize = "1GiB"\npackages = ["a"]\nfiles = {}\npackage = 1', "package: Extra inputs"),
        ("suite =", r"recipe\.toml: "),
    ],
)
def test_a_mistake_in_a_recipe_is_told_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(RequestError, match=says):
        recipe.read(path, ImageRecipe)


def test_a_changed_recipe_or_file_or_tool_is_another_image(
    declared: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {image.address(declared), image.address(declared)}
    assert len(seen) == 1
    seen.add(image.address(declared.model_copy(update={"packages": (*declared.packages, "strace")})))
    monkeypatch.setattr(image, "tool_versions", lambda: ("mmdebstrap 1.4", "mke2fs 1.47.0"))
    seen.add(image.address(declared))
    own = tmp_path / "vms"
    for name in declared.files:
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_bytes((recipe.VMS / name).read_bytes())
    monkeypatch.setattr(recipe, "VMS", own)
    assert image.address(declared) in seen
    (own / "guest/stop").write_text("exit\n")
    seen.add(image.address(declared))
    assert len(seen) == 4


def test_an_image_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "follow", FakeMmdebstrap())
    built = image.get()
    assert built.packages == {"fio": "3.39-1", "mdadm": "4.4-11"}
    assert built.path.read_bytes() == b"image"
    assert not built.path.stat().st_mode & 0o222
    assert sorted(path.name for path in built.path.parent.iterdir()) == ["packages.json", "root.ext4"]
    monkeypatch.setattr(program, "follow", FakeMmdebstrap(1))
    assert image.get() == built


@pytest.mark.parametrize(
    ("name", "kind"), [("unreachable", RigError), ("full", RigError), ("no-subuid", RequirementMissing)]
)
def test_a_failed_build_leaves_nothing(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: type[Exception]
) -> None:
    monkeypatch.setattr(program, "follow", FakeMmdebstrap(1, (MMDEBSTRAP / f"{name}.txt").read_text()))
    with pytest.raises(kind):
        image.get()
    assert list((own_cache / "image").iterdir()) == []


def test_root_builds_where_nothing_stays_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeMmdebstrap()
    monkeypatch.setattr(program, "follow", fake)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    image.get()
    assert fake.argv[:2] == ["unshare", "--mount"]
    assert "--mode=root" in fake.argv


def test_others_build_where_their_subordinate_ids_can_reach(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeMmdebstrap()
    monkeypatch.setattr(program, "follow", fake)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    image.get()
    assert fake.argv[0] == "mmdebstrap"
    assert "--mode=unshare" in fake.argv
    [archive] = [word.split('"')[1] for word in fake.argv if "tar-in" in word]
    assert own_cache not in Path(archive).parents
    assert not Path(archive).exists()


def test_no_room_for_the_work_is_told_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(image, "ROOM_BYTES", 1 << 62)
    with pytest.raises(RequirementMissing, match="no room to build the guest image"):
        image.get()


def test_the_recipes_sizes_are_those_of_mkfs(declared: ImageRecipe) -> None:
    text = (image.RECIPES / "debian-trixie.toml").read_text()
    assert tomllib.loads(text)["size"] == "1GiB"
    assert declared.size == 1 << 30


def follow(*argv: str, deadline_s: float = 60.0, lines: list[str] | None = None) -> Completed:
    seen = lines if lines is not None else []
    return program.follow(argv, seen.append, environment={}, deadline_s=deadline_s)


def test_a_programs_lines_are_shown_and_its_status_kept() -> None:
    lines: list[str] = []
    completed = follow("sh", "-c", "echo one; echo two >&2; exit 3", lines=lines)
    assert lines == ["one", "two"]
    assert (completed.status, completed.stdout) == (3, "one\ntwo\n")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(RequirementMissing, match="no-such-tool"):
        follow("no-such-tool")


def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(DeadlineExceeded, match="sleep"):
        follow("sleep", "1000", deadline_s=0.1)


# A shell lets what it starts in the background ignore SIGINT, and that is inherited.
PARENT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from harness.machine import program
program.follow(["sh", "-c", "sh -c 'echo $$; exec sleep 1000' | cat"], lambda line: print(line, flush=True),
               environment={}, deadline_s=1000)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_program_and_its_children_end_with_us(how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    child = int(json.loads(parent.stdout.readline()))
    parent.send_signal(how)
    parent.communicate()

    def ended() -> bool:
        status = Path(f"/proc/{child}/stat")
        return not status.exists() or status.read_text().split()[2] == "Z"

    wait_until(ended, Deadline.after(20), "the child to end")
