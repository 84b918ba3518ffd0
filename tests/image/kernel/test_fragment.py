from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raidproof.core.errors import RequestError
from raidproof.image.kernel import fragment
from raidproof.image.kernel.fragment import Option
from tests.image.kernel import tiny

names = st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True)
values = st.sampled_from(["y", "m", "n", "100", '"pts"', "0x10"])


@given(st.dictionaries(names, values, max_size=8))
def test_a_fragment_that_is_written_reads_the_same(wanted: dict[str, str]) -> None:
    options = [Option(name, value, f"a:{number}") for number, (name, value) in enumerate(wanted.items(), 1)]
    assert fragment.parse(fragment.text_of(options), "a") == options
    assert fragment.without_effect(options, fragment.text_of(options), Path("/nowhere")) == []


def test_our_own_fragment_is_well_formed_and_nfsd_is_a_module() -> None:
    options = {one.name: one for one in fragment.requested()}
    assert len(options) == len(fragment.parse(fragment.OWN.read_text(), "own"))
    assert (options["NFSD"].value, options["MD_RAID456"].value) == ("m", "y")
    assert options["UML_NET"].if_known
    assert not options["NFSD"].if_known


def test_options_of_the_user_replace_ours(tmp_path: Path) -> None:
    own = tmp_path / "my.config"
    own.write_text("# a comment\n\nCONFIG_XFS_FS=m\n# CONFIG_EXT4_FS_SECURITY is not set\nCONFIG_PROVE_LOCKING=y\n")
    options = {one.name: one for one in fragment.requested(own)}
    assert options["XFS_FS"] == Option("XFS_FS", "m", f"{own}:3")
    assert (options["EXT4_FS_SECURITY"].value, options["PROVE_LOCKING"].value) == ("n", "y")
    assert str(options["EXT4_FS_SECURITY"]) == "# CONFIG_EXT4_FS_SECURITY is not set"


@pytest.mark.parametrize("line", ["XFS_FS=y", "CONFIG_XFS_FS", "CONFIG_XFS_FS=", "CONFIG_XFS_FS =y"])
def test_a_line_that_is_no_option_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    own = tmp_path / "my.config"
    own.write_text(f"CONFIG_MD=y\n{line}\n")
    with pytest.raises(RequestError, match=r"my.config:2: .* is not an option"):
        fragment.requested(own)


def test_a_fragment_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"none.config"):
        fragment.requested(tmp_path / "none.config")


def test_an_option_without_effect_is_named_with_its_dependencies(tmp_path: Path) -> None:
    tree = tiny.write(tmp_path / "linux")
    asked = fragment.parse("CONFIG_MD=y\nCONFIG_MD_NEVER=y\nCONFIG_ABSENT=m\n#?CONFIG_NEWER=y\n#?CONFIG_UML=y\n", "f")
    wrong = fragment.without_effect(asked, "CONFIG_MD=y\n# CONFIG_MD_NEVER is not set\n", tree)
    assert wrong == [
        "f:2: CONFIG_MD_NEVER=y (the value is n, it depends on MD && !MD && BROKEN || ODD)",
        "f:3: CONFIG_ABSENT=m (this version of Linux has no such option)",
        "f:5: CONFIG_UML=y (the value is n)",
    ]


def test_an_option_of_another_architecture_is_unknown(tmp_path: Path) -> None:
    tree = tiny.write(tmp_path / "linux")
    for architecture, file in (("arm", "Kconfig"), ("x86", "Kconfig.cpu"), ("x86/um", "Kconfig")):
        (tree / "arch" / architecture).mkdir(parents=True, exist_ok=True)
        (tree / "arch" / architecture / file).write_text(f"config FROM_{architecture.replace('/', '_').upper()}\n")
    found = dict(fragment.definitions(tree, {"FROM_ARM", "FROM_X86", "FROM_X86_UM"}))
    assert found == {"FROM_X86_UM": ""}
