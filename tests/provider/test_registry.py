import pytest

from raidproof.core.errors import RequestError
from raidproof.core.topology import Platform, server_and_clients, with_standby
from raidproof.provider.registry import lab_of, prepare


@pytest.mark.parametrize("provider", ["qemu", "vagrant", "hosts"])
def test_a_second_server_is_refused_with_the_reason(provider: str) -> None:
    one = server_and_clients(platform=Platform(provider=provider))
    with pytest.raises(
        RequestError, match=rf"provider {provider}: a second server is not possible: \w+.*use provider uml"
    ):
        lab_of(with_standby(one))
    if provider != "hosts":
        with pytest.raises(RequestError, match="a second server is not possible"):
            prepare(with_standby(one))


def test_provider_uml_has_a_second_server() -> None:
    lab = lab_of(with_standby(server_and_clients()))
    assert lab.topology.standby is not None
