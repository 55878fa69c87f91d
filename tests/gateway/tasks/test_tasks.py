"""A request's kind: each answers every question, and one that does not stops the process at its start."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    OpaqueTool,
    ReasoningRequest,
    Target,
    TaskName,
    Text,
)
from apps.gateway.canonical.events import Finished
from apps.gateway.canonical.task_options import (
    Embedding,
    ImageRequest,
    Moderation,
    Ranked,
    Recording,
    Reranking,
    Speech,
    Transcription,
)
from apps.gateway.dialects import find_dialect
from apps.gateway.dialects.media.images import client as images_client
from apps.gateway.dialects.media.images import find_image_dialect
from apps.gateway.tasks import TASKS, Task, load_tasks
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.kernel.errors import InvalidRequest
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage
from tests.catalog.small import model, offer

PIXEL = "data:image/png;base64,iVBORw0KGgo="
SAID = [Message(role="user", parts=[Text(text="a fox")])]
CHAT = Chat(model="m", messages=SAID, n=2)
IMAGES = Chat(model="m", messages=SAID, n=2, task="images", image_request=ImageRequest(mask=PIXEL))
EMBEDDINGS = Chat(model="m", messages=SAID, task="embeddings", embedding=Embedding(dimensions=2))
RERANK = Chat(
    model="m",
    messages=[Message(role="user", parts=[Text(text="q"), Text(text="a fox"), Text(text="a cat")])],
    task="rerank",
    reranking=Reranking(top_n=1),
)
MODERATIONS = Chat(model="m", messages=SAID, task="moderations", moderation=Moderation())
COMPLETIONS = replace(CHAT, task="completions")
SPEECH = Chat(model="m", messages=SAID, stream=True, task="speech", speech=Speech(voice="alloy"))
RECORDING = Recording(
    extension="wav", media_type="audio/wav", data=b"RIFF", digest="d", milliseconds=2_000, max_milliseconds=9_000
)
TRANSCRIPT = Chat(model="m", messages=[], task="transcription", transcription=Transcription(recording=RECORDING))
CHATS: dict[TaskName, Chat] = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "images": IMAGES,
    "embeddings": EMBEDDINGS,
    "rerank": RERANK,
    "moderations": MODERATIONS,
    "speech": SPEECH,
    "transcription": TRANSCRIPT,
}
DRAWS = {"images": {"dialect": "openai", "most": 4, "inputs": 1}, "rerank": {"dialect": "jina"}}
HEARS_AND_SPEAKS = {"speech": {"dialect": "openai"}, "transcription": {"dialect": "openai", "takes": ["stream"]}}
DRAWS_IN_CHAT = {"images": {"dialect": "chat"}}


@pytest.mark.parametrize("name", get_args(TaskName))
def test_each_kind_answers_each_question(name: TaskName) -> None:
    chat = CHATS[name]
    kind = TASKS[chat.task]
    assert (kind.name, TASKS[Chat(model="m", messages=[], task=name).task]) == (name, kind)
    one = offer("painter", "m", facts=DRAWS | HEARS_AND_SPEAKS)
    target = Target(model_name="m", facts=DRAWS)
    assert all(need.name and isinstance(need.is_met_by(one), bool) for need in kind.requirements_of(chat))
    assert isinstance(kind.is_served_by(model("m", one), chat), bool)
    assert kind.find_dialect(chat, one) is not None
    assert kind.list_price(chat, one) > 0
    assert kind.count_images(chat) >= 0
    heard = 9 * 20 if name == "transcription" else 0
    assert kind.usage_before_answer(chat, 7, one).prompt_tokens == 7 + heard
    assert isinstance(kind.adapt_request(chat, target), Chat)
    assert kind.find_missing_result(1, Finished(reason="stop")) is None
    assert (kind.split is None) == (name in {"chat", "completions", "speech", "transcription"})
    assert kind.usage_without_counts(chat, 7, 3, 0, PriceCard(input=Decimal(1))).estimated is True
    assert {type(answer) for answer in (kind.fits_context, kind.writes_tokens, kind.fetches_images)} == {bool}


def test_what_a_chat_and_a_request_for_pictures_answer_differently() -> None:
    chat, images = TASKS[CHAT.task], TASKS[IMAGES.task]
    painter = offer("painter", "m", facts=DRAWS, prices=PriceCard(image=Decimal("0.04")))
    talker = offer("talker", "m")
    assert chat.find_dialect(CHAT, painter) is find_dialect("openai")
    assert images.find_dialect(IMAGES, painter) is find_image_dialect(DRAWS, "openai")
    assert images.find_dialect(IMAGES, talker) is None
    polyglot = offer("polyglot", "m", facts={"client_dialects": ["responses"]})
    asked = replace(CHAT, dialect="responses")
    assert chat.find_dialect(asked, polyglot) is find_dialect("responses")
    assert chat.find_dialect(asked, talker) is find_dialect("openai")
    assert chat.find_dialect(CHAT, polyglot) is find_dialect("openai")
    assert (chat.count_images(CHAT), images.count_images(IMAGES)) == (0, 2)
    assert (chat.list_price(CHAT, talker), images.list_price(IMAGES, painter)) == (Decimal(3), Decimal("0.08"))
    assert chat.usage_before_answer(CHAT, 7, talker) == Usage(input=7)
    assert images.usage_before_answer(IMAGES, 7, painter) == Usage(images=2)
    assert [need.name for need in images.requirements_of(IMAGES)] == ["2 images at a time", "a mask"]
    assert [need.name for need in chat.requirements_of(CHAT)] == []
    assert (chat.fits_context, images.fits_context) == (True, False)
    assert (chat.writes_tokens, images.writes_tokens) == (True, False)
    assert (chat.fetches_images, images.fetches_images) == (False, True)
    assert (chat.may_bring_media(CHAT, talker), images.may_bring_media(IMAGES, talker)) == (False, True)
    assert chat.may_bring_media(CHAT, painter)
    assert (list(chat.files_to_screen(CHAT)), list(images.files_to_screen(IMAGES))) == ([], [("mask", PIXEL)])


def test_an_answer_without_the_pictures_asked_for_is_an_error_and_an_empty_chat_is_not() -> None:
    finish = Finished(reason="stop", native="SAFETY")
    assert TASKS[CHAT.task].find_missing_result(0, finish) is None
    assert TASKS[IMAGES.task].find_missing_result(1, finish) is None
    error = TASKS[IMAGES.task].find_missing_result(0, finish)
    assert error is not None
    assert (error.status, error.message, error.from_provider) == (500, "The model generated no images (SAFETY)", True)


def test_a_model_of_another_kind_is_refused_with_the_place_to_ask() -> None:
    talker, painter = model("talker", offer("one", "talker")), model("painter", offer("one", "painter", facts=DRAWS))
    with pytest.raises(InvalidRequest, match="talker does not make images"):
        TASKS[IMAGES.task].check_model(talker, IMAGES)
    painting = model("painter", offer("one", "painter", facts=DRAWS), mode="image_generation")
    with pytest.raises(InvalidRequest, match="not a chat model; ask for it at /v1/images/generations"):
        TASKS[CHAT.task].check_model(painting, CHAT)
    TASKS[CHAT.task].check_model(talker, CHAT)
    TASKS[IMAGES.task].check_model(painter, IMAGES)
    assert (TASKS[CHAT.task].is_served_by(painting, CHAT), TASKS[IMAGES.task].is_served_by(painting, IMAGES)) == (
        False,
        True,
    )


def test_a_model_that_draws_in_chats_is_asked_as_a_chat() -> None:
    asked = TASKS[IMAGES.task].adapt_request(IMAGES, Target(model_name="m", facts=DRAWS_IN_CHAT))
    assert (asked.task, asked.image_request, asked.modalities) == ("chat", None, ["text", "image"])
    assert TASKS[IMAGES.task].adapt_request(IMAGES, Target(model_name="m", facts=DRAWS)) is IMAGES


def test_a_request_says_of_which_kind_it_is() -> None:
    assert images_client.read_generation(b'{"model": "m", "prompt": "a fox"}').task == "images"
    assert CHAT.task == "chat"


def test_what_speech_and_transcripts_use_before_they_are_answered_and_where_nobody_counts() -> None:
    speech, transcript = TASKS[SPEECH.task], TASKS[TRANSCRIPT.task]
    by_character, by_minute = PriceCard(characters=Decimal(15)), PriceCard(audio_minute=Decimal(1))
    tokens = PriceCard(input=Decimal(1), audio_input=Decimal(1), output=Decimal(1))
    aloud, timed = offer("a", "m", prices=by_character), offer("b", "m", prices=by_minute)
    assert speech.usage_before_answer(SPEECH, 7, aloud) == Usage(characters=5)
    assert speech.usage_without_counts(SPEECH, 7, 9, 0, by_character) == Usage(characters=5)
    # Five letters of two and a half tokens; a half of what samples weigh.
    assert speech.usage_before_answer(SPEECH, 7, offer("c", "m")) == Usage(input=7, audio_output=13)
    slow = replace(SPEECH, speech=Speech(voice="a", response_format="wav", speed=0.5))
    assert speech.usage_before_answer(slow, 7, offer("c", "m")) == Usage(input=7, audio_output=26)
    assert speech.usage_without_counts(slow, 7, 9, 0, tokens) == Usage(input=7, audio_output=4, estimated=True)
    assert speech.usage_without_counts(SPEECH, 7, 99, 0, tokens) == Usage(input=7, audio_output=13, estimated=True)
    assert transcript.usage_before_answer(TRANSCRIPT, 0, timed) == Usage(audio_milliseconds=9_000)
    assert transcript.usage_without_counts(TRANSCRIPT, 0, 3, 0, by_minute) == Usage(
        audio_milliseconds=2_000, estimated=True
    )
    assert transcript.usage_without_counts(TRANSCRIPT, 4, 3, 0, tokens) == Usage(
        input=4, audio_input=20, output=3, estimated=True
    )
    path_of = (speech.path_for_client, transcript.path_for_client)
    assert [path is None for path in path_of] == [False, False]
    assert speech.path_for_client is not None
    assert speech.path_for_client("messages[1].content[0].text") == "instructions"


# --- tasks that are found at the start


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[str, Task]:
    """Load the kinds of a folder's package."""
    (folder / "kinds_of_a_test").mkdir(exist_ok=True)
    monkeypatch.syspath_prepend(folder)
    return load_tasks(names, "kinds_of_a_test", [str(folder / "kinds_of_a_test")])


