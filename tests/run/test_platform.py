import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import Platform, SoftwareSpec, server_and_clients
from raidproof.plan.plan import RunSpec
from raidproof.run.platform import platform_for, platform_of, refuse_unknown, words_of


def test_the_command_line_overrides_the_plan() -> None:
    planned = Platform(provider="qemu", server=SoftwareSpec(kernel="debian/trixie", image="debian/sid"))
    asked = platform_of({"kernel": "debian/bookworm", "server": ["image=debian/bookworm", "nfs-utils=a.deb"]}, planned)
    assert asked.provider == "qemu"
    assert asked.server == SoftwareSpec(kernel="debian/bookworm", image="debian/bookworm", packages=("a.deb",))
    assert asked.clients == SoftwareSpec(kernel="debian/bookworm")


def test_nothing_asked_is_the_plan() -> None:
    planned = Platform(provider="qemu", clients=SoftwareSpec(kernel="vmlinuz", modules="lib"))
    assert platform_of({"kernel": None, "package": None, "server": None}, planned) == planned


def test_another_kernel_has_not_the_modules_of_the_planned_one() -> None:
    planned = Platform(clients=SoftwareSpec(kernel="./bzImage", modules="./lib"))
    assert platform_of({"kernel": "debian/sid"}, planned).clients.modules is None


@pytest.mark.parametrize("word", ["kernel", "kernel=", "=x", "kernl=debian/sid", "nfs-utils=2.8"])
def test_malformed_words_are_refused(word: str) -> None:
    with pytest.raises(RequestError):
        platform_of({"server": [word]})


def test_one_key_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="twice"):
        platform_of({"server": ["kernel=debian/sid", "kernel=debian/trixie"]})


def test_an_inventory_is_for_hosts_and_hosts_need_one() -> None:
    assert platform_of({"inventory": "lab.toml"}).provider == "hosts"
    with pytest.raises(RequestError, match="--inventory"):
        platform_of({"provider": "hosts"})
    with pytest.raises(RequestError, match="not for provider qemu"):
        platform_of({"provider": "qemu", "inventory": "lab.toml"})


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        (Platform(provider="umd"), "uml"),
        (Platform(server=SoftwareSpec(kernel="debian/sit")), "debian/sid"),
        (Platform(server=SoftwareSpec(kernel="debian/sid/rt")), "debian/sid"),
        (Platform(clients=SoftwareSpec(image="debian/trixi")), "debian/trixie"),
        (Platform(clients=SoftwareSpec(image="box:stock")), "uml does not support boxes"),
        (Platform(provider="vagrant", clients=SoftwareSpec(image="box:", kernel="debian/sid")), "its own kernel"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(platform: Platform, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        refuse_unknown(platform)


def test_the_options_of_a_topology_recreate_it() -> None:
    platform = Platform(server=SoftwareSpec(kernel="debian/sid", packages=("a.deb",)), clients=SoftwareSpec())
    words = words_of(server_and_clients(platform=platform))
    assert words == ["--provider=uml", "--server=kernel=debian/sid", "--server=package=a.deb"]


@pytest.mark.parametrize(("provider", "inventory"), [("vagrant", None), ("hosts", "lab.toml")])
def test_crash_states_are_not_asked_of_machines_that_cannot_show_them(provider: str, inventory: str | None) -> None:
    asked = {"provider": provider, "inventory": inventory}
    with pytest.raises(RequestError, match=rf"provider {provider}: crash states .* \(use provider uml or qemu\)"):
        platform_for(asked, RunSpec(cut="explore"))
    assert platform_for(asked, RunSpec(cut="power")).provider == provider
    assert platform_for(asked).provider == provider


@pytest.mark.parametrize("provider", ["uml", "qemu"])
def test_an_option_goes_over_a_provider_that_could_not_show_them(provider: str) -> None:
    planned = RunSpec(cut="explore", provider="vagrant")
    assert platform_for({"provider": provider}, planned).provider == provider
    with pytest.raises(RequestError, match="provider vagrant"):
        platform_for({}, planned)
