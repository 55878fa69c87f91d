"""Questions about the contents of a conversation, each asked once."""

from __future__ import annotations

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Image, Message, Text, ToolCall


def test_a_chat_tells_the_kinds_of_its_own_messages_only() -> None:
    words, call = Text(text="hi"), ToolCall(id="1", name="weather", arguments="{}")
    chat = Chat(model="m", messages=[Message(role="user", parts=[words]), Message(role="assistant", parts=[call])])
    assert chat.kinds == {Text, ToolCall}
    other = replace(chat, messages=[Message(role="user", parts=[Image(url="https://example.com/a.png")])])
    assert other.kinds == {Image}
    assert chat.kinds == {Text, ToolCall}