def write(folder: Path, name: str, text: str) -> None:
    """Write a module of that package."""
    (folder / "kinds_of_a_test").mkdir(exist_ok=True)
    (folder / "kinds_of_a_test" / f"{name}.py").write_text(text)


OF_CHAT = "from dataclasses import replace\nfrom apps.gateway.tasks.chat import TASK as CHAT\n"


def test_a_kind_that_nobody_has_written_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LookupError, match=r"'smell'.*kinds_of_a_test/smell\.py is missing"):
        load(tmp_path, monkeypatch, "smell")


@pytest.mark.parametrize("text", ["", "TASK = 1", OF_CHAT + "TASK = CHAT"], ids=["none", "no task", "another's name"])
def test_a_module_without_its_kind_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    name = f"kind_{abs(hash(text))}"
    write(tmp_path, name, text)
    with pytest.raises(LookupError, match=f"must define TASK, a Task of the name '{name}'"):
        load(tmp_path, monkeypatch, name)


def test_a_kind_that_is_not_listed_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "echo", OF_CHAT + "TASK = replace(CHAT, name='echo')")
    with pytest.raises(LookupError, match="has to list"):
        load(tmp_path, monkeypatch)


def test_a_kind_that_leaves_a_question_open_stops_the_start() -> None:
    with pytest.raises(TypeError, match="missing 17 required keyword-only arguments"):
        Task(name="chat")  # type: ignore[call-arg]  # the tested fault


