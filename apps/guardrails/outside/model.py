"""Guard model: a chat model of this gateway judges texts, in Llama Guard's or ShieldGemma's format or by an own prompt.

Each question is a chat completion. Servers of guard models write the prompt from the conversation with the model's own
chat template (`promptBy: server`: Groq, vLLM and others); where a server has none, the gateway writes the published
prompt into one message (`promptBy: gateway`). Prompts and categories: model cards of Llama Guard 3 and 4, and of
ShieldGemma. Words of a text that mark turns or parts of these prompts are left out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from apps.guardrails.custom import BadConfig
from apps.guardrails.outside import (
    OUTPUT,
    GuardQuestion,
    ModelRequest,
    OutsideFinding,
    OutsideText,
    Pack,
    UnusableAnswer,
    packs_of,
    read_choice,
    read_member,
    whole_texts,
)

TYPE = "model"
JUDGES_EACH_TEXT = True
# The request's own API key pays.
SECRETS: Mapping[str, bool] = {}
LLAMA_GUARD, SHIELDGEMMA, CUSTOM = "llama_guard", "shieldgemma", "custom"
TEMPLATES: Final = (LLAMA_GUARD, SHIELDGEMMA, CUSTOM)
SERVER, GATEWAY = "server", "gateway"
ROLES: Final = ("system", "developer", "user", "assistant", "tool", "tool_result", "document")
# Instructions and descriptions of tools are the organization's own words.
DEFAULT_ROLES: Final = ("user", "assistant", "tool_result", "document")
HAZARDS: Final = {
    "S1": "Violent Crimes",
    "S2": "Non-Violent Crimes",
    "S3": "Sex Crimes",
    "S4": "Child Exploitation",
    "S5": "Defamation",
    "S6": "Specialized Advice",
    "S7": "Privacy",
    "S8": "Intellectual Property",
    "S9": "Indiscriminate Weapons",
    "S10": "Hate",
    "S11": "Self-Harm",
    "S12": "Sexual Content",
    "S13": "Elections",
    "S14": "Code Interpreter Abuse",
}


class _Harm(NamedTuple):
    """A harm of ShieldGemma: its name in a guideline, and the content that the guideline forbids."""

    name: str
    content: str


HARMS: Final = {
    "dangerous": _Harm(
        "No Dangerous Content",
        "harming oneself and/or others (e.g., accessing or building firearms and explosive devices, promotion of "
        "terrorism, instructions for suicide)",
    ),
    "harassment": _Harm(
        "No Harassment",
        "is malicious, intimidating, bullying, or abusive content targeting another individual (e.g., physical "
        "threats, denial of tragic events, disparaging victims of violence)",
    ),
    "hate": _Harm(
        "No Hate Speech",
        "targeting identity and/or protected attributes (e.g., racial slurs, promotion of discrimination, calls to "
        "violence against protected groups) or dehumanizing/belittling/vilifying on the bases of race, ethnicity, "
        "religion, disability, age, nationality, veteran status, sexual orientation, gender, gender identity, caste, "
        "or any other protected status. We do allow content that includes a reference to a protected individual or "
        "group in a positive manner",
    ),
    "sexual": _Harm(
        "No Sexually Explicit Information",
        "contains references to sexual acts or other lewd content (e.g., sexually graphic descriptions, content aimed "
        "at causing arousal). Medical or scientific terms related to human anatomy or sex education are permitted",
    ),
}
_CATEGORIES: Final[Mapping[str, tuple[str, ...]]] = {
    LLAMA_GUARD: tuple(HAZARDS),
    SHIELDGEMMA: tuple(HARMS),
    CUSTOM: (),
}
# Maximum characters of a question: the smallest of these models read 8,192 tokens, and miss in long texts.
MAX_CHARACTERS: Final = 8_000
# Characters of an own prompt, and of the words that its answers begin with.
MAX_PROMPT, MAX_WORD = 8_000, 40
TEXT: Final = "{text}"
# Tokens of an answer: a verdict and its categories, a word, or the thinking of a model that reasons first.
_MAX_TOKENS: Final = {LLAMA_GUARD: 64, SHIELDGEMMA: 16, CUSTOM: 2_048}
_MARKS: Final = re.compile(r"<\|[a-z_]{1,40}\|>|</?(?:start|end)_of_turn>|<(?:BEGIN|END) [A-Z ]{1,40}>")
_CODE: Final = re.compile(r"S\d{1,2}")


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{model, template, roles, promptBy, categories, prompt, foundWord, passedWord}`. Raises BadConfig.

    Without categories or roles it is the usual ones. An own prompt has no categories; the templates have no own prompt.
    """
    template = read_choice(config, "template", TEMPLATES, LLAMA_GUARD)
    return {
        "model": read_member(config, "model"),
        "template": template,
        "roles": _names(config, "roles", ROLES, DEFAULT_ROLES),
        "promptBy": read_choice(config, "promptBy", (SERVER, GATEWAY), SERVER if template == LLAMA_GUARD else GATEWAY),
        "categories": _names(config, "categories", _CATEGORIES[template], _CATEGORIES[template]),
        "prompt": _prompt(config, is_own=template == CUSTOM),
        "foundWord": _word(config, "foundWord", "unsafe"),
        "passedWord": _word(config, "passedWord", "safe"),
    }


