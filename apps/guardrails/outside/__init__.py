"""Registry of outside guards: services and models that judge texts for an organization; every file here is one type.

A type's file holds `TYPE`, `JUDGES_EACH_TEXT`, `SECRETS` (the members of its configuration that are stored encrypted,
and whether it needs each), `read_config(config)`, which returns the other members of its own or raises `BadConfig`,
`requests_of(question)`, which returns the requests to send, to a service (`GuardRequest`) or a model of this gateway
(`ModelRequest`), and `read_answers(question, answers)`, which returns findings or raises `UnusableAnswer`. It may hold
`check_secrets(secrets)`, which raises `BadConfig` where secrets do not suffice for another reason. Nothing here sends
anything (`apps/guardrails/outside_client.py` does). Pure.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from apps.guardrails.custom import BadConfig, fields_of
from apps.guardrails.findings.scan_types import RuleAction

INPUT, OUTPUT, BOTH = "input", "output", "both"
DIRECTIONS: Final = (INPUT, OUTPUT, BOTH)
# After no usable answer of the guard, the request goes on (open) or is refused (closed).
OPEN, CLOSED = "open", "closed"
ON_FAILURE: Final = (OPEN, CLOSED)
# Seconds for all of one question.
MIN_TIMEOUT, MAX_TIMEOUT, DEFAULT_TIMEOUT = 0.1, 30.0, 3.0
# Characters of an address, of a secret, and of another member.
MAX_URL, MAX_SECRET, MAX_MEMBER = 500, 8_192, 300
# Characters of the words of a guard that clients and the log get.
MAX_REASON: Final = 200
# Characters of the name of a finding, and of its label.
MAX_NAME, MAX_LABEL = 80, 40


class UnusableAnswer(Exception):
    """An answer that cannot be used; the message says why, without quoting texts."""


class OutsideText(NamedTuple):
    """One text to judge. `is_replaceable` is false for JSON and files, where only parts can be masked."""

    role: str
    place: str
    text: str
    is_replaceable: bool


class RequestFacts(NamedTuple):
    """The request that texts belong to; `session` is empty where the client names none.

    `prompt` is the user's latest text, which answers are judged with; empty where no guard needs it.
    """

    organization_id: str
    api_key_id: str
    model: str
    session: str
    prompt: str = ""


class GuardQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Texts for a guard, with its configuration and secrets; `id` is the same when it is sent again."""

    id: str
    rule_id: str
    rule_name: str
    direction: str
    facts: RequestFacts
    texts: Sequence[OutsideText]
    config: Mapping[str, Any]
    secrets: Mapping[str, str]
    now: datetime

    def __repr__(self) -> str:
        return f"GuardQuestion({self.id})"


class GuardRequest(NamedTuple):
    """An HTTP request (POST) to a guard."""

    url: str
    headers: dict[str, str]
    body: bytes


class ModelRequest(NamedTuple):
    """A chat completion of a model of this gateway, as JSON of OpenAI's format."""

    body: bytes


class ModelAnswer(NamedTuple):
    """The text of a guard model's answer; `cost` is in USD, `log_id` is the id of its own row in the log."""

    text: bytes
    cost: Decimal
    log_id: str


class OutsideFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in `texts[text]` at `[start:end]`, in characters; without `end` it is the whole text.

    `pattern` names the finding, `label` the placeholder. The rule's own action is taken unless `action` is a milder
    one. `replacement` takes the place of the text instead of a placeholder.
    """

    text: int
    start: int = 0
    end: int | None = None
    pattern: str = ""
    label: str = ""
    action: RuleAction | None = None
    replacement: str | None = None


class OutsideType(Protocol):
    """The interface of a file of this folder."""

    TYPE: str
    SECRETS: Mapping[str, bool]

    def read_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members of this type's own; `url` for a type that asks over HTTP. Raises BadConfig."""

    # Whether it judges each text by itself, so that a text that passed is not judged again for some minutes.
    JUDGES_EACH_TEXT: bool

    def requests_of(self, question: GuardQuestion) -> Sequence[GuardRequest | ModelRequest]:
        """Return the requests that ask a question. Raises UnusableAnswer where it cannot be asked."""

    def read_answers(self, question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
        """Return the findings in the answers, in the order of the requests. Raises UnusableAnswer."""


@functools.cache
def outside_types() -> MappingProxyType[str, OutsideType]:
    """Return every type of this folder by its name."""
    modules: list[Any] = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    return MappingProxyType({module.TYPE: module for module in modules})


def read_outside_config(type_: OutsideType, config: object) -> dict[str, Any]:
    """Return a configuration as it is kept, without secrets. Raises BadConfig naming the member."""
    # `secrets`, the names of those that are stored, comes back with a configuration that was read.
    known = {*type_.SECRETS, "type", "secrets"}
    fields = {name: value for name, value in fields_of(config).items() if name not in known}
    own = type_.read_config(fields)
    common = {
        "direction": read_choice(fields, "direction", DIRECTIONS, INPUT),
        "onFailure": read_choice(fields, "onFailure", ON_FAILURE, CLOSED),
        "timeoutSeconds": float(read_number(fields, "timeoutSeconds", DEFAULT_TIMEOUT, MAX_TIMEOUT, MIN_TIMEOUT)),
    }
    for name in fields:
        if name not in own and name not in common:
            raise BadConfig(
                name, f"Not a field of {type_.TYPE}; there are {', '.join([*own, *type_.SECRETS, *common])}"
            )
    return {**own, **common}


def read_secrets(type_: OutsideType, config: object) -> dict[str, str]:
    """Return the secrets in a configuration; those that are not given are left out. Raises BadConfig."""
    fields = fields_of(config)
    found: dict[str, str] = {}
    for name in type_.SECRETS:
        value = fields.get(name)
        if value is None or value == "":
            continue
        if not isinstance(value, str) or len(value) > MAX_SECRET or not (value.isascii() and value.isprintable()):
            raise BadConfig(name, f"Must be 1 to {MAX_SECRET} printable ASCII characters")
        found[name] = value
    return found


def check_secrets(type_: OutsideType, secrets: Mapping[str, str]) -> None:
    """Raise BadConfig unless the secrets suffice."""
    require_secrets(secrets, *(name for name, is_needed in type_.SECRETS.items() if is_needed))
    if (check := getattr(type_, "check_secrets", None)) is not None:
        check(secrets)


def read_url(fields: Mapping[str, Any], default: str | None = None) -> str:
    """Return the member `url`. Raises BadConfig; whether it may be called is checked where it is stored and called."""
    url = fields.get("url", default)
    if not isinstance(url, str) or not 0 < len(url) <= MAX_URL or not url.startswith(("https://", "http://")):
        raise BadConfig("url", f"Must be an http or https URL of at most {MAX_URL} characters")
    return url.rstrip("/")


def read_member(fields: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of a configuration. Raises BadConfig."""
    value = fields.get(name, default)
    if not isinstance(value, str) or len(value) > MAX_MEMBER or not (value.isascii() and value.isprintable()):
        raise BadConfig(name, f"Must be at most {MAX_MEMBER} printable ASCII characters")
    if default is None and not value.strip():
        raise BadConfig(name, "Must not be empty")
    return value.strip()


def read_number(fields: Mapping[str, Any], name: str, default: float, highest: float, lowest: float = 0) -> float:
    """Return a number of a configuration. Raises BadConfig."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise BadConfig(name, f"Must be a number from {lowest:g} to {highest:g}")
    return value


def read_names(fields: Mapping[str, Any], name: str, form: re.Pattern[str], example: str, most: int) -> list[str]:
    """Return a list of names of a configuration; without it an empty one. Raises BadConfig."""
    value = fields.get(name, [])
    if not isinstance(value, list) or len(value) > most:
        raise BadConfig(name, f"Must be a list of at most {most} names such as {example}")
    for index, one in enumerate(value):
        if not isinstance(one, str) or not form.fullmatch(one):
            raise BadConfig(f"{name}[{index}]", f"Must be a name such as {example}")
    return value


def json_request(url: str, body: Any, key: str | None = None, **headers: str) -> GuardRequest:
    """Return a request with a JSON body, and a key as the bearer where there is one."""
    bearer = {"Authorization": f"Bearer {key}"} if key else {}
    return GuardRequest(url, {"Content-Type": "application/json", **bearer, **headers}, msgspec.json.encode(body))


def read_object(answer: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises UnusableAnswer."""
    value = read_json(answer)
    if not isinstance(value, dict):
        raise UnusableAnswer("the answer is not a JSON object")
    return value


def read_json(answer: bytes) -> Any:
    """Return the JSON of an answer. Raises UnusableAnswer."""
    try:
        return msgspec.json.decode(answer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnusableAnswer("the answer is not valid JSON") from error


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; anything else has none."""
    yield from (one for one in (value if isinstance(value, list) else ()) if isinstance(one, dict))


def as_dict(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def pieces_of(texts: Sequence[OutsideText], longest: int) -> list[tuple[int, int, str]]:
    """Return texts cut to at most `longest` characters: index of the text, beginning of the piece, the piece."""
    return [
        (index, start, one.text[start : start + longest])
        for index, one in enumerate(texts)
        for start in range(0, len(one.text), longest)
    ]


class Pack(NamedTuple):
    """Texts of one role that are judged together: the text to send, and the indexes of those in it."""

    text: str
    indexes: tuple[int, ...]
    # Whether each of them is in it as a whole.
    is_whole: bool


# Between the texts of a pack: a symbol that texts rarely contain, on a line of its own.
SEPARATOR: Final = "\n\N{SYMBOL FOR RECORD SEPARATOR}\n"


def packs_of(texts: Sequence[OutsideText], longest: int) -> list[Pack]:
    """Return texts in packs of at most `longest` characters, in order: an agent's request has hundreds of texts."""
    packs: list[Pack] = []
    for index, start, piece in pieces_of(texts, longest):
        is_whole = start == 0 and piece == texts[index].text
        last = packs[-1] if packs else None
        if (
            last is not None
            and is_whole
            and last.is_whole
            and texts[last.indexes[-1]].role == texts[index].role
            and len(last.text) + len(SEPARATOR) + len(piece) <= longest
        ):
            packs[-1] = Pack(f"{last.text}{SEPARATOR}{piece}", (*last.indexes, index), True)
        else:
            packs.append(Pack(piece, (index,), is_whole))
    return packs


def whole_texts(found: Iterable[tuple[int, str]]) -> list[OutsideFinding]:
    """Return findings of whole texts, from their indexes and names; each once."""
    return [OutsideFinding(text=index, pattern=name[:MAX_NAME]) for index, name in dict.fromkeys(found)]


def label_of(name: str) -> str:
    """Return the label of placeholders for a guard's name: letters, digits and underscores."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())[:MAX_LABEL]


def require_secrets(secrets: Mapping[str, str], *names: str) -> None:
    """Raise BadConfig for the first of these secrets that is missing."""
    for name in names:
        if not secrets.get(name):
            raise BadConfig(name, "Required")


def read_choice(fields: Mapping[str, Any], name: str, choices: Sequence[str], default: str) -> str:
    value = fields.get(name, default)
    if value not in choices:
        raise BadConfig(name, f"Must be one of {', '.join(choices)}")
    return str(value)
