"""The values in which formats and scripted replies talk: a conversation in, an answer or a refusal out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from apps.sandbox.scenario import split_directives

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "tool_calls", "content_filter"]
Schema = dict[str, Any] | bool
FREE_TEXT: Schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The schema of a custom tool's one argument."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `text` of an assistant's turn includes the names and arguments of its calls.

    `name` is the tool's on a tool's result; attachments are counted by kind, as in `("image", 2)`.
    """

    role: Role
    text: str = ""
    name: str | None = None
    attachments: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxTool:
    """A function that the answer may call; `schema` is JSON Schema of its arguments.

    A `custom` tool takes free text: a call with one argument is written as that text alone.
    """

    name: str
    description: str
    schema: Schema
    custom: bool = False
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that the answer depends on. `tool_choice` is `auto`, `none`, `required` or `=` and a tool's name.

    `schema` is None when text is wanted, and the schema (perhaps empty) when JSON is.
    """

    model: str
    turns: tuple[Turn, ...]
    tools: tuple[SandboxTool, ...] = ()
    tool_choice: str = "auto"
    parallel_calls: bool = True
    schema: Schema | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    choices: int = 1
    effort: str | None = None
    streamed: bool = False
    wants_usage: bool = False
    # The size that pictures are to have, as in `64x48`, if it is said; and whether nothing else is asked for.
    picture: str = ""
    only_pictures: bool = False
    # Unfinished pictures that are sent ahead of each.
    partial_images: int = 0
    # Numbers in the vector of each turn, where vectors are asked for, and whether these are to be base64.
    vector_length: int | None = None
    vectors_in_base64: bool = False
    # Whether the turns after the first are to be ranked by it, and how many of them are wanted at most.
    ranks: bool = False
    max_ranked: int | None = None
    # In whose words the answer is to be, where the format alone does not tell.
    written_as: str = ""
    # The names of the categories that each turn is to be judged by.
    categories: tuple[str, ...] = ()
    # Whether the last turn is to be read aloud; seconds of the recording that it was heard in; the form of the answer.
    speaks: bool = False
    heard: float | None = None
    form: str = ""

    @property
    def question(self) -> Turn | None:
        """The last thing the user said."""
        return next((turn for turn in reversed(self.turns) if turn.role == "user"), None)

    @property
    def results(self) -> list[Turn]:
        """The tool results that the conversation ends with, oldest first."""
        results: list[Turn] = []
        for turn in reversed(self.turns):
            if turn.role != "tool":
                break
            results.insert(0, turn)
        return results

    def directives(self) -> Iterator[str]:
        """Yield the scenario directives in system messages, then those in the last user message."""
        for turn in (*(turn for turn in self.turns if turn.role == "system"), self.question):
            if turn is not None:
                yield split_directives(turn.text)[1]


@dataclass(frozen=True, slots=True)
class SandboxToolCall:
    """A call that the answer asks for; `arguments` is JSON text, of a `custom` tool free text."""

    id: str
    name: str
    arguments: str
    custom: bool = False
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """One answer of perhaps several. `text` is None when there are only calls."""

    text: str | None
    reasoning: str | None
    calls: tuple[SandboxToolCall, ...]
    finish: Finish
    # PNG files.
    pictures: tuple[bytes, ...] = ()
    # Tokens that are counted and never shown.
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """Tokens. `prompt` includes `cached`, `cache_write` and `attached`; `completion` `reasoning` and `painted`."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0
    cache_write: int = 0
    attached: int = 0
    painted: int = 0


@dataclass(frozen=True, slots=True)
class SandboxAnswer:
    """The reply to a conversation. `id` is the same for the same conversation, and has no format's prefix."""

    id: str
    model: str
    choices: tuple[SandboxChoice, ...]
    usage: SandboxUsage | None
    # The size of its pictures.
    picture: str = ""
    # Where vectors were asked for: one for each turn, and how many tokens each turn has.
    vectors: tuple[tuple[float, ...], ...] = ()
    tokens_of_inputs: tuple[int, ...] = ()
    vectors_in_base64: bool = False
    # Where a ranking was asked for: places of documents and how relevant they are, and what that is in search units.
    ranking: tuple[tuple[int, float], ...] = ()
    search_units: int = 0
    written_as: str = ""
    # Where judgements were asked for: of each turn the scores by category.
    judgements: tuple[dict[str, float], ...] = ()
    judges_pictures: bool = False
    # Unfinished pictures that a stream sends ahead of each.
    partial_images: int = 0
    # Where the sandbox was asked, as in `http://127.0.0.1:8001`, for formats that name addresses.
    origin: str = ""
    # Audio, if a text is to be spoken; seconds of the audio input; the requested format.
    sound: tuple[bytes, ...] = ()
    heard: float | None = None
    form: str = ""
