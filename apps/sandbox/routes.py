"""Routes of the sandbox: formats, the list of models, batches, jobs and the journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import msgspec

from apps.sandbox import tokens
from apps.sandbox.batches import LineAnswer, SandboxBatches
from apps.sandbox.formats import SandboxFormat, find_format, image_specialists
from apps.sandbox.http_framing import SandboxRequest
from apps.sandbox.journal import Journal, JournalEntry
from apps.sandbox.response_steps import Body, Head, Step, fixed_performance, perform, refuse, say
from apps.sandbox.scenario import FAST, MODELS, SandboxRefusal, scenario_of
from apps.sandbox.scripted_reply import answer_of

SCENARIO_HEADER = "x-sandbox"
TAG_HEADER = "x-sandbox-tag"
BATCHES_TAG = "batches"
"""The journal's tag of requests about batches; their lines have tags of their own."""
INVALID_TOKEN = "invalid"  # noqa: S105 - the one token that is refused


@dataclass(frozen=True, slots=True)
class SandboxReply:
    """The steps for a request, and its journal entry to complete (None for the journal's own)."""

    steps: Iterable[Step]
    entry: JournalEntry | None = None


class Sandbox:
    """Answers requests; remembers them in its journal."""

    def __init__(self) -> None:
        self.journal = Journal()
        # A script that holds for every request, before what the request itself says.
        self.weather = ""
        self._batches = SandboxBatches(self._answer_line)

    def reply_to(self, request: SandboxRequest) -> SandboxReply:
        """Return what to do for a request."""
        if form := find_format(request.method, request.path, request.headers):
            return self._attend(form, request)
        if (batches := self._attend_batches(request)) is not None:
            return batches
        match request.method, request.path:
            case "GET", "/healthz":
                return _json(200, {"status": "ok"})
            case "POST", tokens.PATH:
                return self._give_token(request)
            case "GET", image_specialists.POLL_PATH:
                return self._tell_of_job(request)
            case "GET", image_specialists.PICTURE_PATH:
                return _give_picture(request)
            case "GET", "/sandbox/requests":
                entries = self.journal.entries(request.query.get("tag"))
                return _json(200, {"requests": [entry.shown() for entry in entries]})
            case "PUT", "/sandbox/weather":
                return self._change_weather(request)
            case "DELETE", "/sandbox/requests":
                return _json(200, {"deleted": self.journal.clear(request.query.get("tag"))})
            case method, path:
                return _json(404, {"error": {"message": f"Invalid URL ({method} {path})"}})

    def _change_weather(self, request: SandboxRequest) -> SandboxReply:
        """Set a script for all later requests; an empty one clears it."""
        weather = request.body.decode("utf-8", "replace").strip()
        try:
            scenario_of("echo", [], weather)
        except SandboxRefusal as refusal:
            return _json(400, {"error": {"message": str(refusal)}})
        self.weather = weather
        return _json(200, {"weather": weather})

    def _attend(self, form: SandboxFormat, request: SandboxRequest) -> SandboxReply:
        headers = request.headers
        entry = self.journal.open(headers.get(TAG_HEADER, ""), request.method, request.path, headers, request.body)
        try:
            token = form.find_token(headers)
            if token is None or token == INVALID_TOKEN:
                raise SandboxRefusal(401, "Incorrect API key provided.", code="invalid_api_key")
            if request.method == "GET":
                return SandboxReply(say(200, form.write_models(MODELS)), entry)
            fixed = None if self.weather else _fixed(form, request, entry)
            return SandboxReply(fixed or self._scripted(form, request, entry), entry)
        except SandboxRefusal as refusal:
            return SandboxReply(refuse(form, refusal), entry)

    def _tell_of_job(self, request: SandboxRequest) -> SandboxReply:
        """Say how a job stands: it is in the journal under its request's tag, and over after so many looks."""
        job = image_specialists.read_job(request.query)
        entry = self.journal.open(job.tag if job else "", "GET", request.path, request.headers, b"")
        if request.headers.get("x-key", INVALID_TOKEN) == INVALID_TOKEN:
            status, body = 403, {"detail": "Not authenticated"}
        elif job is None:
            status, body = 404, {"id": "", "status": "Task not found"}
        else:
            look = self.journal.turn(f"job {request.query['id']}")
            status, body = 200, image_specialists.status_of(job, look, f"http://{request.headers.get('host', '')}")
        return SandboxReply(say(status, msgspec.json.encode(body)), entry)

    def _attend_batches(self, request: SandboxRequest) -> SandboxReply | None:
        """Answer a request about batches; None for any other."""
        entry = JournalEntry(BATCHES_TAG, request.method, request.path, {}, b"")
        try:
            body = self._batches.reply_to(request)
            if body is None:
                return None
            reply = SandboxReply(say(200, body), entry)
        except SandboxRefusal as refusal:
            reply = _json(refusal.status, {"error": {"message": str(refusal)}})
        self.journal.add(entry)
        return reply

    def _answer_line(self, path: str, body: bytes) -> LineAnswer:
        """Answer a line of a batch as a request of its own, at once."""
        headers = {"authorization": "Bearer batch", "x-api-key": "batch"}
        form = find_format("POST", path, headers)
        if form is None:
            raise SandboxRefusal(400, f"{path} cannot be asked in batches.")
        status, parts = 200, list[bytes]()
        for step in self._attend(form, SandboxRequest("POST", path, {}, headers, body, True, True)).steps:
            if isinstance(step, Head):
                status = step.status
            elif isinstance(step, Body):
                parts.append(step.data)
        conversation = form.read_request(path, body)
        script = scenario_of(conversation.model, conversation.directives()).batch
        return LineAnswer(status, b"".join(parts), script)

    def _give_token(self, request: SandboxRequest) -> SandboxReply:
        """Answer a service account; it is the tag in the journal, where nothing of its statement is kept."""
        account = tokens.account_of(request.body)
        entry = self.journal.open(account or "", request.method, request.path, request.headers, b"")
        status, answer = tokens.token_answer(account)
        return SandboxReply(say(status, msgspec.json.encode(answer)), entry)

    def _scripted(self, form: SandboxFormat, request: SandboxRequest, entry: JournalEntry) -> Iterable[Step]:
        # Some formats say in the query what others say in the body.
        query = f"?{urlencode(request.query)}" if getattr(form, "READS_QUERY", False) else ""
        conversation = form.read_request(f"{request.path}{query}", request.body)
        entry.model, entry.streamed = conversation.model, conversation.streamed
        entry.tag = entry.tag or conversation.model
        header = f"{request.headers.get(SCENARIO_HEADER, '')} {self.weather}"
        scenario = scenario_of(conversation.model, conversation.directives(), header)
        entry.tag = request.headers.get(TAG_HEADER) or scenario.tag or conversation.model
        if scenario.counted:
            scenario = scenario.on_turn(self.journal.turn(entry.tag))
        answer = replace(
            answer_of(conversation, scenario),
            partial_images=conversation.partial_images,
            origin=f"http://{request.headers.get('host', '')}",
        )
        gzipped = scenario.gzip and "gzip" in request.headers.get("accept-encoding", "")
        return perform(form, conversation, answer, scenario, gzipped=gzipped)


def _fixed(form: SandboxFormat, request: SandboxRequest, entry: JournalEntry) -> Iterable[Step] | None:
    """The benchmark model's steps; its requests are only glanced at."""
    if SCENARIO_HEADER in request.headers:
        return None
    glance = form.glance(request.path, request.body)
    if glance is None or glance.model != FAST:
        return None
    entry.tag, entry.model, entry.streamed = entry.tag or FAST, FAST, glance.streamed
    return fixed_performance(form, streamed=glance.streamed, wants_usage=glance.wants_usage)


def _give_picture(request: SandboxRequest) -> SandboxReply:
    """Answer with the image of a job; its address needs no key."""
    job = image_specialists.read_job(request.query)
    if job is None:
        return _json(404, {"detail": "Not found"})
    picture = image_specialists.picture_of(job)
    return SandboxReply((Head(200, (("content-type", "image/png"),), len(picture)), Body(picture)))


def _json(status: int, value: dict[str, Any]) -> SandboxReply:
    return SandboxReply(say(status, msgspec.json.encode(value)))
