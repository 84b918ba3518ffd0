from collections.abc import Mapping, Sequence

import pytest

from raidproof.core.command import Completed
from raidproof.core.errors import RigError
from raidproof.storage.array.upkeep import at_full_speed
from tests.guest_files import FilesByCommands

CACHE, SPEED = "/sys/block/md0/md/stripe_cache_size", "/sys/block/md0/md/sync_speed_max"


class Kernel(FilesByCommands):
    """A fake machine whose md has these files, and refuses to write some of them."""

    name = "server"
    address = "10.77.0.10"

    def __init__(self, files: Mapping[str, str], refused: Sequence[str] = ()) -> None:
        self.files = dict(files)
        self.refused = refused
        self.written: list[tuple[str, str]] = []

    def run(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> Completed:
        if argv[0] == "tee":
            if argv[1] in self.refused:
                return Completed(tuple(argv), 1, "", "Cannot allocate memory", self.name)
            word = str(stdin).strip()
            self.written.append((argv[1], word))
            self.files[argv[1]] = word
        said = "".join(f"{path}:{self.files[path]}\n" for path in argv[3:] if path in self.files)
        return Completed(tuple(argv), 0, said if argv[0] == "grep" else "", "", self.name)

    def succeed(self, argv: Sequence[str], *, stdin: str | None = None, deadline_s: float = 1.0) -> str:
        return self.run(argv, stdin=stdin).stdout


def test_md_gets_back_what_it_had() -> None:
    kernel = Kernel({CACHE: "256", SPEED: "200000 (system)"})
    with at_full_speed(kernel, ["md0"]):
        assert kernel.files == {CACHE: "4096", SPEED: "2000000"}
    assert kernel.files == {CACHE: "256", SPEED: "system"}


def test_what_was_set_on_purpose_is_put_back_as_it_was() -> None:
    kernel = Kernel({CACHE: "8192", SPEED: "1000 (local)"})
    with at_full_speed(kernel, ["md0"]):
        # More than enough stays.
        assert kernel.files == {CACHE: "8192", SPEED: "2000000"}
    assert kernel.written[-1] == (SPEED, "1000")


def test_a_level_without_these_files_is_left_alone() -> None:
    kernel = Kernel({})
    with at_full_speed(kernel, ["md0"]):
        pass
    assert kernel.written == []


def test_what_the_kernel_refuses_stays() -> None:
    kernel = Kernel({CACHE: "256", SPEED: "200000 (system)"}, refused=[CACHE])
    with at_full_speed(kernel, ["md0"]):
        assert kernel.files[CACHE] == "256"
    assert [path for path, _ in kernel.written] == [SPEED, SPEED]


def test_it_is_put_back_after_an_error() -> None:
    kernel = Kernel({SPEED: "200000 (system)"})
    with pytest.raises(RigError), at_full_speed(kernel, ["md0"]):
        raise RigError("gave up")
    assert kernel.files[SPEED] == "system"