# --- parts of a request for vectors


def lengths(facts: dict[str, object], chat: Chat) -> list[int]:
    """Return how many inputs each call has."""
    split = TASKS[chat.task].split
    assert split is not None
    return [part.results for part in split(chat, offer("one", "m", facts={"embeddings": facts}))]


def asking(*texts: str) -> Chat:
    """Return a request for the vectors of texts."""
    message = Message(role="user", parts=[Text(text=text) for text in texts])
    return Chat(model="m", messages=[message], task="embeddings", embedding=Embedding())


def test_parts_have_no_more_inputs_and_tokens_than_a_provider_takes() -> None:
    assert lengths({"most": 2}, asking(*"abcde")) == [2, 2, 1]
    assert lengths({"most": 5}, asking(*"abcde")) == [5]
    assert lengths({"most": 9, "most_tokens": 3}, asking("x" * 8, "x" * 4, "x" * 4, "x" * 40, "x")) == [2, 1, 1, 1]
    tokens = replace(asking(), embedding=Embedding(tokens=[[1, 2], [3], [4, 5]]))
    assert lengths({"most": 9, "most_tokens": 3}, tokens) == [2, 1]
    # 4,096 numbers each, where the model's length is not stated: 2.5 million at a time.
    assert lengths({"most": 2048}, asking(*["a"] * 1000)) == [610, 390]


