"""Tool loop: a model is asked, the server tools that it calls are called, and it is asked again, until it has answered.

The loop is above requests: each turn is one of its own, admitted, priced, logged and settled as any other, under the
same request id. The client gets their answers as one, with the sum of what they used. Calls of server tools are
withheld from a turn's events: the loop makes them, and reports them itself. Numbers of calls and thoughts, which
restart with each turn, are made distinct.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import structlog
from msgspec.structs import replace

from apps.billing.reservations import RateLimitStatus
from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Failed,
    Finished,
    OpaqueDelta,
    ReasoningDelta,
    Reply,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.metrics import RouteName
from apps.gateway.pipeline import open_chat
from apps.gateway.response_cache import CacheEntry
from apps.gateway.run import ChatRun
from apps.gateway.server_tools.toolset import (
    CallOutcome,
    ServerCall,
    Toolset,
    WantedServer,
    call_server_tool,
    find_toolset,
)
from apps.gateway.tool_calls import ToolCaller, caller_of
from apps.gateway.upstream.failover import Failover
from apps.kernel.errors import ApiError, InternalError, InvalidRequest
from apps.kernel.ids import new_id
from apps.kernel.usage import total_usage

log = structlog.get_logger(__name__)

# Turns of one answer, and calls of server tools in all of them. In the last turn the model may call none.
MAX_TURNS: Final = 10
MAX_CALLS: Final = 50

Answered = Sequence[tuple[ServerCall, CallOutcome]]


class ToolForm(Protocol):
    """A client format's side of server tools: one request's conversation in it, which grows turn by turn."""

    toolset: Toolset
    # Calls that the client allows in all turns together; None where it does not say.
    max_calls: int | None

    def begin_turn(self, chat: Chat) -> TurnTranscript:
        """Return the transcript of a turn that begins."""

    def listed(self) -> list[Event]:
        """Return the events that list the tools, which the client gets first."""

    def called(self, asked: ServerCall) -> list[Event]:
        """Return the client's events for a call that begins."""

    def answered(self, asked: ServerCall, outcome: CallOutcome) -> list[Event]:
        """Return the client's events for the end of a call."""

    def end_turn(self, turn: ModelTurn, answered: Answered) -> None:
        """Take note of a turn and of the calls that it led to."""

    def next_body(self, *, last: bool) -> bytes:
        """Return the body of the next turn's request; in the `last` one no tool may be called."""

    def reply(self, finish: Finished) -> Reply:
        """Return the whole answer, for formats that write it whole."""


