"""Fields of a serialised protobuf message: written where that saves copies, read before parsing."""

_HAS_LENGTH = 2
"""The wire type of messages, strings and bytes."""


def field_head(number: int, num_bytes: int) -> bytes:
    """Return what stands before a field of so many bytes in a serialised message."""
    return _varint(number << 3 | _HAS_LENGTH) + _varint(num_bytes)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and where it ends; raises IndexError."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80 or shift > 63:
            return number, at


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
