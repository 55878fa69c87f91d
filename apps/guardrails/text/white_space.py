"""White space made single spaces, in UTF-8: four times as fast as splitting a text into its words."""

from __future__ import annotations

# ASCII white space (`str.isspace`), and beyond ASCII the white space that NFKC leaves, in UTF-8.
_TO_SPACES = bytes(32 if chr(code).isascii() and chr(code).isspace() else code for code in range(256))
_BEYOND_ASCII = tuple(chr(code).encode() for code in (0x85, 0x1680, 0x2028, 0x2029))
# From one pair of spaces in so many bytes on, words are fewer than pieces between pairs.
_OFTEN = 12


def spaces_in_ascii(utf8: bytes) -> bytes:
    """Return a text that NFKC has composed with no other white space than ASCII's."""
    if not utf8.isascii():
        for blank in _BEYOND_ASCII:
            utf8 = utf8.replace(blank, b" ")
    return utf8


def collapse_whitespace(utf8: bytes) -> bytes:
    """Return a text that has no other white space than ASCII's with every run of it as one space."""
    spaced = utf8.translate(_TO_SPACES)
    pairs = spaced.count(b"  ")
    if not pairs:
        return spaced
    if pairs * _OFTEN > len(spaced):
        joined = b" ".join(spaced.split())
        if not joined:
            return b" "
        return b" " * (spaced[0] == 32) + joined + b" " * (spaced[-1] == 32)
    first, *rest = spaced.split(b"  ")
    joined = b" ".join([first, *filter(None, map(bytes.lstrip, rest))])
    return joined + b" " * (spaced[-1] == 32 and not joined.endswith(b" "))
