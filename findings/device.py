"""Parts of a block device of a machine."""

from raidproof.machine.machine import Machine

_BLOCK = "/run/raidproof/block"


def read_device(server: Machine, device: str, offset: int, length: int) -> bytes:
    """Return bytes of a block device."""
    place = [f"--skip-bytes={offset}", f"--read-bytes={length}", device]
    words = server.succeed(["od", "--address-radix=n", "--output-duplicates", "--format=x1", *place]).split()
    return bytes.fromhex("".join(words))


def write_device(server: Machine, device: str, offset: int, content: bytes) -> None:
    """Write bytes to a block device, past the page cache; the offset must be a multiple of their number."""
    server.put(content, _BLOCK)
    place = [f"bs={len(content)}", f"seek={offset // len(content)}", "count=1", "oflag=direct", "conv=fsync"]
    server.succeed(["dd", f"if={_BLOCK}", f"of={device}", *place])
