from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.errors import RequestError, RigError
from raidproof.image import apt, cache, kernel
from raidproof.image.kernel import catalogue

CONSOLES = Path(__file__).parents[2] / "data" / "uml"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def console(name: str) -> str:
    return (CONSOLES / f"probe-{name}.txt").read_text()


def test_the_default_is_in_the_catalogue() -> None:
    assert kernel.DEFAULT in kernel.CATALOGUE.kernels


def test_a_typo_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'debian/trixie'"):
        kernel.get("debian/trixi")


class FakeHost:
    """Fake packages without a network, and fake tools that write their output files."""

    def __init__(self, layout: tuple[str, ...]) -> None:
        self.layout = layout
        self.patched: list[str] = []

    def download(self, suite: str, packages: tuple[str, ...], work: Path) -> dict[str, Path]:
        return {name: work / f"{name}.deb" for name in packages}

    def run(self, argv: list[str | Path], **_: object) -> command.Completed:
        words = list(map(str, argv))
        match words:
            case ["dpkg-deb", "--extract", _, target]:
                for name in self.layout:
                    path = Path(target) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
            case ["dpkg-deb", "--field", path, _]:
                return command.Completed(tuple(words), 0, f"version-of-{Path(path).stem}\n", "")
            case ["patchelf", *arguments]:
                self.patched = arguments
            case ["mkfs.ext4", *_]:
                Path(words[-2]).touch()
            case ["rm", *_]:
                return REAL_RUN(words)
        return command.Completed(tuple(words), 0, "", "")