class ToolLoop:
    """An answer in several turns. It is run and written as the one run of a model is (`ChatRun`)."""

    def __init__(
        self,
        first: ChatRun,
        form: ToolForm,
        caller: ToolCaller,
        watch: ClientDisconnect,
        reopen: Callable[[bytes], ChatRun],
    ) -> None:
        """Take the first turn's run; `reopen` opens that of a further one, with its body. `watch` is closed here."""
        self._first, self._form, self._caller, self._watch, self._reopen = first, form, caller, watch, reopen
        self._summaries: list[Summary] = []
        self._log_ids: list[str] = []
        self._finish = Finished(reason="stop")
        self._made = 0
        self._left = MAX_CALLS if form.max_calls is None else min(MAX_CALLS, form.max_calls)

    @property
    def chat(self) -> Chat:
        """The client's request."""
        return self._first.chat

    @property
    def attempts(self) -> Failover:
        """The calls of the first turn, with the dropped fields of the request."""
        return self._first.attempts

    @property
    def answer_bytes(self) -> int:
        """About how many bytes the first turn's answer has."""
        return self._first.answer_bytes

    @property
    def rate(self) -> RateLimitStatus | None:
        """How the client's rate stood when the first turn was let in."""
        return self._first.rate

    @property
    def cache(self) -> CacheEntry | None:
        """The cache entry of the first turn's answer."""
        return self._first.cache

    def events(self) -> Generator[Event, None, None]:
        """Yield the events of all turns as those of one answer and, last, the summary of them all.

        Raises ApiError as long as nothing was yielded; after that an error is the last event (`Failed`).
        """
        events, begun = self._turns(), False
        try:
            for event in events:
                begun = True
                yield event
        except ApiError as error:
            if not begun:
                raise
            yield Failed(error=error)
        except Exception as error:
            log.exception("server_tools.failed", request_id=self._caller.request_id)
            failure = InternalError("The gateway failed to answer this request")
            if not begun:
                raise failure from error
            yield Failed(error=failure)
        finally:
            events.close()
            self._watch.close()

    def reply(self) -> Reply:
        """Return the whole answer, for requests that do not stream."""
        return self._form.reply(self._finish)

    def _turns(self) -> Generator[Event, None, None]:
        run, characters, last = self._first, 0, False
        for number in range(MAX_TURNS):
            turn = ModelTurn(run, number, self._form.toolset, self._form.begin_turn(run.chat), characters)
            for event in turn.events():
                yield event
                if type(event) is Started:
                    yield from self._form.listed()
            characters = turn.characters
            self._note(turn)
            answered = yield from self._call(turn.calls, may_go_on=not last)
            self._form.end_turn(turn, answered)
            if turn.asks_client or not answered or last:
                self._finish = _end_of(turn)
                break
            last = number + 2 == MAX_TURNS or self._left <= 0
            run = self._reopen(self._form.next_body(last=last))
        yield self._finish
        yield self._summary()

    def _note(self, turn: ModelTurn) -> None:
        if turn.summary is None:
            raise InternalError("The answer ended without a summary")
        self._summaries.append(turn.summary)
        self._log_ids.append(turn.started.log_id)

    def _call(self, calls: list[ServerCall], *, may_go_on: bool) -> Generator[Event, None, Answered]:
        """Make the calls of a turn, one after the other; beyond the limits they are refused. Raises ClientGone."""
        answered = []
        for asked in calls:
            yield from self._form.called(asked)
            if may_go_on and self._left > 0:
                self._left -= 1
                self._made += 1
                outcome = yield from call_server_tool(self._caller, asked, self._watch)
            else:
                outcome = CallOutcome(error=_TOO_MANY)
            yield from self._form.answered(asked, outcome)
            answered.append((asked, outcome))
        return answered

    def _summary(self) -> Summary:
        """Return the summary of all turns: what they used and cost together, and how the last of them was routed."""
        cost: dict[str, Any] = {}
        for summary in self._summaries:
            for part, amount in summary.cost.items():
                cost[part] = cost.get(part, 0) + amount
        totals = {"turns": len(self._summaries), "calls": self._made, "log_ids": self._log_ids}
        metadata = {**self._summaries[-1].metadata, "server_tools": totals}
        return Summary(usage=total_usage(one.usage for one in self._summaries), cost=cost, metadata=metadata)


_TOO_MANY: Final = InvalidRequest("The limit of tool calls for this answer is reached: answer without more tools")


def _end_of(turn: ModelTurn) -> Finished:
    """Return how the whole answer ends: calls that the client never sees are no reason."""
    if turn.finish.reason == "tool_calls" and not turn.asks_client:
        return Finished(reason="stop")
    return turn.finish


# Between the numbers of one turn and the next.
STEP: Final = 1_000_000
# How an answer ends that was not cut off.
_WHOLE: Final = frozenset({"stop", "tool_calls"})


class TurnTranscript(Protocol):
    """A client format's transcript of a turn, from which the next goes on."""

    def add(self, event: Event) -> None:
        """Take note of an event, as the model's answer has it."""

    def shown(self, event: Event) -> Iterable[Event]:
        """Return the client's events for an event of a wire format's own (`OpaqueDelta`)."""


