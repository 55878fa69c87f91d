"""OpenAI Images, client side: writes streamed answers, `image_generation.*` and `image_edit.*` events.

Source: the event types of OpenAI's SDK (`openai/types/image_gen_*_event.py`, `image_edit_*_event.py`). Each picture has
a `completed` event, the last of which tells what all of them used. Must never fetch anything, nor know providers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Event,
    Failed,
    ImageMade,
    OpaqueDelta,
    PartialImage,
    Started,
    Summary,
    Waiting,
)
from apps.gateway.canonical.images import Drawing
from apps.gateway.dialects.chat.openai.shared.failures import write_error_object
from apps.gateway.dialects.chat.openai.shared.wire import encode
from apps.gateway.dialects.media.images.client.openai import usage_object
from apps.gateway.dialects.media.images.provider.image_answer import ECHOED, NAME_OF_EXTRAS

Record = dict[str, Any]

_PING: Final = b": ping\n\n"
_UNSAID: Final = "auto"


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer. The last picture waits for the counts, which its event bears."""
    drawing = chat.drawing or Drawing()
    family = "image_edit" if drawing.edits else "image_generation"
    about: Record = {name: getattr(drawing, name) or _UNSAID for name in ECHOED}
    created, last = 0, None
    for event in events:
        match event:
            case Waiting():
                yield _PING
            case Started():
                created = event.created
            case OpaqueDelta(of="reply", dialect=dialect) if dialect == NAME_OF_EXTRAS:
                about |= event.data
            case PartialImage() if event.index < (drawing.partial_images or 0):
                picture = _picture(f"{family}.partial_image", event.url, about, created)
                yield _frame(picture | {"partial_image_index": event.index})
            case ImageMade():
                if last is not None:
                    yield _frame(last)
                last = _picture(f"{family}.completed", event.url, about, created)
            case Failed():
                yield _frame({"type": "error", "error": write_error_object(event.error)})
            case Summary() if last is not None:
                yield _frame(last | {"usage": usage_object(event.usage)})


def _picture(kind: str, url: str, about: Record, created: int) -> Record:
    head, _, data = url.partition(",")
    media_type = head.removeprefix("data:").partition(";")[0]
    said = {name: about[name] for name in ECHOED}
    if said["output_format"] == _UNSAID:
        said["output_format"] = media_type.rpartition("/")[2] or "png"
    return {"type": kind, "b64_json": data, "created_at": created, **said}


def _frame(record: Record) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(record["type"]).encode(), encode(record))
