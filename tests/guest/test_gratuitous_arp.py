import struct

from raidproof.guest.gratuitous_arp import BROADCAST, frame

HARDWARE = bytes.fromhex("02000a4d000b")


def test_sender_and_target_are_the_announced_address() -> None:
    sent = frame(HARDWARE, "10.77.0.9")
    assert len(sent) == 14 + 28
    target, source, kind = sent[:6], sent[6:12], sent[12:14]
    assert (target, source, kind) == (BROADCAST, HARDWARE, b"\x08\x06")
    ethernet, ip, sizes, request = struct.unpack("!HHHH", sent[14:22])
    assert (ethernet, ip, sizes, request) == (1, 0x0800, 0x0604, 1)
    assert sent[22:28] == HARDWARE
    assert sent[28:32] == sent[38:42] == bytes((10, 77, 0, 9))
    assert sent[32:38] == bytes(6)
