"""Decoder of the Unix ``compress`` format (``.Z``), in which UCI keeps the MUSK tables."""

from midam.errors import BagDataError

_MAGIC = b"\x1f\x9d"
_CLEAR = 256


def decompress(data: bytes) -> bytes:
    """Decode the bytes of a ``.Z`` file (Welch, Computer 17(6), 1984).

    Codes come in groups of eight, lowest bit first, of 9 to 16 bits; where the width grows, the rest of the group is
    filler.
    """
    if len(data) < 3 or data[:2] != _MAGIC or not 10 <= data[2] & 0x1F <= 16:
        raise BagDataError("Expected a .Z file of the Unix compress program, got other bytes; fetch the file again.")
    limit = 1 << (data[2] & 0x1F)
    first_free = 257 if data[2] & 0x80 else 256
    letters = [bytes([i]) for i in range(256)]
    table = letters + [b""] * (first_free - 256)
    width, group, position, previous = 9, 24, 24, b""
    padded = data + b"\0\0"
    output = []
    while position + width <= 8 * len(data):
        byte = position >> 3
        code = int.from_bytes(padded[byte : byte + 3], "little") >> (position & 7) & ((1 << width) - 1)
        position += width
        if code == _CLEAR and first_free == 257:
            group = position = _next_group(position, group, width)
            table, width, previous = [*letters, b""], 9, b""
            continue
        if code < len(table):
            entry = table[code]
        elif code == len(table) and previous:
            entry = previous + previous[:1]
        else:
            raise BagDataError(f"Expected a sound .Z file, got code {code} out of turn; fetch the file again.")
        output.append(entry)
        if previous and len(table) < limit:
            table.append(previous + entry[:1])
        previous = entry
        if len(table) >= 1 << width and 1 << width < limit:
            group = position = _next_group(position, group, width)
            width += 1
    return b"".join(output)


def _next_group(position: int, group: int, width: int) -> int:
    """Bit where the next group of eight codes starts."""
    bits = 8 * width
    return group - (group - position) // bits * bits
