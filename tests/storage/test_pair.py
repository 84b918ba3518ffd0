from typing import Any

import pytest

from raidproof.core.errors import NotEffective, RigError
from raidproof.storage.pair import FloatingAddress, PairSpec, PairState, parse_addresses

SHOWN = (
    '[{"ifindex":2,"ifname":"lab0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,"qdisc":"pfifo_fast",'
    '"operstate":"UNKNOWN","group":"default","txqlen":1000,"link_type":"ether","address":"02:00:0a:4d:00:0a",'
    '"broadcast":"ff:ff:ff:ff:ff:ff","addr_info":[{"family":"inet","local":"10.77.0.10","prefixlen":24,"scope":"global",'
    '"label":"lab0","valid_life_time":4294967295,"preferred_life_time":4294967295},{"family":"inet","local":"10.77.0.9",'
    '"prefixlen":24,"scope":"global","secondary":true,"label":"lab0","valid_life_time":4294967295,'
    '"preferred_life_time":4294967295},{"family":"inet6","local":"fe80::aff:fe4d:a","prefixlen":64,"scope":"link",'
    '"valid_life_time":4294967295,"preferred_life_time":4294967295}]}]\n'
)


class Server:
    """A fake server that records its commands, and has the addresses of ``shown``."""

    name = "server2"

    def __init__(self, shown: str = SHOWN) -> None:
        self.shown = shown
        self.ran: list[list[str]] = []

    def succeed(self, argv: list[str]) -> str:
        self.ran.append(argv)
        return self.shown if argv[:2] == ["ip", "-json"] else ""


def address(server: Any) -> FloatingAddress:
    return FloatingAddress(PairSpec(), server)


def test_the_addresses_of_an_interface_are_read() -> None:
    assert parse_addresses(SHOWN) == ["10.77.0.10/24", "10.77.0.9/24"]


@pytest.mark.parametrize("text", ["", "[]", SHOWN[:-30], "[{}, {}]", '[{"addr_info": [{"family": "inet"}]}]'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(RigError, match="unexpected output of ip address"):
        parse_addresses(text)


def test_the_address_is_added_and_then_announced() -> None:
    server = Server()
    state = address(server).activate()
    assert state == PairState(active="server2", address="10.77.0.9/24")
    added, announced, shown = server.ran
    assert added == ["ip", "address", "replace", "10.77.0.9/24", "dev", "lab0"]
    assert announced[:2] == ["python3", "-ISc"]
    assert announced[3:] == ["lab0", "10.77.0.9"]
    assert shown[:2] == ["ip", "-json"]


def test_an_address_that_the_server_does_not_have_is_no_effect() -> None:
    with pytest.raises(NotEffective, match=r"lab0 has 10\.77\.0\.10/24, 10\.77\.0\.8/24, not 10\.77\.0\.9/24"):
        address(Server(SHOWN.replace('"10.77.0.9"', '"10.77.0.8"'))).require_effective()


def test_what_is_not_shared_is_that_of_each_server() -> None:
    assert PairSpec().records("/srv") == "/srv/.nfsdcld"
    assert PairSpec().scope == "raidproof-pair"
    own = PairSpec(shared_records=False, same_scope=False)
    assert own.records("/srv") is None
    assert own.scope is None
