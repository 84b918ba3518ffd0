import json
import subprocess
from pathlib import Path

import pytest

from raidproof.core import command
from raidproof.core.errors import RequestError
from raidproof.image import kernel
from raidproof.image.kernel import catalogue, own, source
from tests.image.kernel import tiny

RELEASE = "6.99.1"
CONSOLE = (Path(__file__).parents[2] / "data" / "uml" / "probe-7.2.txt").read_text()
PROGRAM = """\
#include <stdio.h>
#include <string.h>
int main(int count, char **words)
{
    if (count == 2 && !strcmp(words[1], "--help"))
        puts("usage:\\n\\n%s\\n    picks how processes run");
    else
        puts("6.99.1");
    return 0;
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAIDPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(catalogue, "boot", lambda *_: CONSOLE)


def compiled(target: Path, option: str = "seccomp=<on/off/auto>", extra: str = "") -> Path:
    words = ["gcc", "-x", "c", "-o", str(target), "-"]
    subprocess.run(words, input=PROGRAM.replace("%s", option) + extra, text=True, check=True)
    return target


def module(name: str = "nfsd", needs: str = "", release: str = RELEASE) -> bytes:
    return b"\x7fELF\0depends=%s\0name=%s\0vermagic=%s mod_unload \0" % (
        needs.encode(),
        name.encode(),
        release.encode(),
    )


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules" / "lib" / "modules" / RELEASE
    (folder / "kernel").mkdir(parents=True)
    builtin = {*own.BUILT_IN, *own.REQUIRED, *own.USEFUL} - {"nfsd"}
    (folder / "modules.builtin").write_text("".join(f"kernel/x/{name}.ko\n" for name in sorted(builtin)))
    (folder / "modules.order").write_text("kernel/nfsd.ko\n")
    (folder / "kernel" / "nfsd.ko").write_bytes(module())
    return tmp_path / "modules"


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return compiled(tmp_path / "linux")


def test_a_binary_boots_with_its_modules(binary: Path, modules: Path) -> None:
    got = kernel.get(str(binary), modules=str(modules))
    assert (got.name, got.release, got.arguments, got.environment) == (str(binary), RELEASE, ("seccomp=on",), {})
    # A machine boots again after a power cut: a rebuilt binary must not take the place of the first.
    assert got.binary != binary
    assert got.binary.read_bytes() == binary.read_bytes()
    listed = command.succeed(["debugfs", "-R", f"ls /{RELEASE}", got.modules_image])
    assert "modules.dep" in listed
    assert kernel.get(str(binary), modules=str(modules / "lib" / "modules" / RELEASE)) == got
    compiled(binary, extra="int changed;\n")
    assert kernel.get(str(binary), modules=str(modules)).binary != got.binary


def test_an_older_kernel_is_not_asked_for_seccomp(tmp_path: Path) -> None:
    assert own.arguments_of(compiled(tmp_path / "old", option="mem=<size>")) == ()


def test_a_binary_without_its_modules_is_refused_with_the_command(binary: Path) -> None:
    with pytest.raises(RequestError, match="make ARCH=um modules_install INSTALL_MOD_PATH=DIR"):
        kernel.get(str(binary))


def test_modules_of_another_release_are_refused(binary: Path, modules: Path) -> None:
    (modules / "lib" / "modules" / RELEASE).rename(modules / "lib" / "modules" / "6.99.2")
    with pytest.raises(RequestError, match=r"no modules of kernel 6\.99\.1"):
        kernel.get(str(binary), modules=str(modules))
    (modules / "lib" / "modules" / "6.99.2").rename(modules / "lib" / "modules" / RELEASE)
    (modules / "lib" / "modules" / RELEASE / "kernel" / "nfsd.ko").write_bytes(module(release="6.99.2"))
    with pytest.raises(RequestError, match=r"nfsd\.ko was built for kernel 6\.99\.2, not 6\.99\.1"):
        kernel.get(str(binary), modules=str(modules))


@pytest.mark.parametrize("name", ["nothing", "folder", "text", "foreign"])
def test_what_is_no_user_mode_kernel_is_refused(tmp_path: Path, modules: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("#!/bin/sh\necho 6.99.1\n")
    (tmp_path / "foreign").write_bytes(b"\x7fELF and no more")
    for file in ("text", "foreign"):
        (tmp_path / file).chmod(0o755)
    with pytest.raises(RequestError, match=r"no kernel .*kernel build|is not a kernel of User-mode Linux .*ARCH=um"):
        kernel.get(str(tmp_path / name), modules=str(modules))


@pytest.mark.parametrize("name", [*own.BUILT_IN, *own.REQUIRED])
def test_a_module_that_every_lab_needs_is_named_before_anything_boots(
    binary: Path, modules: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "boot", lambda *_: pytest.fail("booted"))
    folder = modules / "lib" / "modules" / RELEASE
    builtin = folder / "modules.builtin"
    builtin.write_text(builtin.read_text().replace(f"/{name}.ko", "/other.ko"))
    (folder / "kernel" / f"{name}.ko").unlink(missing_ok=True)
    with pytest.raises(RequestError, match=rf"lacks {name} \(CONFIG_.*raidproof kernel build"):
        kernel.get(str(binary), modules=str(modules))


def test_a_missing_dependency_of_a_stripped_tree_is_named(binary: Path, modules: Path) -> None:
    nfsd = modules / "lib" / "modules" / RELEASE / "kernel" / "nfsd.ko"
    nfsd.write_bytes(module(needs="auth_rpcgss,nfs,lockd"))
    with pytest.raises(RequestError, match=r"lack their dependencies: nfsd needs auth_rpcgss; nfsd needs lockd \("):
        kernel.get(str(binary), modules=str(modules))


def test_a_symbol_that_the_kernel_lacks_is_named(tmp_path: Path, modules: Path) -> None:
    binary = compiled(tmp_path / "exports", extra="int vfs_fsync, __ksymtab_vfs_fsync;\n")
    nfsd = modules / "lib" / "modules" / RELEASE / "kernel" / "nfsd.ko"
    code = "extern int vfs_fsync, vfs_gone; int *needed[] = {&vfs_fsync, &vfs_gone};\n"
    info = f'__attribute__((section(".modinfo"))) char a[] = "vermagic={RELEASE} ";\n'
    words = ["gcc", "-x", "c", "-c", "-fno-pic", "-o", str(nfsd), "-"]
    subprocess.run(words, input=code + info, text=True, check=True)
    with pytest.raises(RequestError, match=r"need symbols that neither .* has: nfsd\.ko: vfs_gone \(build"):
        kernel.get(str(binary), modules=str(modules))


def test_lesser_modules_are_named_and_the_kernel_is_taken(
    binary: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(own, "say", said.append)
    builtin = modules / "lib" / "modules" / RELEASE / "modules.builtin"
    builtin.write_text(builtin.read_text().replace("/raid10.ko", "/other.ko"))
    assert kernel.get(str(binary), modules=str(modules)).release == RELEASE
    assert said == [f"kernel {binary} lacks raid10 (CONFIG_MD_RAID10): a lab that needs one of these will fail"]


def test_the_folder_of_a_build_is_enough(tmp_path: Path) -> None:
    tree = tiny.write(tmp_path / "linux-6.99")
    built = source.build(tree)
    got = kernel.get(str(built))
    release = json.loads((built / "kernel.json").read_text())["release"]
    assert (got.release, got.binary, got.modules_image) == (release, built / "linux", built / "modules.ext4")
    assert kernel.is_path(str(built))
    replacing = tmp_path / "replacing"
    replacing.mkdir()
    (replacing / "nfsd.ko").write_bytes(module(release=release) + b"another")
    assert kernel.get(str(built), modules=str(replacing)).modules_image != got.modules_image
    (replacing / "nfsd.ko").write_bytes(module(release=RELEASE))
    with pytest.raises(RequestError, match=r"nfsd\.ko was built for kernel 6\.99\.1, not 6\.99\.1-t"):
        kernel.get(str(built), modules=str(replacing))


def test_a_relative_folder_of_a_build_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert not kernel.is_path("mine")
    (tmp_path / "mine" / "kernel.json").touch()
    assert kernel.is_path("mine")
