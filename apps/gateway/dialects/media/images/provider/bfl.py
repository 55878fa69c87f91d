"""Black Forest Labs images, provider side: a job at `/<model>`, asked after at `polling_url` until its image is there.

`apps/gateway/upstream/jobs.py` polls the job, at hosts that a fact states. Source:
https://api.bfl.ai/openapi.json (`AsyncResponse`, `ResultResponse`, `StatusResponse`) and
https://docs.bfl.ai/api_integration/integration_guidelines, read 2026-11-23:
images are served at changing hosts below `bfl.ai`, for 10 minutes, and are not to be handed on by address.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Finished, ImageMade, Started, UsageReported
from apps.gateway.dialects import Failure, JobReader, ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, failed, find_failure, read_failure
from apps.gateway.dialects.media.images import asked_of, capabilities_of
from apps.gateway.dialects.reading.answers import MAX_ERROR_LENGTH, failure_event, read_answer, unreadable_answer
from apps.kernel.usage import Usage

# The latter two are not in its description: other words for the same do no harm.
_PENDING: Final = ("Pending", "Queued", "Processing")
# Final states of a job without an image: the status and code for clients, and the message.
_ENDS: Final = {
    "Request Moderated": (400, "moderation_blocked", "The provider's moderation refused the request"),
    "Content Moderated": (400, "moderation_blocked", "The provider's moderation withheld the image that was made"),
    "Task not found": (502, "job_lost", "The provider does not know the job any more"),
    "Error": (502, "upstream_error", "The provider failed to make the image"),
    "Failed": (502, "upstream_error", "The provider failed to make the image"),
}


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL: each model has its own."""
    return f"/{target.model_name}"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    asked = asked_of(chat, target)
    wire: dict[str, Any] = {"prompt": asked.prompt}
    for name in ("output_format", "seed", "aspect_ratio"):
        if name in asked.options:
            wire[name] = asked.options[name]
    sizes = asked.capabilities.sizes
    if size := asked.options.get("size") or (sizes[0] if sizes else None):
        # Stated also where the client does not say it: the price is that of these sizes.
        wire["width"], wire["height"] = map(int, size.split("x"))
    for number, image in enumerate(asked.inputs, 1):
        wire["input_image" if number == 1 else f"input_image_{number}"] = b64encode(image.data).decode()
    return encode(wire)


def read_job(body: bytes) -> str | None:
    """Return the address at which the job that was taken is asked after; None where the body tells of none."""
    try:
        answer = read_answer(body)
    except ValueError:
        return None
    address = answer.get("polling_url") if isinstance(answer, dict) else None
    return address if isinstance(address, str) and address else None


def is_pending(body: bytes) -> bool:
    """Return whether a job is still under way."""
    try:
        answer = read_answer(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("status") in _PENDING


def provider_hosts(target: Target) -> tuple[str, ...]:
    """Return the hosts that are the provider's, each with all below it."""
    capabilities = capabilities_of(target.facts)
    return () if capabilities is None else capabilities.hosts


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a job that is over; one that ended without an image ends with `Failed`."""
    try:
        answer = read_answer(body)
    except ValueError:
        yield unreadable_answer("The provider sent invalid JSON")
        return
    answer = answer if isinstance(answer, dict) else {}
    status, result = answer.get("status"), answer.get("result")
    if isinstance(status, str) and (end := _ENDS.get(status)) is not None:
        number, code, words = end
        yield failure_event(Failure(message=f"{words}{_why(answer)}", code=code), number)
        return
    address = result.get("sample") if isinstance(result, dict) else None
    if status != "Ready" or not isinstance(address, str) or not address:
        failure = find_failure(answer)
        yield failed(answer, failure) if failure else unreadable_answer("The provider sent an answer without an image")
        return
    yield Started()
    yield ImageMade(url=address)
    yield Finished(reason="stop", native=status)
    yield UsageReported(usage=Usage(images=1))


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer: none is ever asked for."""
    yield unreadable_answer("The provider streamed an answer that was requested whole")


def _why(answer: dict[str, Any]) -> str:
    """Return what the provider adds to how a job ended."""
    details = answer.get("details")
    return f": {encode(details).decode()[:MAX_ERROR_LENGTH]}" if isinstance(details, dict) and details else ""


PROVIDER: Final = ProviderDialect(
    name="bfl",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    jobs=JobReader(read_address=read_job, is_pending=is_pending, hosts=provider_hosts),
)