# --- rankings


def test_a_ranking_is_one_call_and_its_places_are_those_of_the_request() -> None:
    split = TASKS[RERANK.task].split
    assert split is not None
    [part] = split(RERANK, offer("one", "m"))
    assert (part.chat, part.results) == (RERANK, 1)
    assert part.find_fault is not None
    assert part.find_fault([Ranked(1, 0.5), Ranked(0, 0.25)]) is None
    assert part.find_fault([Ranked(1, 0.5), Ranked(1, 0.25)]) == "ranked a document twice"
    for place in (-1, 2, 10**20):
        assert part.find_fault([Ranked(place, 0.5)]) == "ranked a document that is not among the 2 of the request"


def test_a_search_unit_is_a_query_over_a_hundred_documents_and_a_long_document_is_several() -> None:
    def units(*documents: str) -> int:
        texts = [Text(text="q" * 400), *(Text(text=document) for document in documents)]
        asked = replace(RERANK, messages=[Message(role="user", parts=texts)])
        card = PriceCard(search_unit=Decimal("0.002"))
        return TASKS[asked.task].usage_before_answer(asked, 7, offer("one", "m", prices=card)).search_units

    assert (units("a"), units(*["a"] * 100), units(*["a"] * 101)) == (1, 1, 2)
    # 400 tokens of a document go with a query of 100.
    assert (units(*["x" * 1_600] * 100), units(*["x" * 1_604] * 100)) == (1, 2)


def test_a_query_is_read_with_each_document() -> None:
    several = replace(
        RERANK, messages=[replace(RERANK.messages[0], parts=[Text(text="q" * 40), *[Text(text="a")] * 3])]
    )
    one = replace(several, messages=[replace(several.messages[0], parts=several.messages[0].parts[:2])])
    assert estimate_prompt_tokens(several) - estimate_prompt_tokens(one) == 2 * 10 + 2


def test_tools_and_reasoning_choose_the_dialect_that_an_offer_states_for_them() -> None:
    chat = TASKS[CHAT.task]
    tools = replace(CHAT, tools=[FunctionTool(name="look")])
    thinks = offer("thinks", "m", facts={"tools_dialect": "responses"})
    chooses = offer("chooses", "m", facts={"reasoning_tools_dialect": "responses"})
    plain, responses = find_dialect("openai"), find_dialect("responses")
    assert [chat.find_dialect(one, thinks) for one in (CHAT, replace(tools, tools=[]), tools)] == [
        plain,
        plain,
        responses,
    ]
    stated = {
        "nothing": tools,
        "none": replace(tools, reasoning=ReasoningRequest(effort="none")),
        "no tools": replace(CHAT, reasoning=ReasoningRequest(effort="low")),
        "an effort": replace(tools, reasoning=ReasoningRequest(effort="low")),
        "a number of tokens": replace(tools, reasoning=ReasoningRequest(max_tokens=2_000)),
        "the option `effort`": replace(tools, effort="high"),
    }
    asked_at = {name: chat.find_dialect(one, chooses) for name, one in stated.items()}
    assert asked_at == {
        "nothing": plain,
        "none": plain,
        "no tools": plain,
        "an effort": responses,
        "a number of tokens": responses,
        "the option `effort`": responses,
    }
    searches = offer("searches", "m", facts={"search_dialect": "openai", "tools_dialect": "responses"})
    assert chat.find_dialect(replace(tools, web_search=True), searches) is plain


@pytest.mark.parametrize("dialect", ["openai", "responses"])
def test_a_search_of_x_is_asked_for_where_searches_are(dialect: str) -> None:
    searches = offer("searches", "m", facts={"search_dialect": "responses"})
    for kind, found in (("x_search", "responses"), ("code_interpreter", "openai")):
        asked = replace(CHAT, tools=[OpaqueTool(dialect=dialect, data={"type": kind})])
        assert TASKS[CHAT.task].find_dialect(asked, searches) is find_dialect(found)
