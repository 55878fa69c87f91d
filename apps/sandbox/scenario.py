"""Scenario: the scripted outcome of a request, and the grammar of its directives. Pure.

Directives are words, `name` or `name=value`, separated by `:`, `;` or spaces. They are read from three places, and
where two of them disagree the first of this list wins:

    header      x-sandbox: latency=200 status=503
    message     [[sandbox latency=200 status=503]]       in a system message or in the last user message
    model       echo:latency=200:status=503              after one of the names in MODELS

Time        latency=MS before the first byte · gap=MS between writes
Text        words=N · kb=N · verbatim (the user's own words) · json · empty · reasoning=N (words of thought)
            · hidden=N (tokens of thought that are counted and never shown) · heedless (of the request's limit)
            · pictures=N (in each answer) · places=P[,P…] (of the documents in a ranking)
Pieces      chunks=N or chunk=CHARACTERS: deltas of a stream; chunks cuts a plain body too · bytewise (one byte a write)
Failure     status=CODE · code=WORD (of the error object) · retry-after=SECONDS · html (the error body is a web page)
            hang · cut (close too early) · reset (TCP RST) · end (a clean end, too early) · error (an error object, with
            status 200) · broken (unfinished JSON), each at =head, =body (right after the head), =middle or =N: after
            N events of a stream, N bytes of a plain body; at most one of these six
How often   times=K: only the first K requests of the tag fail · p=SHARE: this share of them fails, evenly spread;
            alone they mean status=500
Numbers     usage=PROMPT,COMPLETION[,CACHED[,REASONING[,CACHE_WRITE]]] · no-usage · usage-at=own|finish
Manner      crlf · comments (SSE) · gzip (if accepted) · extra (unknown fields) · finish=REASON ·
            reasoning-field=reasoning_content|reasoning|content
Jobs        pending=N looks before it is over (1 unless given) · job=how-it-ends, as in `request-moderated` ·
            elsewhere=poll|result: that address is at another host
Batches     batch=missing|twice|garbage|stray|expired: of this line's result · refused|running: of its whole job
Bookkeeping tag=NAME: the name in the journal and of the counter behind times and p; the model name unless given
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import floor
from typing import Annotated, AnyStr, Literal, NamedTuple

import msgspec
from msgspec import Meta

FAST = "echo-fast"

MODELS = {
    "echo": "",
    FAST: "kb=1:chunks=50:usage=250,256",
    "tools": "",
    "reasoner": "reasoning=12",
    "vision": "",
    "json": "json",
    "slow": "latency=2000",
    "flaky": "status=503:p=0.5",
    "down": "status=503",
    "hang": "hang=head",
    "cut": "cut=middle",
    "broken": "broken=middle",
    "no-usage": "no-usage",
    "free": "",
    "painter": "",
    "sketcher": "pictures=1",
    "embedder": "",
    "embedder-fast": "",
    "reranker": "",
    "moderator": "",
    "moderator-mistral": "",
    "speaker": "",
    "speaker-tokens": "",
    "listener": "",
    "listener-tokens": "",
}
"""Every model there is, with the directives it stands for."""

BARE = {"hang": "head", "cut": "middle", "reset": "middle", "end": "middle", "error": "body", "broken": "middle"}
"""Values of directives without `=`, where that is not `true`."""

BIG_PIECE = 1024
"""Characters in a delta of an answer measured in kilobytes, where the scenario does not say."""

FAULTS = tuple(BARE)
FAILURES = ("status", "code", "retry_after", "html", "empty", *FAULTS)

Count = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[int, Meta(ge=0)]
Point = Annotated[str, Meta(pattern=r"^(head|body|middle|\d+)$")]

_SEPARATORS = re.compile(r"[\s:;]+")
_WORD_WITH_SPACE = re.compile(r"\s*\S+\s*|\s+")
_IN_MESSAGE = re.compile(r"[ \t]*\[\[sandbox\s([^\]]*)\]\]")


class SandboxRefusal(Exception):
    """An HTTP error, `status` 400 to 599. `param` names the field at fault; `retry_after` is in seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after


