"""Read an NFSv4 server's settings by NFS, as a client sees them, and print them as one line of JSON.

Arguments: the server's address, its TCP port, and the path of a directory in its name space. The fields of the JSON:
``lease_s`` in seconds, ``max_read`` and ``max_write`` in bytes (RFC 7530, section 5.8), ``versions`` the minor
versions that the server accepts, as numbers.
"""

import json
import socket
import struct
import sys
from typing import Any

NFS_PROGRAM, NFS_VERSION, COMPOUND = 100003, 4, 1
AUTH_SYS = 1
GETATTR, LOOKUP, PUTROOTFH = 9, 15, 24
LEASE_TIME, MAX_READ, MAX_WRITE = 10, 30, 31
OK, WRONG_MINOR_VERSION = 0, 10021
MINOR_VERSIONS = (0, 1, 2)
DEADLINE_S = 10.0


class Refused(Exception):
    """The server refused a request, or its reply is no reply to the request."""


def opaque(content: bytes) -> bytes:
    """Return bytes of variable length in XDR (RFC 4506, section 4.10)."""
    return struct.pack(">I", len(content)) + content + bytes(-len(content) % 4)


def compound(minor: int, operations: list[bytes]) -> bytes:
    """Return an RPC message that calls COMPOUND as root (RFC 5531, section 9; RFC 7530, section 14.2)."""
    credential = struct.pack(">I", 0) + opaque(b"raidproof") + struct.pack(">III", 0, 0, 0)
    header = struct.pack(">IIIIII", minor + 1, 0, 2, NFS_PROGRAM, NFS_VERSION, COMPOUND)
    verifier = struct.pack(">II", 0, 0)
    body = opaque(b"") + struct.pack(">II", minor, len(operations)) + b"".join(operations)
    message = header + struct.pack(">I", AUTH_SYS) + opaque(credential) + verifier + body
    # The record mark: the highest bit is set in the last fragment (RFC 5531, section 11).
    return struct.pack(">I", 1 << 31 | len(message)) + message


def attributes_of(path: str) -> bytes:
    """Return a call of COMPOUND for the attributes of a directory."""
    names = [name.encode() for name in path.split("/") if name]
    lookups = [struct.pack(">I", LOOKUP) + opaque(name) for name in names]
    wanted = struct.pack(">III", GETATTR, 1, 1 << LEASE_TIME | 1 << MAX_READ | 1 << MAX_WRITE)
    return compound(0, [struct.pack(">I", PUTROOTFH), *lookups, wanted])


def results(reply: bytes) -> bytes:
    """Return COMPOUND4res from an RPC reply without its record mark.

    Raises:
        Refused: the server did not accept the call.
    """
    try:
        _, kind, denied, _, length = struct.unpack_from(">IIIII", reply)
        (accepted,) = struct.unpack_from(">I", reply, 20 + length)
    except struct.error:
        raise Refused("the RPC reply is truncated or denied: %s" % reply.hex()) from None
    if (kind, denied, accepted) != (1, 0, 0):
        raise Refused("the RPC call was not accepted: %s" % reply.hex())
    return reply[24 + length :]


def status_of(found: bytes) -> int:
    """Return the status of COMPOUND4res."""
    if len(found) < 4:
        raise Refused("COMPOUND4res is truncated")
    return int.from_bytes(found[:4], "big")


def parse_attributes(found: bytes) -> Any:
    """Return the values of the attributes at the end of COMPOUND4res, by name.

    Raises:
        Refused: an operation failed, or the reply has other attributes.
    """
    if status := status_of(found):
        raise Refused("the server refused to look up the directory: NFS status %d" % status)
    # The result of GETATTR is the last: a bitmap of one word, then 20 bytes of values, in the order of their numbers.
    end = struct.Struct(">IIIIIQQ")
    if len(found) < end.size:
        raise Refused("COMPOUND4res is truncated")
    status, words, bitmap, length, lease_s, max_read, max_write = end.unpack(found[-end.size :])
    if (status, words, bitmap, length) != (OK, 1, 1 << LEASE_TIME | 1 << MAX_READ | 1 << MAX_WRITE, 20):
        raise Refused("the server returned other attributes than those requested: %s" % found.hex())
    return {"lease_s": lease_s, "max_read": max_read, "max_write": max_write}


def call(connection: socket.socket, message: bytes) -> bytes:
    """Send an RPC message, and return COMPOUND4res of the reply."""
    connection.sendall(message)
    reply, last = b"", False
    while not last:
        mark = int.from_bytes(exactly(connection, 4), "big")
        last = bool(mark >> 31)
        reply += exactly(connection, mark & ((1 << 31) - 1))
    return results(reply)


def exactly(connection: socket.socket, size: int) -> bytes:
    """Return the next bytes of a connection."""
    content = b""
    while len(content) < size:
        if not (part := connection.recv(size - len(content))):
            raise Refused("the server closed the connection")
        content += part
    return content


def main(address: str, port: str, path: str) -> None:
    """Print the settings of a server."""
    with socket.create_connection((address, int(port)), timeout=DEADLINE_S) as connection:
        found = parse_attributes(call(connection, attributes_of(path)))
        root = [struct.pack(">I", PUTROOTFH)]
        # A server with sessions refuses PUTROOTFH outside of one, but only after it accepted the minor version.
        status = {minor: status_of(call(connection, compound(minor, root))) for minor in MINOR_VERSIONS}
    found["versions"] = [minor for minor, one in status.items() if one != WRONG_MINOR_VERSION]
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, Refused) as error:
        sys.exit("nfs_attributes: %s:%s: %s" % (sys.argv[1], sys.argv[2], error))
