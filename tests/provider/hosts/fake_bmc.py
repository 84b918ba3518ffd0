"""A BMC of pyghmi's own, in a process of its own: the library keeps its sessions in global variables.

It tells the port at which it listens. It stays under power once more than it is asked, as a board does that takes its
time.
"""

import sys

from pyghmi.ipmi import bmc
from pyghmi.ipmi.private.serversession import ServerSession

HMAC_SHA1 = 1
answer_open = ServerSession.create_open_session_response


def refuse_all_but_sha1(session: ServerSession, request: bytearray) -> bytearray:
    """Reject the client's first offer: the library's server would accept it and still compute SHA1."""
    if request[12] != HMAC_SHA1:
        return bytearray([request[0], 0x04, 0, 0]) + request[4:8]
    answer: bytearray = answer_open(session, request)
    return answer


class FakeBmc(bmc.Bmc):  # type: ignore[misc]  # the library has no types
    power = "on"
    lasts = 0

    def get_power_state(self) -> str:
        if self.lasts:
            self.lasts -= 1
            return "on"
        return self.power

    def power_off(self) -> None:
        self.power, self.lasts = "off", 1

    def power_on(self) -> None:
        self.power = "on"


if __name__ == "__main__":
    ServerSession.create_open_session_response = refuse_all_but_sha1
    server = FakeBmc({"admin": "secret"}, port=0, address="127.0.0.1")
    server.port = server.serversocket.getsockname()[1]  # by which the library finds its sessions
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.listen()
