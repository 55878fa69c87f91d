"""Form fields of the rules that ask a service, by type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext

from apps.guardrails.outside import DEFAULT_TIMEOUT
from apps.kernel.pages.languages import gettext_lazy


class OutsideField(NamedTuple):
    """One field: its name in the configuration, its label, and its input: text, prose, lines, flag, number, secret."""

    name: str
    label: str
    input: str = "text"
    help: str = ""
    value: Any = ""
    choices: tuple[tuple[str, str], ...] = ()


_URL: Final = OutsideField("url", gettext_lazy("Address"), help=gettext_lazy("An https address"))
_KEY: Final = OutsideField("apiKey", gettext_lazy("API key"), "secret")
_COMMON: Final = (
    OutsideField(
        "direction",
        gettext_lazy("Texts to judge"),
        value="input",
        choices=(
            ("input", gettext_lazy("Requests")),
            ("output", gettext_lazy("Answers")),
            ("both", gettext_lazy("Requests and answers")),
        ),
        help=gettext_lazy("Answers are held back until they have been judged"),
    ),
    OutsideField(
        "onFailure",
        gettext_lazy("If the service fails"),
        value="closed",
        choices=(("closed", gettext_lazy("Refuse the request")), ("open", gettext_lazy("Let the request pass"))),
    ),
    OutsideField("timeoutSeconds", gettext_lazy("Time limit in seconds"), "number", value=DEFAULT_TIMEOUT),
)
OUTSIDE_FIELDS: Final[Mapping[str, tuple[OutsideField, ...]]] = {
    "webhook": (
        _URL,
        OutsideField(
            "secret",
            gettext_lazy("Signing secret"),
            "secret",
            gettext_lazy("whsec_ followed by 24 to 64 bytes in base64"),
        ),
        *_COMMON,
    ),
    "presidio": (
        OutsideField("url", gettext_lazy("Address"), help=gettext_lazy("The analyzer's address, without /analyze")),
        OutsideField(
            "apiKey", gettext_lazy("API key"), "secret", gettext_lazy("If a proxy before the analyzer wants one")
        ),
        OutsideField("language", gettext_lazy("Language"), value="en"),
        OutsideField(
            "entities", gettext_lazy("Entities"), "lines", gettext_lazy("One per line, such as PERSON; none: all"), []
        ),
        OutsideField("scoreThreshold", gettext_lazy("Lowest score"), "number", "0 to 1", 0.5),
        *_COMMON,
    ),
    "bedrock_guardrail": (
        OutsideField("region", gettext_lazy("Region"), help=gettext_lazy("Such as eu-central-1")),
        OutsideField("guardrailId", gettext_lazy("Guardrail")),
        OutsideField("guardrailVersion", gettext_lazy("Version"), value="DRAFT"),
        OutsideField("apiKey", gettext_lazy("Bedrock API key"), "secret", gettext_lazy("Or the two access keys below")),
        OutsideField("accessKeyId", gettext_lazy("Access key id"), "secret"),
        OutsideField("secretAccessKey", gettext_lazy("Secret access key"), "secret"),
        OutsideField(
            "sessionToken", gettext_lazy("Session token"), "secret", gettext_lazy("For temporary access keys")
        ),
        *_COMMON,
    ),
    "azure_content_safety": (
        OutsideField(
            "url", gettext_lazy("Endpoint"), help=gettext_lazy("Such as https://acme.cognitiveservices.azure.com")
        ),
        _KEY,
        OutsideField(
            "severity",
            gettext_lazy("Lowest severity"),
            "number",
            gettext_lazy("0 to 7; a category at it or above is a finding"),
            4,
        ),
        OutsideField("promptShields", gettext_lazy("Look for attacks (Prompt Shields)"), "flag", value=True),
        *_COMMON,
    ),
    "model_armor": (
        OutsideField("template", gettext_lazy("Template"), help="projects/…/locations/…/templates/…"),
        OutsideField(
            "serviceAccount",
            gettext_lazy("Service account"),
            "secret",
            gettext_lazy("The JSON of its key, on one line"),
        ),
        *_COMMON,
    ),
    "lakera": (
        OutsideField("url", gettext_lazy("Address"), value="https://api.lakera.ai"),
        _KEY,
        OutsideField("projectId", gettext_lazy("Project"), help=gettext_lazy("If empty: the account's default policy")),
        *_COMMON,
    ),
    "openai_moderation": (
        OutsideField("url", gettext_lazy("Address"), value="https://api.openai.com"),
        _KEY,
        OutsideField("model", gettext_lazy("Model"), value="omni-moderation-latest"),
        OutsideField(
            "categories",
            gettext_lazy("Categories"),
            "lines",
            gettext_lazy("One per line, such as hate/threatening; none: all"),
            [],
        ),
        *_COMMON,
    ),
    "model": (
        OutsideField(
            "model",
            gettext_lazy("Model"),
            help=gettext_lazy("A chat model, such as deepinfra/llama-guard-4-12b; its cost is yours"),
        ),
        OutsideField(
            "template",
            gettext_lazy("Format"),
            value="llama_guard",
            choices=(
                ("llama_guard", "Llama Guard"),
                ("shieldgemma", "ShieldGemma"),
                ("custom", gettext_lazy("An own prompt, for any model")),
            ),
        ),
        OutsideField(
            "promptBy",
            gettext_lazy("Prompt"),
            choices=(
                ("", gettext_lazy("Usual for the format")),
                ("server", gettext_lazy("Written by the model's server, with its chat template")),
                ("gateway", gettext_lazy("Written by the gateway, in one message")),
            ),
        ),
        OutsideField(
            "categories",
            gettext_lazy("Categories"),
            "lines",
            gettext_lazy("One per line: S1 to S14, or dangerous, harassment, hate, sexual"),
            [],
        ),
        OutsideField("prompt", gettext_lazy("Own prompt"), "prose", gettext_lazy("With {text} where the text belongs")),
        OutsideField(
            "foundWord", gettext_lazy("First word of a finding"), value="unsafe", help=gettext_lazy("For an own prompt")
        ),
        OutsideField(
            "passedWord",
            gettext_lazy("First word if nothing is found"),
            value="safe",
            help=gettext_lazy("For an own prompt"),
        ),
        OutsideField(
            "roles",
            gettext_lazy("Roles of texts"),
            "lines",
            gettext_lazy("One per line; none: user, assistant, tool_result, document. Also: system, developer, tool"),
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
                help_text = gettext("Stored; leave empty to keep it")
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