class ModelTurn:
    """One run of a model, `number` of them before it."""

    def __init__(
        self, run: ChatRun, number: int, toolset: Toolset, transcript: TurnTranscript, characters: int
    ) -> None:
        """`characters` is how many the client was given in the turns before it."""
        self.transcript = transcript
        self.finish = Finished(reason="stop")
        self.started = Started()
        self.summary: Summary | None = None
        self.characters = characters
        # Whether the model asks for a tool of the client's own.
        self.asks_client = False
        self._run, self._number, self._toolset, self._before = run, number, toolset, characters
        self._calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}

    def events(self) -> Generator[Event, None, None]:
        """Yield the client's events of the turn, without its end. The turn is recorded when this has come to its end.

        Raises ApiError.
        """
        events = self._run.events()
        try:
            for event in events:
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Summary):
                    self.summary = event
                elif event.choice == 0:
                    yield from self._passed(event)
        finally:
            events.close()

    @property
    def calls(self) -> list[ServerCall]:
        """The calls of server tools that the model asks for; none of an answer that was cut off."""
        if self.finish.reason not in _WHOLE:
            return []
        return [
            ServerCall(id=call.id, offered=self._toolset.by_function[call.name], arguments="".join(pieces))
            for call, pieces in self._calls.values()
        ]

    def _passed(self, event: Event) -> Iterator[Event]:
        self.transcript.add(event)
        match event:
            case Finished():
                self.finish = event
            case Started() | UsageReported():
                self.started = event if isinstance(event, Started) else self.started
                if not self._number:
                    yield event
            case ToolCallStarted() if self._is_ours(event):
                self._calls[event.index] = event, []
            case ToolCallDelta() if event.index in self._calls:
                self._calls[event.index][1].append(event.arguments)
            case TextDelta():
                self.characters += len(event.text)
                yield event
            case OpaqueDelta():
                yield from self.transcript.shown(event)
            case _:
                yield self._moved(event)

    def _is_ours(self, call: ToolCallStarted) -> bool:
        is_ours = call.name in self._toolset.by_function and not (call.extra or {}).get("namespace")
        self.asks_client = self.asks_client or not is_ours
        return is_ours

    def _moved(self, event: Event) -> Event:
        """Return an event with its numbers and places, as they are in the whole answer."""
        shift = self._number * STEP
        match event:
            case ToolCallStarted() | ToolCallDelta():
                return replace(event, index=event.index + shift)
            case ReasoningDelta():
                return replace(event, block=event.block + shift)
            case Annotated():
                return replace(event, annotation=_moved(event.annotation, self._before))
        return event


def _moved(note: dict[str, Any], by: int) -> dict[str, Any]:
    """Return a citation of a text that stands behind so many characters."""
    page = note.get("url_citation")
    if not by or not isinstance(page, dict):
        return note
    places = {
        name: page[name] + by
        for name in ("start_index", "end_index")
        if isinstance(page.get(name), int) and not isinstance(page[name], bool)
    }
    return {**note, "url_citation": {**page, **places}}


class TurnRequest(ClientRequest):
    """A client's request with another body, which contains the answer so far."""

    def __init__(self, first: ClientRequest, body: bytes) -> None:
        """Take the client's own request, and the body, which is JSON."""
        super().__init__(first.environ_with_body(body), first.route, first.parameters)
        self._first = first
        self.conversation_id, self.response_chain = first.conversation_id, first.response_chain
        self.stated_effects = first.stated_effects

    @property
    def request_id(self) -> str:
        """That of the client's own request: the log finds all turns by it."""
        return self._first.request_id

    def watch_disconnect(self) -> ClientDisconnect:
        """Return a watch on the client's connection, or whatever else ends its request."""
        return self._first.watch_disconnect()


class ServerToolRequest:
    """One client's request that names servers: the caller of their tools, and the form of its conversation."""

    def __init__(self, request: ClientRequest, token: str, route: RouteName) -> None:
        """Take the client's request. Raises InvalidRequest for one that has come through here before."""
        self._request, self._token, self._route = request, token, route
        # A session of its own at each server: a tool's state is there for the next call of this answer only.
        self._caller: ToolCaller = caller_of(request, token, session_scope=f"answer:{new_id().hex}")

    def find_toolset(self, policy: Policy, wanted: Sequence[WantedServer], taken: frozenset[str]) -> Toolset:
        """Return the tools of the servers that are named. Raises as `toolset.find_toolset` does."""
        # No provider's batch API calls tools: a batch's line is answered as a request of its own.
        if self._request.batch_exchange is not None and not self._request.batch_exchange.is_settled:
            self._request.batch_exchange = None
        toolset = find_toolset(policy, self._caller, wanted, taken)
        self._request.stated_effects = toolset.stated_effects
        return toolset

    def loop(self, first: ChatRun, form: ToolForm, read: Callable[[bytes], Chat]) -> ToolLoop:
        """Return the answer in several turns; `read` reads the body of a further one."""

        def reopen(body: bytes) -> ChatRun:
            turn = TurnRequest(self._request, body)
            try:
                return open_chat(turn, self._route, self._token, read)
            except BaseException:
                turn.release_bytes()
                raise

        return ToolLoop(first, form, self._caller, self._request.watch_disconnect(), reopen)
