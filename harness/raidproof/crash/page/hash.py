"""A linear 64-bit hash of pages: hashes of data and parity are related as the data and the parity are.

The hash is linear over GF(2): hash(a XOR b) = hash(a) XOR hash(b). CRC-32 without its initial and final value is
linear (Peterson and Brown, "Cyclic codes for error detection", Proceedings of the IRE 49, 1961); a product with a
constant in GF(2^8) is linear too. The hash has two CRC-32 of the page, after the product of each byte with two
different constants: the blocks of the ledger contain a CRC-32 of their own, so that the CRC-32 of two of them may be
equal. For Q each page is first multiplied by its factor, so that one XOR of hashes decides both parities.
"""

from zlib import crc32

from raidproof.storage.array.raid import PAGE, product_table

SIZE = 8
"""Bytes of a hash."""
CONSTANTS = (0x1D, 0xB7)
"""The constants in GF(2^8) of the two CRC-32; any two different values except 0 and 1 serve."""
NONE = 0
"""The hash of a blank page."""
_BLANK = bytes(PAGE)
_AFFINE = crc32(_BLANK)


def page_hash(page: bytes, factor: int = 1) -> int:
    """Return the hash of a page of 4 KiB whose bytes are multiplied by ``factor`` in GF(2^8)."""
    if factor == 0 or page == _BLANK:
        return NONE
    value = 0
    for constant in CONSTANTS:
        # Products are associative: one table has the product of factor and constant.
        both = product_table(product_table(constant)[factor])
        value = value << 32 | (crc32(page.translate(both)) ^ _AFFINE)
    return value


def part_hash(part: bytes, begin: int, factor: int = 1) -> int:
    """Return the hash of a page that has ``part`` at offset ``begin`` and is blank elsewhere.

    The hash of a page is the XOR of the hashes of its parts.
    """
    return page_hash(bytes(begin) + part + bytes(PAGE - begin - len(part)), factor)