REAL_RUN = command.run
LAYOUT = (
    "usr/bin/linux.uml",
    "usr/lib/uml/modules/7.2.7/modules.dep",
    "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    fake = FakeHost(LAYOUT)
    monkeypatch.setattr(command, "run", fake.run)
    monkeypatch.setattr(apt, "download", fake.download)
    monkeypatch.setattr(catalogue, "boot", lambda *_: console("7.2"))
    return fake


def test_a_kernel_is_fetched_once_and_bound_to_its_own_libc(host: FakeHost) -> None:
    got = kernel.get("debian/sid")
    assert (got.release, got.environment, got.arguments) == ("7.2.7", {}, ("seccomp=on",))
    assert got.packages == {"user-mode-linux": "version-of-user-mode-linux", "libc6": "version-of-libc6"}
    assert sorted(path.name for path in got.binary.parent.iterdir()) == [
        "kernel.json",
        "libc",
        "linux",
        "modules.ext4",
    ]
    # The artefact is renamed after this: the paths must be those of its final place.
    assert host.patched[:4] == [
        "--set-interpreter",
        str(got.binary.parent / "libc" / "ld-linux-x86-64.so.2"),
        "--set-rpath",
        str(got.binary.parent / "libc"),
    ]
    host.layout = ()
    assert kernel.get("debian/sid") == got


@pytest.mark.parametrize("missing", LAYOUT)
def test_a_package_of_another_layout_is_refused(host: FakeHost, own_cache: Path, missing: str) -> None:
    host.layout = tuple(name for name in LAYOUT if name != missing)
    with pytest.raises(RigError, match=r"packages .* of Debian .* lack"):
        kernel.get("debian/sid")
    assert list((own_cache / "kernel").iterdir()) == []


def module(release: str, content: str = "") -> bytes:
    return b"\x7fELF\0vermagic=" + release.encode() + b" mod_unload \0" + content.encode()


@pytest.fixture
def own(host: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with another nfsd, for a kernel with the modules nfsd and xfs."""
    run = host.run

    def run_with_modules(argv: list[str | Path], **named: object) -> command.Completed:
        words = list(map(str, argv))
        if words[0] == "debugfs":
            folder = Path(words[2].split('"')[3]) / "7.2.7" / "kernel"
            folder.mkdir(parents=True)
            for name in ("nfsd", "xfs"):
                (folder / f"{name}.ko").write_bytes(module("7.2.7", f"debian's {name}"))
        if words[0] == "mkfs.ext4":
            tree = Path(words[words.index("-d") + 1])
            if (tree / "7.2.7" / "kernel").exists():
                files = sorted(tree.rglob("*.ko"))
                Path(words[-2]).write_bytes(b"".join(file.read_bytes() for file in files))
                return command.Completed(tuple(words), 0, "", "")
        return run(argv, **named)

    monkeypatch.setattr(command, "run", run_with_modules)
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "nfsd.ko").write_bytes(module("7.2.7", "own nfsd"))
    return folder


def test_modules_of_ones_own_take_the_place_of_the_kernels(own: Path) -> None:
    plain, got = kernel.get("debian/sid"), kernel.get("debian/sid", modules=str(own))
    assert (got.binary, got.release) == (plain.binary, plain.release)
    assert got.modules_image != plain.modules_image
    content = got.modules_image.read_bytes()
    assert [word in content for word in (b"own nfsd", b"debian's nfsd", b"debian's xfs")] == [True, False, True]
    assert kernel.get("debian/sid", modules=str(own)).modules_image == got.modules_image
    (own / "nfsd.ko").write_bytes(module("7.2.7", "another nfsd"))
    assert kernel.get("debian/sid", modules=str(own)).modules_image != got.modules_image


def test_modules_that_do_not_belong_to_the_kernel_are_refused(own: Path) -> None:
    (own / "nfsd.ko").write_bytes(module("6.12.101"))
    with pytest.raises(RequestError, match=r"nfsd.ko was built for kernel 6\.12\.101, not 7\.2\.7"):
        kernel.get("debian/sid", modules=str(own))
    (own / "nfsd.ko").rename(own / "raid456.ko")
    (own / "raid456.ko").write_bytes(module("7.2.7"))
    with pytest.raises(RequestError, match=r"no module raid456\.ko that .* could replace"):
        kernel.get("debian/sid", modules=str(own))
    (own / "raid456.ko").unlink()
    with pytest.raises(RequestError, match="no modules in"):
        kernel.get("debian/sid", modules=str(own))


@pytest.mark.parametrize(("name", "runs"), [("7.2", True), ("6.12-preloaded", True), ("6.12-xstate", False)])
def test_a_trial_boot_is_understood(name: str, runs: bool) -> None:
    assert catalogue.reached_user_space(console(name)) is runs
    assert (catalogue.XSTATE in console(name)) is not runs


BINARY = Path("/cache/kernel/linux")


def test_the_work_around_is_used_only_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, host: FakeHost, own_cache: Path
) -> None:
    boots: list[dict[str, str]] = []

    def boot(binary: Path, arguments: tuple[str, ...], environment: dict[str, str]) -> str:
        boots.append(environment)
        return console("6.12-preloaded" if environment else "6.12-xstate")

    def compiles(source: Path, library: Path) -> None:
        library.touch()

    monkeypatch.setattr(catalogue, "boot", boot)
    monkeypatch.setattr(catalogue, "compile_library", compiles)
    library = catalogue.preload_for("debian/trixie", BINARY, ())
    assert library is not None
    assert library.name == "xstate.so"
    assert boots == [{}, {"LD_PRELOAD": str(library).replace(library.parent.name, library.parent.name + ".partial")}]
    # The answer is remembered, by kernel.
    assert catalogue.preload_for("debian/trixie", BINARY, ()) == library
    assert len(boots) == 2
    monkeypatch.setattr(catalogue, "boot", lambda *_: console("7.2"))
    assert catalogue.preload_for("debian/sid", Path("/another"), ()) is None


def test_the_error_about_a_kernel_that_does_not_run_has_its_last_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "boot", lambda *_: "Checking\nKernel panic - not syncing: no such luck\n")
    with pytest.raises(RigError, match=r"debian/sid does not run on this host: Kernel panic - .*no such luck"):
        catalogue.preload_for("debian/sid", BINARY, ())
    assert not list(cache.root().glob("probe/*"))


def test_another_cpu_or_another_feature_is_asked_again() -> None:
    cpu = "processor : 0\nmodel name : A\nflags : fpu avx\ncpu MHz : 2000\n"
    assert catalogue.cpu_identity(cpu) == catalogue.cpu_identity(cpu.replace("2000", "2100"))
    assert catalogue.cpu_identity(cpu) != catalogue.cpu_identity(cpu.replace("avx", "avx amx_tile"))
    assert catalogue.cpu_identity(cpu) != catalogue.cpu_identity(cpu.replace("name : A", "name : B"))
