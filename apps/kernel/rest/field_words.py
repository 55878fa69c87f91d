"""Field messages: replaces the frameworks' validation messages with our own. Pure; other texts stay unchanged."""

from __future__ import annotations

import re
from typing import Final

# Framework message -> our own; varying parts are kept.
_SENTENCES: Final[tuple[tuple[str, str], ...]] = (
    (r"This field is required\.|No file was submitted\.", "Required"),
    (r"This field (?:may not|cannot) be blank\.", "Must not be blank"),
    (r"This field (?:may not|cannot) be null\.", "Must not be null"),
    (r"Not a valid string\.", "Must be a string"),
    (
        r"Ensure this (?:field has no more than|value has at most) (\d+) characters?(?: \(it has \d+\))?\.",
        r"Must be at most \1 characters long",
    ),
    (
        r"Ensure this (?:field|value) has at least (\d+) characters?(?: \(it has \d+\))?\.",
        r"Must be at least \1 characters long",
    ),
    (r"Ensure this field has no more than (\d+) elements\.", r"Must hold at most \1 items"),
    (r"Ensure this field has at least (\d+) elements\.", r"Must hold at least \1 items"),
    (r"Ensure this value is greater than or equal to (\S+)\.", r"Must be at least \1"),
    (r"Ensure this value is less than or equal to (\S+)\.", r"Must be at most \1"),
    (r'Expected a list of items but got type "\w+"\.', "Must be an array"),
    (r'Expected a dictionary of items but got type "\w+"\.', "Must be an object"),
    (r"Invalid data\. Expected a dictionary, but got \w+\.", "Must be an object"),
    (r"This (?:list|dictionary|selection) may not be empty\.", "Must not be empty"),
    (r"A valid (?:big)?integer is required\.", "Must be a whole number"),
    (r"A valid number is required\.", "Must be a number"),
    (r"String value too large\.|Integer value too large to convert to float", "Must be a shorter number"),
    (r"Ensure that there are no more than (\d+) digits in total\.", r"Must have at most \1 digits"),
    (r"Ensure that there are no more than (\d+) decimal places\.", r"Must have at most \1 digits after the point"),
    (
        r"Ensure that there are no more than (\d+) digits before the decimal point\.",
        r"Must have at most \1 digits before the point",
    ),
    (r"Must be a valid boolean\.", "Must be true or false"),
    (r"Must be a valid UUID\.", "Must be a UUID"),
    (r'"(.*)" is not a valid(?: path)? choice\.', "Must be one of the allowed values"),
    (r"Enter a valid email address\.", "Must be an e-mail address"),
    (r"Enter a valid URL\.", "Must be a URL"),
    (r"Enter a valid IPv4 or IPv6 address\.", "Must be an IP address"),
    (r"This value does not match the required pattern\.", "Must have the documented format"),
    (r"Value must be valid JSON\.", "Must be JSON"),
    (r"(?:Date|Datetime|Time|Duration) has wrong format\. Use one of these formats instead: .*", "Must be in ISO 8601"),
    (r"Expected a date but got a datetime\.", "Must be a day, without a time"),
    (r"Expected a datetime but got a date\.", "Must be a time, not a day alone"),
    (r"Datetime value out of range\.", "Must be a time within the calendar"),
    (r"Null characters are not allowed\.", "Must not have null characters"),
    (r"Surrogate characters are not allowed: (U\+\w+)\.", r"Must not have half of a character (\1)"),
)
_READ: Final = [(re.compile(theirs, re.DOTALL), ours) for theirs, ours in _SENTENCES]


def reword(sentence: str) -> str:
    """Return our version of a framework's message; other texts unchanged."""
    for theirs, ours in _READ:
        if found := theirs.fullmatch(sentence):
            return found.expand(ours)
    return sentence
