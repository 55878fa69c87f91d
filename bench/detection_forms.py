"""Forms in which a secret is written beside its name, and texts made from an expression."""

from __future__ import annotations

import importlib
import random
import re
import string
from typing import Any

# The parsed form of an expression: Python's own, with no name for others.
_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")
_DIGITS = string.digits
_WORD = string.ascii_letters + string.digits
# `{i}` is a vendor, `{I}` the same in capitals, `{s}` the secret.
SETTINGS = (
    '{i}Token="{s}"',
    "{i}Token = {s}",
    '{\n    "{i}_token": "{s}"\n}',
    '\\{\n    \\"{i}_token\\": \\"{s}\\"\n\\}',
    '{\n    "name": "{i}_token",\n    "value": "{s}"\n}',
    '{"config.ini": "{I}_TOKEN={s}\\nBACKUP_ENABLED=true"}',
    "<{i}Token>{s}</{i}Token>",
    "<{i}Token>\n    {s}\n</{i}Token>",
    '<entry name="{i}Token" value="{s}" />',
    '<add key="{i}ApiKey" value="{s}" />',
    "{i}_token: {s}",
    "{i}_token: '{s}'",
    "{i}_api_key: |\n  {s}",
    "{i}_secret: >\n  {s}",
    'string {i}Token = "{s}";',
    'var {i}Token string = "{s}"',
    '{i}Token := "{s}"',
    "{i}Token := `{s}`",
    'const {i}Token: string = "{s}";',
    '${i}Token .= "{s}"',
    '${i}Token ??= "{s}"',
    "https://api.example.org/v1/{i}?{i}Token={s}&fooBar=baz",
    "https://api.example.org/{i}?api_key={s}",
    'System.setProperty("{I}_TOKEN", "{s}")',
    "environmentVariables = {PATH=/usr/local/bin, ENV=/etc/bashrc, {I}_API_KEY={s}, LC_CTYPE=en_CA.UTF-8},",
    '  "{i}Token" => "{s}"',
    '{i}_TOKEN ::= "{s}"',
    '{i}_TOKEN ?= "{s}"',
    '{i}_TOKEN += "{s}"',
    "os.environ['{I}_API_KEY'] = '{s}'",
    'config["{i}"]["api_key"] = "{s}"',
    'process.env.{I}_SECRET = "{s}";',
    'client = {I}Client(api_key="{s}", timeout=30)',
    'conn.setRequestProperty("X-{i}-Api-Key", "{s}");',
    "curl -H 'X-{i}-Token: {s}' https://api.example.org/",
    "curl https://api.example.org -H 'Authorization: Bearer {s}'",
    "{i} login --token {s}",
    "{i} deploy --api-key={s} --region eu",
    "{i}.api.key={s}",
    "{i}.secret = {s}",
    "export {I}_ACCESS_TOKEN={s}",
    "set {I}_SECRET_KEY {s}",
    "My {i} API key is {s}, please check it.",
    "here is the {i} token: {s}",
    "-D{i}.token={s}",
    "ENV {I}_TOKEN {s}",
    "| {i} token | {s} |",
)


def made_from(pattern: str, seed: int, group: int = 0) -> str | None:
    """Return a text that an expression matches, the same each time; None for an expression that cannot be read.

    With a `group`, only what this group of the expression matches, if it has one.
    """
    cleaned = re.sub(r"(?<!^)\(\?i\)", "", pattern).replace(r"\z", "$").replace("[[:alnum:]]", "[0-9A-Za-z]")
    cleaned = cleaned.replace("[:alnum:]", "0-9A-Za-z")
    cleaned = re.sub(r"\(\?:\[\\x60'\"\\s;\]\|\\\\\[nr\]\|\$(?:\|\\b)?\)$", "", cleaned)
    try:
        parsed = _parser.parse(cleaned)
    except re.error:
        return None
    text = _written(_part_of(parsed, group) or parsed, random.Random(seed)).strip()
    return text if len(text) >= 8 else None


def _part_of(parsed: Any, group: int) -> Any:
    """Return the part of a parsed expression that is this group; None where it has none."""
    for kind, value in parsed:
        match str(kind):
            case "SUBPATTERN":
                inner, parts = value[0] == group and group > 0, [value[3]]
                if inner:
                    return value[3]
            case "MAX_REPEAT" | "MIN_REPEAT":
                parts = [value[2]]
            case "BRANCH":
                parts = value[1]
            case _:
                continue
        for part in parts:
            if (found := _part_of(part, group)) is not None:
                return found
    return None


def _written(parsed: Any, chosen: random.Random) -> str:
    return "".join(_one(str(kind), value, chosen) for kind, value in parsed)


def _one(kind: str, value: Any, chosen: random.Random) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "IN":
            return _of_class(value, chosen)
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, part = value
            most = least + 8 if most == _constants.MAXREPEAT else min(most, least + 20)
            return "".join(_written(part, chosen) for _ in range(chosen.randint(least, most)))
        case "SUBPATTERN":
            return _written(value[3], chosen)
        case "BRANCH":
            return _written(chosen.choice(value[1]), chosen)
        case "ANY" | "NOT_LITERAL":
            return chosen.choice("abcdefghkmnp23456789")
        case _:
            return ""


def _of_class(parts: Any, chosen: random.Random) -> str:
    letters = ""
    for kind, value in parts:
        match str(kind):
            case "LITERAL":
                letters += chr(value)
            case "RANGE":
                letters += "".join(map(chr, range(value[0], value[1] + 1)))
            case "CATEGORY":
                letters += _DIGITS if "DIGIT" in str(value) else _WORD
    return chosen.choice([letter for letter in letters if letter.isprintable() and letter != " "] or ["a"])
