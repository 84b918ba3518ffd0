import pytest

from raidproof.core.errors import RequestError
from raidproof.image import kernel
from raidproof.image.kernel import catalogue


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("debian/bookworm", ("bookworm", "linux-image-cloud-amd64")),
        ("debian/trixie/cloud", ("trixie", "linux-image-cloud-amd64")),
        ("debian/trixie/generic", ("trixie", "linux-image-amd64")),
        ("debian/sid/rt", ("sid", "linux-image-rt-amd64")),
    ],
)
def test_a_name_means_a_package(name: str, expected: tuple[str, str]) -> None:
    assert catalogue.metapackage(name) == expected


@pytest.mark.parametrize("name", ["debian/trixie/rc", "debian/woody"])
def test_a_typo_names_the_nearest(name: str) -> None:
    with pytest.raises(RequestError, match=r"no kernel .*valid: .*; or the path"):
        kernel.get(name, provider="qemu")


def test_user_mode_linux_has_one_flavour() -> None:
    with pytest.raises(RequestError, match="did you mean 'debian/trixie'"):
        kernel.get("debian/trixie/rt")
    with pytest.raises(RequestError, match=r"there is no kernel /x/bzImage .*binary of User-mode Linux"):
        kernel.get("/x/bzImage")


def test_modules_belong_to_a_kernel_of_ones_own() -> None:
    with pytest.raises(RequestError, match="has its own modules"):
        kernel.get("debian/trixie", modules="/x", provider="qemu")
