"""Texts with personal data and secrets made by rule: valid numbers in many ways of writing, each with a twin that
is none.

The same seed makes the same texts.
"""

from __future__ import annotations

import base64
import json
import random
import string
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from stdnum import luhn, verhoeff
from stdnum.br import cpf
from stdnum.de import idnr
from stdnum.es import dni
from stdnum.fr import nir
from stdnum.it import codicefiscale
from stdnum.nl import bsn
from stdnum.pl import pesel
from stdnum.se import personnummer

LETTERS_AND_DIGITS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
WIDE = {ord(character): chr(ord(character) + 0xFEE0) for character in string.digits}
SENTENCES = (
    "{}",
    "Hello, {} is what she gave me.",
    "1. first\n2. {}\n3. third",
    '{{"note": "{}", "count": 3}}',
    "id;value\n17;{}\n18;none",
    "Ich habe {} notiert.",
    "> quoted: {}\nWhat now?",
    "请看{}，谢谢",
)


class Made(NamedTuple):
    """A text, and what has to be found in it: (label, characters)."""

    kind: str
    text: str
    found: tuple[tuple[str, str], ...]


def personal(count: int, seed: int = 1) -> Iterator[Made]:
    """Yield `count` texts for each kind of personal data, and as many with numbers whose check digit is wrong."""
    chance = random.Random(seed)
    for kind, label, make, name in _PERSONAL:
        for number in range(count):
            value = _dressed(make(chance), chance)
            sentence = SENTENCES[(number + len(kind)) % len(SENTENCES)]
            yield Made(kind, sentence.format(f"{name}{value}"), ((label, value),))
            if kind in _CHECKED:
                yield Made(f"wrong {kind}", sentence.format(f"{name}{_spoiled(make(chance), chance)}"), ())


def _dressed(value: str, chance: random.Random) -> str:
    """Write a value as it may come: now and then with digits in full width, or something invisible inside."""
    way = chance.randrange(8)
    if way == 0:
        return value.translate(WIDE)
    if way == 1:
        middle = len(value) // 2
        return f"{value[:middle]}\u200b{value[middle:]}"
    return value


def _spoiled(value: str, chance: random.Random) -> str:
    """Change the last digit or, where that one counts for nothing, letter: the check is wrong afterwards."""
    place = max(index for index, character in enumerate(value) if character.isalnum())
    if value[place].isdigit():
        return f"{value[:place]}{(int(value[place]) + chance.randrange(1, 9)) % 10}{value[place + 1 :]}"
    return f"{value[:place]}{'BA'[value[place] == 'B']}{value[place + 1 :]}"


def digits(chance: random.Random, count: int) -> str:
    """Return some digits."""
    return "".join(chance.choice(string.digits) for _ in range(count))


def grouped(value: str, sizes: tuple[int, ...], separator: str) -> str:
    """Return a value in groups."""
    groups, at = [], 0
    for size in sizes:
        groups.append(value[at : at + size])
        at += size
    return separator.join(groups)


