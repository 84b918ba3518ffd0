"""Announces, by gratuitous ARP, that an IP address belongs to an interface of this machine.

The machines of the network then send frames for the address to this interface. Arguments: INTERFACE ADDRESS.
"""

import socket
import struct
import sys

ETH_P_ARP = 0x0806
BROADCAST = b"\xff" * 6
TIMES = 3
"""Number of frames: one may be lost."""
REQUEST = 1


def frame(hardware: bytes, address: str) -> bytes:
    """Return the Ethernet frame of a gratuitous ARP request (RFC 5227, 3): sender and target address are equal."""
    ip = socket.inet_aton(address)
    kinds = struct.pack("!HHBBH", 1, 0x0800, len(hardware), len(ip), REQUEST)
    return BROADCAST + hardware + struct.pack("!H", ETH_P_ARP) + kinds + hardware + ip + bytes(6) + ip


def announce(interface: str, address: str) -> None:
    """Send the frame `TIMES` times."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ARP)) as raw:
        raw.bind((interface, ETH_P_ARP))
        sent = frame(raw.getsockname()[4], address)
        for _ in range(TIMES):
            raw.send(sent)


if __name__ == "__main__":
    announce(sys.argv[1], sys.argv[2])
