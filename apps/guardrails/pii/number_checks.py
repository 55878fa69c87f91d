"""Check digits and dates of numbers that python-stdnum does not know, or reads otherwise.

Each takes a number as it was written and tells whether it could have been given out. Sources are named in each.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date

from stdnum import imei, luhn
from stdnum.cn import ric
from stdnum.fi import hetu
from stdnum.jp import in_ as my_number
from stdnum.us import itin, rtn, ssn

from apps.guardrails.pii.keyword_number import digits_of


def _weighted(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def is_day(year: str, month: str, day: str) -> bool:
    """Tell whether this is a day; a year of two digits is of this century or the last."""
    try:
        date(int(year) + (2000 if len(year) == 2 else 0), int(month), int(day))
    except ValueError:
        return False
    return True


def is_varied(number: str) -> bool:
    """Tell whether a number with no check is more than one digit over and over."""
    return len(set(digits_of(number))) > 2


def is_any(_: str) -> bool:
    """Accept any number: its form beside its name says enough."""
    return True


def is_my_number(number: str) -> bool:
    """Japan's individual number; all zeros pass its check digit."""
    return is_varied(number) and my_number.is_valid(number)


def is_melli(number: str) -> bool:
    """Iran's national code: weights 10 to 2, modulo 11."""
    digits = digits_of(number)
    rest = _weighted(digits, (10, 9, 8, 7, 6, 5, 4, 3, 2)) % 11
    return is_varied(number) and int(digits[9]) == (rest if rest < 2 else 11 - rest)


def is_checked_by_luhn(number: str) -> bool:
    """Numbers of Saudi Arabia, the Emirates and others: the last digit is Luhn's."""
    return is_varied(number) and luhn.is_valid(digits_of(number))


def is_egyptian(number: str) -> bool:
    """Egypt's national number: century, day of birth, one of 28 governorates."""
    digits = digits_of(number)
    place = int(digits[7:9])
    return is_day(f"{int(digits[0]) + 17}{digits[1:3]}", digits[3:5], digits[5:7]) and (1 <= place <= 35 or place == 88)


def is_kazakh(number: str) -> bool:
    """Kazakhstan's individual number: day of birth; weights 1 to 11, or 3 to 11, 1, 2, modulo 11."""
    rest = _weighted(number, tuple(range(1, 12))) % 11
    if rest == 10:
        rest = _weighted(number, (3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2)) % 11
    return is_day(number[:2], number[2:4], number[4:6]) and rest == int(number[11])


def is_uzbek(number: str) -> bool:
    """Uzbekistan's personal number: weights 7 3 1, modulo 10, over 13 digits with the day of birth."""
    check_digit = _weighted(number, (7, 3, 1) * 4 + (7,)) % 10
    return is_day(number[5:7], number[3:5], number[1:3]) and check_digit == int(number[13])


def is_hungarian_tax(number: str) -> bool:
    """Hungary's tax number of persons: begins with 8; weights 1 to 9, modulo 11."""
    return number[0] == "8" and _weighted(number, tuple(range(1, 10))) % 11 == int(number[9])


def is_hungarian_insurance(number: str) -> bool:
    """Hungary's social insurance number (TAJ): weights 3 and 7 in turn, modulo 10."""
    digits = digits_of(number)
    return is_varied(number) and _weighted(digits, (3, 7) * 4) % 10 == int(digits[8])


def is_latvian(number: str) -> bool:
    """Latvia's personal code: since 2017 it begins with 32; before, day of birth and weights, modulo 11."""
    digits = digits_of(number)
    if digits.startswith("3") and digits[1] in "2345678":
        return True
    total = _weighted(digits, (1, 6, 3, 7, 9, 10, 5, 8, 4, 2))
    return is_day(digits[4:6], digits[2:4], digits[:2]) and (1101 - total) % 11 % 10 == int(digits[10])


def is_medicare(number: str) -> bool:
    """Australia's Medicare card: weights 1 3 7 9 1 3 7 9, modulo 10."""
    digits = digits_of(number)
    return digits[0] in "23456" and _weighted(digits, (1, 3, 7, 9, 1, 3, 7, 9)) % 10 == int(digits[8])


def is_pis(number: str) -> bool:
    """Brazil's social registration (PIS, PASEP, NIT): weights 3 2 9 to 2, modulo 11."""
    digits = digits_of(number)
    rest = _weighted(digits, (3, 2, 9, 8, 7, 6, 5, 4, 3, 2)) % 11
    return is_varied(number) and (0 if rest < 2 else 11 - rest) == int(digits[10])


def is_korean(number: str) -> bool:
    """South Korea's registration numbers of residents and foreigners: since October 2020 without a check digit."""
    digits = digits_of(number)
    return is_day(digits[:2], digits[2:4], digits[4:6]) and digits[6] in "12345678"


def is_vietnamese(number: str) -> bool:
    """Viet Nam's citizen number: a province from 001 to 096, then sex and century."""
    return 1 <= int(number[:3]) <= 96 and number[3] in "0123"


def is_emirati(number: str) -> bool:
    """Emirates ID: 784, year of birth, Luhn."""
    digits = digits_of(number)
    return digits[3:5] in ("19", "20") and luhn.is_valid(digits)


def is_german_insurance(number: str) -> bool:
    """Germany's pension insurance number: day of birth, a letter as two digits, weights, digits added up, modulo 10."""
    compact = number.replace(" ", "").upper()
    digits = compact[:8] + f"{ord(compact[8]) - 64:02}" + compact[9:11]
    total = 0
    for digit, weight in zip(digits, (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1), strict=True):
        total += sum(divmod(int(digit) * weight, 10))
    return total % 10 == int(compact[11])


