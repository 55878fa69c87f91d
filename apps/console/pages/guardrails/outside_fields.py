"""Form fields of the rules that ask a service, by type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from apps.guardrails.outside import DEFAULT_TIMEOUT


class OutsideField(NamedTuple):
    """One field: its name in the configuration, its label, and its input: text, prose, lines, flag, number, secret."""

    name: str
    label: str
    input: str = "text"
    help: str = ""
    value: Any = ""
    choices: tuple[tuple[str, str], ...] = ()


_URL: Final = OutsideField("url", "Address", help="An https address")
_KEY: Final = OutsideField("apiKey", "API key", "secret")
_COMMON: Final = (
    OutsideField(
        "direction",
        "Texts to judge",
        value="input",
        choices=(("input", "Requests"), ("output", "Answers"), ("both", "Requests and answers")),
        help="Answers are held back until they have been judged",
    ),
    OutsideField(
        "onFailure",
        "If the service fails",
        value="closed",
        choices=(("closed", "Refuse the request"), ("open", "Let the request pass")),
    ),
    OutsideField("timeoutSeconds", "Time limit in seconds", "number", value=DEFAULT_TIMEOUT),
)
OUTSIDE_FIELDS: Final[Mapping[str, tuple[OutsideField, ...]]] = {
    "webhook": (
        _URL,
        OutsideField("secret", "Signing secret", "secret", "whsec_ followed by 24 to 64 bytes in base64"),
        *_COMMON,
    ),
    "presidio": (
        OutsideField("url", "Address", help="The analyzer's address, without /analyze"),
        OutsideField("apiKey", "API key", "secret", "If a proxy before the analyzer wants one"),
        OutsideField("language", "Language", value="en"),
        OutsideField("entities", "Entities", "lines", "One per line, such as PERSON; none: all", []),
        OutsideField("scoreThreshold", "Lowest score", "number", "0 to 1", 0.5),
        *_COMMON,
    ),
    "bedrock_guardrail": (
        OutsideField("region", "Region", help="Such as eu-central-1"),
        OutsideField("guardrailId", "Guardrail"),
        OutsideField("guardrailVersion", "Version", value="DRAFT"),
        OutsideField("apiKey", "Bedrock API key", "secret", "Or the two access keys below"),
        OutsideField("accessKeyId", "Access key id", "secret"),
        OutsideField("secretAccessKey", "Secret access key", "secret"),
        OutsideField("sessionToken", "Session token", "secret", "For temporary access keys"),
        *_COMMON,
    ),
    "azure_content_safety": (
        OutsideField("url", "Endpoint", help="Such as https://acme.cognitiveservices.azure.com"),
        _KEY,
        OutsideField("severity", "Lowest severity", "number", "0 to 7; a category at it or above is a finding", 4),
        OutsideField("promptShields", "Look for attacks (Prompt Shields)", "flag", value=True),
        *_COMMON,
    ),
    "model_armor": (
        OutsideField("template", "Template", help="projects/…/locations/…/templates/…"),
        OutsideField("serviceAccount", "Service account", "secret", "The JSON of its key, on one line"),
        *_COMMON,
    ),
    "lakera": (
        OutsideField("url", "Address", value="https://api.lakera.ai"),
        _KEY,
        OutsideField("projectId", "Project", help="If empty: the account's default policy"),
        *_COMMON,
    ),
    "openai_moderation": (
        OutsideField("url", "Address", value="https://api.openai.com"),
        _KEY,
        OutsideField("model", "Model", value="omni-moderation-latest"),
        OutsideField("categories", "Categories", "lines", "One per line, such as hate/threatening; none: all", []),
        *_COMMON,
    ),
    "model": (
        OutsideField("model", "Model", help="A chat model, such as deepinfra/llama-guard-4-12b; its cost is yours"),
        OutsideField(
            "template",
            "Format",
            value="llama_guard",
            choices=(
                ("llama_guard", "Llama Guard"),
                ("shieldgemma", "ShieldGemma"),
                ("custom", "An own prompt, for any model"),
            ),
        ),
        OutsideField(
            "promptBy",
            "Prompt",
            choices=(
                ("", "Usual for the format"),
                ("server", "Written by the model's server, with its chat template"),
                ("gateway", "Written by the gateway, in one message"),
            ),
        ),
        OutsideField(
            "categories", "Categories", "lines", "One per line: S1 to S14, or dangerous, harassment, hate, sexual", []
        ),
        OutsideField("prompt", "Own prompt", "prose", "With {text} where the text belongs"),
        OutsideField("foundWord", "First word of a finding", value="unsafe", help="For an own prompt"),
        OutsideField("passedWord", "First word if nothing is found", value="safe", help="For an own prompt"),
        OutsideField(
            "roles",
            "Roles of texts",
            "lines",
            "One per line; none: user, assistant, tool_result, document. Also: system, developer, tool",
            [],
        ),
        *_COMMON,
    ),
}


def shown_fields(kind: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a type as the page writes them; a secret is never shown."""
    shown = []
    for field in OUTSIDE_FIELDS.get(kind, ()):
        value = config.get(field.name, field.value)
        help_text = field.help
        if field.input == "secret":
            value = ""
            if field.name in config.get("secrets", ()):
                help_text = "Stored; leave empty to keep it"
        shown.append(
            {
                "name": field.name,
                "label": field.label,
                "kind": _KINDS.get(field.input, "select" if field.choices else "text"),
                "help": help_text,
                "value": "\n".join(value) if isinstance(value, list) else value,
                "choices": field.choices,
                "inputmode": "decimal" if field.input == "number" else "",
            }
        )
    return shown


_KINDS: Final = {"lines": "textarea", "prose": "textarea", "flag": "checkbox", "secret": "password"}
