"""How many attacks the rules still find in disguise: thirty of the project's own corpus, in each of the disguises here.

`script/bench disguises` prints a row for each. Shares no code with the functions that undo disguises.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from apps.guardrails.findings.scan_types import RuleSettings
from apps.guardrails.rules import system_rules
from apps.guardrails.text.scanned_text import ScannedText

_CORPUS = Path(__file__).parents[1] / "tests" / "guardrails" / "corpus"
_RULES = ("prompt_injection", "jailbreak")
_ATTACKS, _MAX_LENGTH = 30, 250
_MORSE_SIGNS = """
.- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --..
""".split()  # noqa: SIM905 - in the order of the alphabet
_MORSE = dict(zip("abcdefghijklmnopqrstuvwxyz", _MORSE_SIGNS, strict=True))
Disguise = Callable[[str], str]


def _caesar(shift: int) -> Disguise:
    def shifted(letter: str) -> str:
        return chr((ord(letter) - 97 + shift) % 26 + 97) if "a" <= letter <= "z" else letter

    return lambda text: "".join(map(shifted, text.lower()))


def _each_word(change: Disguise, between: str = " ") -> Disguise:
    return lambda text: between.join(map(change, text.split()))


def _replaced(letters: str, by: str) -> Disguise:
    table = str.maketrans(letters, by)
    return lambda text: text.translate(table)


def _misspelled(word: str) -> str:
    return word[0] + word[2] + word[1] + word[3:] if len(word) > 5 and word.isalpha() else word


def _morse(text: str) -> str:
    return " / ".join(" ".join(_MORSE[letter] for letter in word if letter in _MORSE) for word in text.lower().split())


def _selectors(text: str) -> str:
    return "😀" + "".join(chr(0xFE00 + byte if byte < 16 else 0xE0100 + byte - 16) for byte in text.encode())


DISGUISES: dict[str, Disguise] = {
    "none": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "ascii85": lambda text: base64.a85encode(text.encode(), adobe=True).decode(),
    "base85": lambda text: f"base85: {base64.b85encode(text.encode()).decode()}",
    "hexadecimal": lambda text: text.encode().hex(),
    "binary": lambda text: " ".join(f"{byte:08b}" for byte in text.encode()),
    "Morse": _morse,
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "Caesar by 3": _caesar(3),
    "Caesar by 19": _caesar(19),
    "Atbash": lambda text: "".join(
        chr(219 - ord(letter)) if "a" <= letter <= "z" else letter for letter in text.lower()
    ),
    "reversed": lambda text: text[::-1],
    "reversed words": _each_word(lambda word: word[::-1]),
    "last word first": lambda text: " ".join(reversed(text.split())),
    "_ between words": _each_word(str, "_"),
    "- between words": _each_word(str, "-"),
    ". between words": _each_word(str, "."),
    "no spaces": _each_word(str, ""),
    "CamelCase": lambda text: text.title().replace(" ", ""),
    "**each** **word**": _each_word(lambda word: f"**{word}**"),
    "numbered words": lambda text: " ".join(f"{at % 9 + 1}. {word}" for at, word in enumerate(text.split())),
    "s p a c e d": " ".join,
    "d-a-s-h-e-d": _each_word("-".join, "  "),
    "combining marks": lambda text: "".join(f"{one}\u0337\u0321\u0351" if one.isalpha() else one for one in text),
    "accents": _replaced("aeiouAEIOU", "áèîöùÁÈÎÖÙ"),
    "look-alikes": _replaced("aeopcyx", "аеорсух"),
    "leetspeak": _replaced("aeios", "43105"),
    "misspelled": _each_word(_misspelled),
    "full width": lambda text: "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text),
    "upper case": str.upper,
    "zero-width spaces": "\u200b".join,
    "variation selectors": "\ufe0f".join,
    "selectors as bytes": _selectors,
    "tag characters": lambda text: "hi" + "".join(chr(0xE0000 + ord(one)) for one in text),
}


def main() -> None:
    """Print how many of the attacks are found in each disguise, and the share of all."""
    counts = count_found()
    tried = _ATTACKS * len(counts)
    for name, found in counts.items():
        print(f"{name:22}{found:4} of {_ATTACKS}")
    print(f"{'all':22}{sum(counts.values()):4} of {tried}: {sum(counts.values()) / tried:.2f}")


def count_found() -> dict[str, int]:
    """Return by disguise how many of thirty attacks are found."""
    finders = [find for name in _RULES if (find := system_rules()[name].find) is not None]
    attacks = list(_attacks())
    found = {}
    for name, disguise in DISGUISES.items():
        texts = [ScannedText(disguise(attack)) for attack in attacks]
        found[name] = sum(any(find(text, RuleSettings()) for find in finders) for text in texts)
    return found


def _attacks() -> Iterator[str]:
    """Yield attacks in English that are short enough for every disguise, spread over both corpora."""
    rows = [json.loads(line) for name in _RULES for line in (_CORPUS / f"{name}.jsonl").read_text().splitlines()]
    texts = [row["text"] for row in rows if row["attack"] and row["language"] == "en"]
    short = [text for text in texts if text.isascii() and len(text) < _MAX_LENGTH]
    yield from short[:: len(short) // _ATTACKS][:_ATTACKS]


if __name__ == "__main__":
    main()