def _card(chance: random.Random) -> str:
    start, length = chance.choice(
        (("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("34", 15), ("37", 15), ("6011", 16), ("3530", 16))
    )
    body = start + digits(chance, length - len(start) - 1)
    number = body + luhn.calc_check_digit(body)
    sizes = (4, 4, 4, 4) if length == 16 else (4, 6, 5)
    return grouped(number, sizes, chance.choice(("", " ", "-")))


def _iban(chance: random.Random) -> str:
    country, body = chance.choice(
        (
            ("DE", digits(chance, 18)),
            ("AT", digits(chance, 16)),
            ("NL", "ABNA" + digits(chance, 10)),
            ("GB", "NWBK" + digits(chance, 14)),
        )
    )
    number = int("".join(str(int(character, 36)) for character in f"{body}{country}00"))
    value = f"{country}{98 - number % 97:02d}{body}"
    return " ".join(value[at : at + 4] for at in range(0, len(value), 4)) if chance.random() < 0.5 else value


def _until(is_valid: Callable[[str], bool], make: Callable[[], str]) -> str:
    while not is_valid(value := make()):
        pass
    return value


def _birthday(chance: random.Random) -> str:
    return f"{chance.randrange(40, 99)}{chance.randrange(1, 13):02d}{chance.randrange(1, 29):02d}"


def _social_security(chance: random.Random) -> str:
    area = chance.choice((chance.randrange(1, 666), chance.randrange(667, 900)))
    return f"{area:03d}-{chance.randrange(1, 100):02d}-{chance.randrange(1, 10000):04d}"


def _email(chance: random.Random) -> str:
    local = chance.choice(("anna", "j.smith", "lee_77", "x-ray", "o.brien+news", "m1"))
    domain = chance.choice(("acme", "north-wind", "uni.lab7", "büro"))
    return f"{local}@{domain}.{chance.choice(('com', 'org', 'co.uk', 'io', 'museum', 'de'))}"


def _phone(chance: random.Random) -> str:
    area, exchange, line = f"{chance.randrange(201, 990)}", f"{chance.randrange(200, 999)}", digits(chance, 4)
    if area[1:] == "11":
        area = "415"
    return chance.choice(
        (
            f"+1 {area} {exchange} {line}",
            f"({area}) {exchange}-{line}",
            f"{area}-{exchange}-{line}",
            f"+49 {chance.randrange(30, 999)} {digits(chance, 7)}",
            f"+33 6 {grouped(digits(chance, 8), (2, 2, 2, 2), ' ')}",
            f"+44 20 {grouped(digits(chance, 8), (4, 4), ' ')}",
            f"+81-90-{grouped(digits(chance, 8), (4, 4), '-')}",
        )
    )


def _address(chance: random.Random) -> str:
    first, last = chance.choice((23, 81, 91, 178, 212)), chance.randrange(30, 250)
    return f"{first}.{chance.randrange(1, 250)}.{chance.randrange(1, 250)}.{last}"


def _aadhaar(chance: random.Random) -> str:
    body = chance.choice("23456789") + digits(chance, 10)
    return grouped(body + verhoeff.calc_check_digit(body), (4, 4, 4), " ")


_PERSONAL: tuple[tuple[str, str, Callable[[random.Random], str], str], ...] = (
    ("email", "EMAIL", _email, ""),
    ("phone", "PHONE", _phone, ""),
    ("card", "CREDIT_CARD", _card, ""),
    ("iban", "IBAN", _iban, ""),
    ("ssn", "SSN", _social_security, ""),
    ("address", "IP_ADDRESS", _address, ""),
    (
        "birth",
        "DATE_OF_BIRTH",
        lambda chance: f"{chance.randrange(1930, 2020)}-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}",
        "born: ",
    ),
    (
        "passport",
        "PASSPORT",
        lambda chance: chance.choice(string.ascii_uppercase) + digits(chance, 8),
        "passport number ",
    ),
    ("cpf", "NATIONAL_ID", lambda chance: cpf.format(_until(cpf.is_valid, lambda: digits(chance, 11))), ""),
    ("dni", "NATIONAL_ID", lambda chance: (body := digits(chance, 8)) + dni.calc_check_digit(body), ""),
    (
        "steuer",
        "NATIONAL_ID",
        lambda chance: idnr.format(_until(idnr.is_valid, lambda: "6" + digits(chance, 10))),
        "Steuer-ID ",
    ),
    (
        "nir",
        "NATIONAL_ID",
        lambda chance: _until(nir.is_valid, lambda: "2" + _birthday(chance)[:4] + "75" + digits(chance, 8)),
        "",
    ),
    (
        "codice",
        "NATIONAL_ID",
        lambda chance: (
            (body := f"RSSMRA{digits(chance, 2)}L{chance.randrange(10, 28)}H501") + codicefiscale.calc_check_digit(body)
        ),
        "",
    ),
    ("bsn", "NATIONAL_ID", lambda chance: _until(bsn.is_valid, lambda: digits(chance, 9)), "BSN: "),
    (
        "pesel",
        "NATIONAL_ID",
        lambda chance: _until(pesel.is_valid, lambda: _birthday(chance) + digits(chance, 5)),
        "PESEL ",
    ),
    (
        "personnummer",
        "NATIONAL_ID",
        lambda chance: _until(personnummer.is_valid, lambda: f"{_birthday(chance)}-{digits(chance, 4)}"),
        "",
    ),
    ("aadhaar", "NATIONAL_ID", _aadhaar, "Aadhaar "),
)
_CHECKED = frozenset(
    {"card", "iban", "cpf", "dni", "steuer", "nir", "codice", "bsn", "pesel", "personnummer", "aadhaar"}
)


def secret(count: int, seed: int = 1) -> Iterator[Made]:
    """Yield `count` texts for each form of secret, and as many with a placeholder or another value in its place."""
    chance = random.Random(seed)
    for kind, label, prefix, length, alphabet, frame in _SECRETS:
        for number in range(count):
            value = prefix + "".join(chance.choice(alphabet) for _ in range(length))
            sentence = SENTENCES[(number + len(kind)) % len(SENTENCES)]
            yield Made(kind, sentence.format(frame.format(value)), ((label, value),))
            stand_in = prefix + chance.choice(
                ("x" * length, "...", "<your-key>", "${KEY}", "EXAMPLE" * (length // 7 + 1), "*" * length)
            )
            yield Made(f"stand-in for {kind}", sentence.format(frame.format(stand_in)), ())
    for number in range(count):
        token, sentence = _github(chance), SENTENCES[number % len(SENTENCES)]
        yield Made("github", sentence.format(token), (("SECRET", token),))
        web_token = _web_token(chance)
        yield Made("jwt", sentence.format(web_token), (("SECRET", web_token),))
        yield Made("no jwt", sentence.format(web_token[3:]), ())
        password = _password(chance)
        yield Made("database", f"postgres://app:{password}@db.acme.io:5432/main", (("PASSWORD", password),))
        yield Made("no password", "postgres://app:password@db.acme.io:5432/main", ())


def _github(chance: random.Random) -> str:
    body = "".join(chance.choice(LETTERS_AND_DIGITS) for _ in range(30))
    checksum, tail = zlib.crc32(body.encode()), ""
    for _ in range(6):
        checksum, digit = divmod(checksum, 62)
        tail = (string.digits + string.ascii_uppercase + string.ascii_lowercase)[digit] + tail
    return f"ghp_{body}{tail}"


def _web_token(chance: random.Random) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": str(chance.randrange(10**6)), "scope": "read"})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((*encoded, "".join(chance.choice(LETTERS_AND_DIGITS + "-_") for _ in range(43))))


def _password(chance: random.Random) -> str:
    kinds = (string.ascii_uppercase, string.ascii_lowercase, string.digits, "!#*-_")
    return "".join(chance.choice(kinds[index % 4]) for index in range(chance.randrange(10, 20)))


_SECRETS = (
    ("gateway", "SECRET", "gw_live_", 40, LETTERS_AND_DIGITS, "{}"),
    ("stripe", "SECRET", "sk_" + "live_", 24, LETTERS_AND_DIGITS, "{}"),
    ("openai", "SECRET", "sk-proj-", 74, LETTERS_AND_DIGITS + "-_", "{}"),
    ("anthropic", "SECRET", "sk-ant-api03-", 95, LETTERS_AND_DIGITS, "{}"),
    ("google", "SECRET", "AIza", 35, LETTERS_AND_DIGITS, "{}"),
    ("hugging_face", "SECRET", "hf_", 34, string.ascii_letters, "{}"),
    ("npm", "SECRET", "npm_", 36, LETTERS_AND_DIGITS, "{}"),
    ("digitalocean", "SECRET", "dop_v1_", 64, HEX, "{}"),
    ("shopify", "SECRET", "shpat_", 32, HEX, "{}"),
    ("assignment", "SECRET", "", 40, LETTERS_AND_DIGITS, "api_key={}"),
    ("setting", "SECRET", "", 32, HEX, "client_secret: {}"),
    ("header", "SECRET", "", 40, LETTERS_AND_DIGITS, "Authorization: Bearer {}"),
)
