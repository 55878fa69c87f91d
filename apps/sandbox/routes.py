"""Which request is answered by whom: formats, the list of models, the journal. Knows no socket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from apps.sandbox import tokens
from apps.sandbox.brain import answer_of
from apps.sandbox.formats import Format, find_format
from apps.sandbox.journal import Entry, Journal
from apps.sandbox.performance import Step, fixed_performance, perform, refuse, say
from apps.sandbox.refusal import Refusal
from apps.sandbox.scenario import FAST, MODELS, scenario_of
from apps.sandbox.wire import Request

SCENARIO_HEADER = "x-sandbox"
TAG_HEADER = "x-sandbox-tag"
INVALID_TOKEN = "invalid"  # noqa: S105 - the one token that is refused


@dataclass(frozen=True, slots=True)
class Reply:
    """What to do for a request, and where to note how it ended (nowhere, for the journal's own)."""

    steps: Iterable[Step]
    entry: Entry | None = None


class Sandbox:
    """Answers requests; remembers them in its journal."""

    def __init__(self) -> None:
        self.journal = Journal()
        # A script that holds for every request, before what the request itself says.
        self.weather = ""

    def reply_to(self, request: Request) -> Reply:
        """Return what to do for a request."""
        if form := find_format(request.method, request.path, request.headers):
            return self._attend(form, request)
        match request.method, request.path:
            case "GET", "/healthz":
                return _json(200, {"status": "ok"})
            case "POST", tokens.PATH:
                return self._give_token(request)
            case "GET", "/sandbox/requests":
                entries = self.journal.entries(request.query.get("tag"))
                return _json(200, {"requests": [entry.shown() for entry in entries]})
            case "PUT", "/sandbox/weather":
                return self._change_weather(request)
            case "DELETE", "/sandbox/requests":
                return _json(200, {"deleted": self.journal.clear(request.query.get("tag"))})
            case method, path:
                return _json(404, {"error": {"message": f"Invalid URL ({method} {path})"}})

    def _change_weather(self, request: Request) -> Reply:
        """Take a script for all requests to come; an empty one is fair weather."""
        weather = request.body.decode("utf-8", "replace").strip()
        try:
            scenario_of("echo", [], weather)
        except Refusal as refusal:
            return _json(400, {"error": {"message": str(refusal)}})
        self.weather = weather
        return _json(200, {"weather": weather})

    def _attend(self, form: Format, request: Request) -> Reply:
        headers = request.headers
        entry = self.journal.open(headers.get(TAG_HEADER, ""), request.method, request.path, headers, request.body)
        try:
            token = form.find_token(headers)
            if token is None or token == INVALID_TOKEN:
                raise Refusal(401, "Incorrect API key provided.", code="invalid_api_key")
            if request.method == "GET":
                return Reply(say(200, form.write_models(MODELS)), entry)
            fixed = None if self.weather else _fixed(form, request, entry)
            return Reply(fixed or self._scripted(form, request, entry), entry)
        except Refusal as refusal:
            return Reply(refuse(form, refusal), entry)

    def _give_token(self, request: Request) -> Reply:
        """Answer a service account; it is the tag in the journal, where nothing of its statement is kept."""
        account = tokens.account_of(request.body)
        entry = self.journal.open(account or "", request.method, request.path, request.headers, b"")
        status, answer = tokens.answer_of(account)
        return Reply(say(status, msgspec.json.encode(answer)), entry)

    def _scripted(self, form: Format, request: Request, entry: Entry) -> Iterable[Step]:
        conversation = form.read_request(request.path, request.body)
        entry.model, entry.streamed = conversation.model, conversation.streamed
        entry.tag = entry.tag or conversation.model
        header = f"{request.headers.get(SCENARIO_HEADER, '')} {self.weather}"
        scenario = scenario_of(conversation.model, conversation.directives(), header)
        entry.tag = request.headers.get(TAG_HEADER) or scenario.tag or conversation.model
        if scenario.counted:
            scenario = scenario.on_turn(self.journal.turn(entry.tag))
        gzipped = scenario.gzip and "gzip" in request.headers.get("accept-encoding", "")
        return perform(form, conversation, answer_of(conversation, scenario), scenario, gzipped=gzipped)


def _fixed(form: Format, request: Request, entry: Entry) -> Iterable[Step] | None:
    """The benchmark model's steps; its requests are only glanced at."""
    if SCENARIO_HEADER in request.headers:
        return None
    glance = form.glance(request.path, request.body)
    if glance is None or glance.model != FAST:
        return None
    entry.tag, entry.model, entry.streamed = entry.tag or FAST, FAST, glance.streamed
    return fixed_performance(form, streamed=glance.streamed, wants_usage=glance.wants_usage)


def _json(status: int, value: dict[str, Any]) -> Reply:
    return Reply(say(status, msgspec.json.encode(value)))