def is_german_health(number: str) -> bool:
    """Germany's health insurance number: a letter as two digits, weights 1 and 2 in turn, modulo 10."""
    digits = f"{ord(number[0].upper()) - 64:02}" + number[1:9]
    total = sum(sum(divmod(int(digit) * (1 + place % 2), 10)) for place, digit in enumerate(digits))
    return total % 10 == int(number[9])


def is_luxembourgish(number: str) -> bool:
    """Luxembourg's matricule: year and day of birth, then Luhn's digit over the first eleven."""
    return is_day(number[:4], number[4:6], number[6:8]) and luhn.is_valid(number[:12])


def is_nino(number: str) -> bool:
    """National insurance number (HMRC manual NIM39110): prefixes that are never given out. It has no check digit."""
    letters = number[:2].upper()
    return letters not in {"BG", "GB", "KN", "NK", "NT", "TN", "ZZ"}


def is_snils(number: str) -> bool:
    """Russian insurance number: nine digits weighted 9 to 1, modulo 101."""
    digits = digits_of(number)
    total = _weighted(digits, (9, 8, 7, 6, 5, 4, 3, 2, 1)) % 101
    return len(digits) == 11 and total % 100 == int(digits[9:])


def is_singaporean(number: str) -> bool:
    """Singapore's NRIC and FIN: seven digits weighted 2 7 6 5 4 3 2, modulo 11, a letter by series."""
    total = _weighted(number[1:8], (2, 7, 6, 5, 4, 3, 2))
    offset = {"S": 0, "T": 4, "F": 0, "G": 4}[number[0]]
    letters = "JZIHGFEDCBA" if number[0] in "ST" else "XWUTRQPNMLK"
    return letters[(total + offset) % 11] == number[8]


def is_hong_kong(number: str) -> bool:
    """Hong Kong's identity card: letter and digits weighted 9 8 7 ..., modulo 11."""
    values = [36] + [int(character, 36) for character in number if character.isalnum()]
    return sum(value * weight for value, weight in zip(values, (9, 8, 7, 6, 5, 4, 3, 2, 1), strict=True)) % 11 == 0


def is_taiwanese(number: str) -> bool:
    """Taiwan's identity card: the letter stands for two digits, weights 1 9 8 ... 1, modulo 10."""
    letter = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(number[0]) + 10
    return _weighted(f"{letter}{number[1:]}", (1, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1)) % 10 == 0


def is_finnish(number: str) -> bool:
    """Finland's personal identity code; numbers for tests (900 to 999) count."""
    return bool(hetu.is_valid(number, True))


def is_chinese(number: str) -> bool:
    """China's resident identity card, in any case; none of a province alone, for which python-stdnum has no answer."""
    with suppress(KeyError):
        return bool(ric.is_valid(number.upper()))
    return False


def is_us_social(number: str) -> bool:
    """Social security (SSN) and taxpayer numbers (ITIN) of the United States: ranges that were issued."""
    digits = digits_of(number)
    return ssn.is_valid(digits) or itin.is_valid(digits)


def is_us_provider(number: str) -> bool:
    """Providers of the United States' health service (NPI): Luhn's digit of the number behind 80840."""
    return luhn.is_valid("80840" + digits_of(number))


def is_us_routing(number: str) -> bool:
    """Routing numbers of banks in the United States (ABA)."""
    return rtn.is_valid(digits_of(number))


def is_clabe(number: str) -> bool:
    """Mexico's CLABE: the last of 18 digits is the check digit, the others weighted 3, 7, 1, each product modulo 10."""
    total = sum(int(digit) * (3, 7, 1)[place % 3] % 10 for place, digit in enumerate(number[:17]))
    return (10 - total % 10) % 10 == int(number[17])


def is_imei(number: str) -> bool:
    """Phones (IMEI), by Luhn's digit."""
    return is_varied(number) and imei.is_valid(digits_of(number))


_VEHICLE_VALUES = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", map(int, "12345678123457923456789"), strict=True))


def is_vehicle(number: str) -> bool:
    """Vehicles (VIN): North America's check digit (ISO 3779, 49 CFR 565), or, as in many countries without one, letters
    and then digits."""
    if len(set(number)) < 6 or not any(one.isalpha() for one in number):
        return False
    values = [int(one) if one.isdigit() else _VEHICLE_VALUES[one] for one in number]
    weights = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
    total = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return "0123456789X"[total % 11] == number[8] or number[-4:].isdigit()


def is_passport(number: str) -> bool:
    """Passport numbers have three digits and more, and are no names of standards."""
    return len(digits_of(number)) >= 3 and not number.startswith(("RFC", "ISO", "CVE"))


def is_machine_readable_zone(lines: str) -> bool:
    """The two lines of a passport (ICAO document 9303): check digits of number, birth and expiry."""
    line = lines.split("\n")[-1].strip("\r ")
    fields = ((line[:9], line[9]), (line[13:19], line[19]), (line[21:27], line[27]))
    return all(_zone_check_digit(field) == digit for field, digit in fields)


def _zone_check_digit(field: str) -> str:
    values = (0 if character == "<" else int(character, 36) for character in field)
    return str(sum(value * (7, 3, 1)[place % 3] for place, value in enumerate(values)) % 10)
