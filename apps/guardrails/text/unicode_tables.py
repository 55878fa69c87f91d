"""Tables of Unicode: invisible characters, and letters that look like Latin ones."""

from __future__ import annotations

from collections.abc import Iterable

INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e001f\U000e007f-\U000e0fff"
)
HOMOGLYPHS = str.maketrans(
    # Cyrillic, Greek, Armenian; also letters that only look alike in capitals, which folding has made small.
    "авеѕіјкмнорстухһԁԛԝѵӏ" + "αβεζηικμνορτυχωγϲϳ" + "օսոհցզյ",
    "abesijkmhopctyxhdqwvl" + "abeznikuvoptuxwycj" + "ounhgqj",
)
# Forms of Latin letters that NFKC leaves alone, and that no language writes with.
STYLED = str.maketrans(
    "ıɑɡɩᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢ" + "".join(map(chr, (*range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A)))),
    "iagiabcdefghijklmnopqrstuvwyz" + "abcdefghijklmnopqrstuvwxyz" * 2,
)

_ASCII = bytes(range(128))


def beyond_ascii(utf8: bytes) -> set[str]:
    """Return the different characters of a text that are not in ASCII; most texts have few, and many have none."""
    return set(utf8.translate(None, _ASCII).decode("utf-8", "surrogatepass"))


def class_of(characters: Iterable[str]) -> str:
    ranges: list[list[int]] = []
    for code in map(ord, characters):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges) + "]"
