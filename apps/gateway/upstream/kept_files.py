"""Stored files: replaces a part that names a stored file's id by the file's content, for any provider.

The interface between requests and the app that stores files, which calls `install`. A foreign id goes to the provider
unchanged.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import cache
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, File, Image, Message, Opaque, Part, ToolResult
from apps.gateway.dialects.adapting.unsupported_fields import message_path
from apps.gateway.dialects.reading.fields import IMAGE_HEAD, image_type_of
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import BodyTooLarge, InvalidRequest

if TYPE_CHECKING:
    # The app that installs itself here does so in every process; most of them answer no request.
    from apps.gateway.access.policy import Policy

# Files in one request.
MAX_FILES: Final = 20
_BYTES: Final = CachedSetting("BODY_LIMIT")
_ID: Final = re.compile(r"file-[0-9a-f]{48}")
_HOLDING: Final = (File, Opaque, ToolResult)


class KeptFile(Protocol):
    """A file that is kept, not yet read."""

    name: str
    size: int

    def read(self) -> bytes:
        """Return its content. Raises DatabaseError."""


class FileKeeper(Protocol):
    """Stores files."""

    def find(self, policy: Policy, file_id: str, param: str) -> KeptFile:
        """Return a file that a caller reaches. Raises NotFound, which names the field, and DatabaseError."""


_installed: list[Callable[[], FileKeeper]] = []


def install(load: Callable[[], FileKeeper]) -> None:
    """Have files found from now on. `load` is called once, for the first of them: most processes have none."""
    _installed[:] = [cache(load)]


def names_kept_files(chat: Chat) -> bool:
    """Return whether a chat names a file that is kept here."""
    if not _installed or chat.kinds.isdisjoint(_HOLDING):
        return False
    return any(_id_of(part) is not None for _, part in _parts(chat))


def inline_kept_files(chat: Chat, policy: Policy, reserve: Callable[[int], None]) -> Chat:
    """Return the chat with the content of the stored files that it names; one that names none is returned unchanged.

    `reserve` is called with the number of bytes before they are read. Raises ApiError: NotFound for a file that the
    caller does not reach, InvalidRequest and BodyTooLarge beyond the bounds, and what `reserve` raises.
    """
    if not _installed or chat.kinds.isdisjoint(_HOLDING):
        return chat
    named = {file_id: place for place, part in _parts(chat) if (file_id := _id_of(part)) is not None}
    if not named:
        return chat
    if len(named) > MAX_FILES:
        raise InvalidRequest(f"A request may name at most {MAX_FILES} files", param="messages")
    found = {file_id: _installed[0]().find(policy, file_id, place) for file_id, place in named.items()}
    size = sum(file.size for file in found.values())
    if size > _BYTES.value:
        raise BodyTooLarge(f"The files that the request names are larger than {_BYTES.value} bytes together")
    # Base64 takes a third more.
    reserve(size * 4 // 3)
    inline = {file_id: _Inline(file.name, file.read()) for file_id, file in found.items()}

    def replaced(part: Part) -> Part:
        if isinstance(part, ToolResult):
            return replace(part, parts=[replaced(inner) for inner in part.parts])
        file_id = _id_of(part)
        return part if file_id is None else inline[file_id].in_place_of(part)

    messages = [_with(message, replaced) for message in chat.messages]
    return replace(chat, messages=messages, source=None)


def _with(message: Message, replaced: Callable[[Part], Part]) -> Message:
    return replace(message, parts=[replaced(part) for part in message.parts])


def _parts(chat: Chat) -> Iterator[tuple[str, Part]]:
    """Yield each part of the messages and of tools' results with its message's place."""
    for number, message in enumerate(chat.messages):
        place = message_path(chat, number)
        for part in message.parts:
            yield place, part
            if isinstance(part, ToolResult):
                yield from ((place, inner) for inner in part.parts)


def _id_of(part: Part) -> str | None:
    """Return the id of the kept file that a part names: a document's, or an image's in the words of its format."""
    named: Any = None
    if isinstance(part, File):
        named = part.file_id
    elif isinstance(part, Opaque) and isinstance(part.data, dict):
        data: dict[str, Any] = part.data
        source = data.get("source")
        named = data.get("file_id") if data.get("type") == "input_image" else None
        if data.get("type") == "image" and isinstance(source, dict) and source.get("type") == "file":
            named = source.get("file_id")
    return named if isinstance(named, str) and _ID.fullmatch(named) else None


class _Inline:
    """A file's content, as a part has it."""

    def __init__(self, name: str, content: bytes) -> None:
        self._name = name
        self._type = _type_of(name, content)
        self._data = offload(len(content), lambda: b64encode(content).decode())

    def in_place_of(self, part: Part) -> Part:
        """Return a part with the content instead of its id. Raises InvalidRequest for an image that is none."""
        if isinstance(part, File):
            filename = part.filename or self._name
            return replace(part, file_id=None, data=self._data, filename=filename, media_type=self._type)
        if not self._type.startswith("image/"):
            raise InvalidRequest("The file is no image of a kind that can be sent", code="invalid_parameters")
        detail: Any = part.data.get("detail") if isinstance(part, Opaque) and isinstance(part.data, dict) else None
        return Image(url=f"data:{self._type};base64,{self._data}", detail=detail if isinstance(detail, str) else None)


def _type_of(name: str, content: bytes) -> str:
    """Return a file's media type: what its first bytes tell, else its name, else that it is text or anything."""
    if (image_type := image_type_of(content[:IMAGE_HEAD])) is not None:
        return image_type
    if content.startswith(b"%PDF-"):
        return "application/pdf"
    if (by_name := guess_type(name)[0]) is not None:
        return by_name
    try:
        content.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