def requests_of(question: GuardQuestion) -> Sequence[ModelRequest]:
    """Return a chat completion for each pack of texts; for ShieldGemma one for each harm, as it is trained."""
    config = question.config
    return [
        ModelRequest(
            msgspec.json.encode(
                {
                    "model": config["model"],
                    "temperature": 0,
                    "max_completion_tokens": _MAX_TOKENS[config["template"]],
                    **_conversation(question, role, pack, category),
                }
            )
        )
        for role, pack, category in _judgements(question)
    ]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return a finding for each text of a pack that is judged unsafe, by category."""
    return whole_texts(_found(question, answers))


def _found(question: GuardQuestion, answers: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    for (_, pack, category), answer in zip(_judgements(question), answers, strict=True):
        for pattern in _verdict(question.config, category, answer.decode("utf-8", "replace")):
            yield from ((index, pattern) for index in pack.indexes)


def _judgements(question: GuardQuestion) -> list[tuple[str, Pack, str]]:
    """Return the role, pack and category of each request. Texts of one role are judged together, whatever is between
    them, so that a conversation of a hundred turns takes a few requests."""
    config = question.config
    by_role: dict[str, list[int]] = {}
    for index, text in enumerate(question.texts):
        if text.role in config["roles"] and text.text.strip():
            by_role.setdefault(text.role, []).append(index)
    categories = config["categories"] if config["template"] == SHIELDGEMMA else ("",)
    return [
        (role, pack._replace(indexes=tuple(indexes[one] for one in pack.indexes)), category)
        for role, indexes in by_role.items()
        for pack in packs_of([_bare(question.texts[index]) for index in indexes], MAX_CHARACTERS)
        for category in categories
    ]


def _bare(text: OutsideText) -> OutsideText:
    return text._replace(text=_MARKS.sub(" ", text.text))


def _conversation(question: GuardQuestion, role: str, pack: Pack, category: str) -> dict[str, Any]:
    """Return the messages that ask for a verdict, and for ShieldGemma's servers the guideline."""
    config = question.config
    is_answer = role == "assistant"
    if config["template"] == CUSTOM:
        return {"messages": _user(config["prompt"].replace(TEXT, pack.text))}
    asked = _MARKS.sub(" ", question.facts.prompt) if question.direction == OUTPUT else ""
    if config["promptBy"] == GATEWAY:
        write = _llama_guard_prompt if config["template"] == LLAMA_GUARD else _shieldgemma_prompt
        return {"messages": _user(write(config, pack.text, asked, category, is_answer=is_answer))}
    # Chat templates want a user's turn first.
    turns = [*_user(asked or "Hello"), {"role": "assistant", "content": pack.text}] if is_answer else _user(pack.text)
    if config["template"] == LLAMA_GUARD:
        return {"messages": turns}
    return {"messages": turns, "chat_template_kwargs": {"guideline": _guideline(category, is_answer=is_answer)}}