class Fault(NamedTuple):
    """Something that breaks at one place of the answer; `kind` is one of FAULTS."""

    kind: str
    point: str

    def place(self, length: int) -> int:
        """Return how much of `length` (events or bytes) comes before the fault."""
        if self.point in ("head", "body"):
            return 0
        return length // 2 if self.point == "middle" else min(int(self.point), length)


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """One request's script; the module's docstring says what each directive does."""

    latency: Milliseconds = 0
    gap: Milliseconds = 0

    words: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    kb: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    verbatim: bool = False
    json: bool = False
    empty: bool = False
    reasoning: Annotated[int, Meta(ge=0)] | None = None
    hidden: Annotated[int, Meta(ge=0)] = 0
    heedless: bool = False
    pictures: Annotated[int, Meta(ge=0, le=16)] | None = None
    places: Annotated[str, Meta(pattern=r"^-?\d+(,-?\d+)*$")] | None = None

    chunks: Count | None = None
    chunk: Count | None = None
    bytewise: bool = False

    status: Annotated[int, Meta(ge=200, le=599)] = 200
    code: str | None = None
    retry_after: Annotated[float, Meta(ge=0)] | None = None
    html: bool = False
    hang: Point | None = None
    cut: Point | None = None
    reset: Point | None = None
    end: Point | None = None
    error: Point | None = None
    broken: Point | None = None

    times: Annotated[int, Meta(ge=0)] | None = None
    p: Annotated[float, Meta(ge=0, le=1)] | None = None

    usage: Annotated[str, Meta(pattern=r"^\d+(,\d+){1,4}$")] | None = None
    no_usage: bool = False
    usage_at: Literal["own", "finish"] = "own"

    crlf: bool = False
    comments: bool = False
    gzip: bool = False
    extra: bool = False
    finish: Literal["stop", "length", "tool_calls", "content_filter"] | None = None
    reasoning_field: Literal["reasoning_content", "reasoning", "content"] = "reasoning_content"

    pending: Annotated[int, Meta(ge=0)] = 1
    job: Literal["ready", "request-moderated", "content-moderated", "error", "task-not-found"] = "ready"
    elsewhere: Literal["poll", "result"] | None = None
    batch: Literal["missing", "twice", "garbage", "stray", "expired", "refused", "running"] | None = None

    tag: str | None = None

    def __post_init__(self) -> None:
        if sum(getattr(self, kind) is not None for kind in FAULTS) > 1:
            raise ValueError(f"At most one of {', '.join(FAULTS)}")

    @property
    def fault(self) -> Fault | None:
        """The fault on the way, if any."""
        return next((Fault(kind, point) for kind in FAULTS if (point := getattr(self, kind)) is not None), None)

    @property
    def counted(self) -> bool:
        """Whether it depends on how many requests of its tag came before."""
        return self.times is not None or self.p is not None

    def on_turn(self, turn: int) -> Scenario:
        """Return what happens on the `turn`-th request of its tag, counted from 1: `times` and `p` are settled."""
        if not self.counted:
            return self
        in_time = self.times is None or turn <= self.times
        in_share = self.p is None or floor(turn * self.p) > floor((turn - 1) * self.p)
        if not (in_time and in_share):
            return msgspec.structs.replace(self, **{name: getattr(_CALM, name) for name in FAILURES})
        if all(getattr(self, name) == getattr(_CALM, name) for name in FAILURES):
            return msgspec.structs.replace(self, status=500)
        return self

    def pieces_of(self, text: str, *, usual: int | None = None) -> list[str]:
        """Return the deltas of `text` in a stream: by `chunks`, by `chunk`, else `usual` characters each, or words."""
        if self.chunks:
            return evenly(text, self.chunks)
        if size := self.chunk or usual or (BIG_PIECE if self.kb else None):
            return [text[start : start + size] for start in range(0, len(text), size)]
        return _WORD_WITH_SPACE.findall(text)


_CALM = Scenario()


def evenly(text: AnyStr, parts: int) -> list[AnyStr]:
    """Return `text` in `parts` pieces of nearly one length, fewer where it is shorter than that."""
    parts = min(parts, len(text))
    return [text[len(text) * part // parts : len(text) * (part + 1) // parts] for part in range(parts)]


def split_directives(text: str) -> tuple[str, str]:
    """Return what a message says without its `[[sandbox …]]` marks, and the directives within them."""
    return _IN_MESSAGE.sub("", text).strip(), " ".join(_IN_MESSAGE.findall(text))


def scenario_of(model: str, messages: Iterable[str] = (), header: str = "") -> Scenario:
    """Return the scenario of a request, from its model name, its messages' directives and its header.

    Raises Refusal: 404 for a model that is not in MODELS, 400 for a directive that does not exist or has no such value.
    """
    name, _, in_model = model.partition(":")
    if name not in MODELS:
        message = f"The model `{model}` does not exist or you do not have access to it."
        raise SandboxRefusal(404, message, code="model_not_found", param="model")
    directives: dict[str, str] = {}
    for text in (MODELS[name], in_model, *messages, header):
        directives |= _read(text)
    try:
        return msgspec.convert(directives, Scenario, strict=False)
    except msgspec.ValidationError as error:
        raise SandboxRefusal(400, f"Not a sandbox scenario: {error}", code="invalid_scenario") from error


def _read(text: str) -> dict[str, str]:
    directives: dict[str, str] = {}
    for word in filter(None, _SEPARATORS.split(text)):
        name, equals, value = word.partition("=")
        directives[name] = value if equals else BARE.get(name, "true")
    return directives
