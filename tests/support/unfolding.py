"""A whole reply as the events that it would have been: what the laws of dialects are stated with."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from apps.gateway.canonical.events import (
    Annotated,
    Choice,
    Event,
    Finished,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    RefusalDelta,
    Reply,
    Searched,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)


def unfold(reply: Reply) -> Iterator[Event]:
    """Yield the events of a reply that arrived whole."""
    yield Started(id=reply.id, model=reply.model, created=reply.created, extra=reply.extra)
    for index, choice in enumerate(reply.choices):
        yield from _unfold_choice(index, choice)
    if reply.usage is not None:
        yield UsageReported(usage=reply.usage)


def _unfold_choice(index: int, choice: Choice) -> Iterator[Event]:
    for dialect, data in choice.choice_extra.items():
        yield OpaqueDelta(choice=index, dialect=dialect, data=data, of="choice")
    for dialect, data in choice.extra.items():
        yield OpaqueDelta(choice=index, dialect=dialect, data=data)
    for block in choice.reasoning:
        yield replace(block, choice=index)
    yield from _unfold_message(index, choice)
    for number, call in enumerate(choice.tool_calls):
        yield ToolCallStarted(choice=index, index=number, id=call.id, name=call.name, extra=call.extra)
        if call.arguments:
            yield ToolCallDelta(choice=index, index=number, arguments=call.arguments)
    if choice.finish is not None:
        yield Finished(
            choice=index,
            reason=choice.finish,
            native=choice.native_finish,
            stop_sequence=choice.stop_sequence,
            explanation=choice.explanation,
        )


def _unfold_message(index: int, choice: Choice) -> Iterator[Event]:
    yield from (Searched(choice=index, query=query) for query in choice.searches)
    if choice.logprobs is not None:
        yield Logprobs(choice=index, logprobs=choice.logprobs)
    if choice.text is not None:
        yield TextDelta(choice=index, text=choice.text)
    if choice.refusal is not None:
        yield RefusalDelta(choice=index, text=choice.refusal)
    if choice.audio is not None:
        yield replace(choice.audio, choice=index)
    for url in choice.images:
        yield ImageMade(choice=index, url=url)
    for annotation in choice.annotations:
        yield Annotated(choice=index, annotation=annotation)