def _llama_guard_prompt(config: Mapping[str, Any], text: str, asked: str, _: str, *, is_answer: bool) -> str:
    role = "Agent" if is_answer else "User"
    categories = "\n".join(f"{code}: {HAZARDS[code]}." for code in config["categories"])
    before = f"User: {asked}\n\n" if asked else ""
    return (
        f"Task: Check if there is unsafe content in '{role}' messages in conversations according our safety policy "
        "with the below categories.\n\n"
        f"<BEGIN UNSAFE CONTENT CATEGORIES>\n{categories}\n<END UNSAFE CONTENT CATEGORIES>\n\n"
        f"<BEGIN CONVERSATION>\n\n{before}{role}: {text}\n\n<END CONVERSATION>\n\n"
        f"Provide your safety assessment for ONLY THE LAST {role} message in the above conversation:\n"
        " - First line must read 'safe' or 'unsafe'.\n"
        " - If unsafe, a second line must include a comma-separated list of violated categories."
    )


def _shieldgemma_prompt(_: Mapping[str, Any], text: str, asked: str, category: str, *, is_answer: bool) -> str:
    judged, words = ("Chatbot Response", "an AI response to prompt is") if is_answer else ("human question", "")
    words = words or "a user prompt is"
    turns = [f"Human Question: {asked if is_answer else text}"] + ([f"Chatbot Response: {text}"] if is_answer else [])
    said = "\n\n".join(f"<start_of_turn>\n{turn}\n<end_of_turn>" for turn in turns)
    return (
        f"You are a policy expert trying to help determine whether {words} in violation of the defined safety "
        f"policies.\n\n{said}\n\nOur safety principle is defined in the below:\n\n"
        f"{_guideline(category, is_answer=is_answer)}\n\n===\n\n"
        f"Does the {judged} violate the above principle? Your answer must start with 'Yes' or 'No'. And then walk "
        "through step by step to be sure we answer correctly."
    )


def _guideline(category: str, *, is_answer: bool) -> str:
    harm = HARMS[category]
    rule = "The chatbot shall not generate" if is_answer else "The prompt shall not contain or seek generation of"
    return f'* "{harm.name}": {rule} content that {harm.content}.'


def _verdict(config: Mapping[str, Any], category: str, answer: str) -> list[str]:
    """Return the categories of an answer that finds something; nothing for one that lets pass. Raises UnusableAnswer.

    The first word decides. Categories outside of the chosen ones pass; an answer that names none is a finding.
    """
    words = answer.split(maxsplit=1)
    first = words[0].strip("\"'*.,:;!()[]").casefold() if words else ""
    if config["template"] == CUSTOM:
        found, passed = config["foundWord"], config["passedWord"]
    else:
        found, passed = ("unsafe", "safe") if config["template"] == LLAMA_GUARD else ("Yes", "No")
    if first == passed.casefold():
        return []
    if first != found.casefold():
        raise UnusableAnswer(f"the model's answer begins neither with {found} nor with {passed}")
    if config["template"] != LLAMA_GUARD:
        return [category or found]
    named = _CODE.findall(words[1]) if len(words) > 1 else []
    known = [f"{code} {HAZARDS[code]}" if code in HAZARDS else code for code in named if code in config["categories"]]
    return known if named else ["unsafe"]


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _names(config: Mapping[str, Any], name: str, choices: Sequence[str], default: Sequence[str]) -> list[str]:
    value = config.get(name) or default
    if not isinstance(value, list | tuple) or not set(map(str, value)) <= set(choices):
        what = f"a list of {', '.join(choices)}" if choices else "empty for an own prompt"
        raise BadConfig(name, f"Must be {what}")
    return [one for one in choices if one in value]


def _prompt(config: Mapping[str, Any], *, is_own: bool) -> str:
    value = config.get("prompt", "")
    if not is_own:
        if value != "":
            raise BadConfig("prompt", f"Must be empty unless `template` is {CUSTOM}")
        return ""
    if not isinstance(value, str) or len(value) > MAX_PROMPT or value.count(TEXT) != 1:
        raise BadConfig("prompt", f"Must be a text of at most {MAX_PROMPT} characters with {TEXT} once")
    return value


def _word(config: Mapping[str, Any], name: str, default: str) -> str:
    value = config.get(name, default)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_WORD or not value.isalnum():
        raise BadConfig(name, f"Must be one word of at most {MAX_WORD} letters and digits")
    return value
