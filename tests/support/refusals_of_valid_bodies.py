"""A check for schemathesis: what the document allows is a bad request for reasons alone that no schema can state.

Schemathesis loads it by its path.
"""

import schemathesis

# Codes of errors for features that a model or its provider lacks, for an organization's rules, and for unknown names.
REASONS = frozenset(
    {
        *("unsupported_feature", "model_not_found", "upstream_refused", "previous_response_not_found"),
        *("guardrail_blocked", "zero_data_retention"),
    }
)
# The message of a malformed request for Anthropic's clients, who get no codes.
MALFORMED = "Invalid request format"
# A picture must be one, and so must sound; a cursor must be of the list; a model takes some kinds of input alone;
# Google's methods share one schema; a voice's name is printable.
BEYOND_A_SCHEMA = frozenset(
    {
        "POST /v1/images/edits",
        "POST /v1/audio/speech",
        "POST /v1/audio/transcriptions",
        "POST /v1/audio/translations",
        "GET /v1/conversations/{conversationId}/items",
        "POST /v1/embeddings",
        "POST /v2/embed",
        "POST /v1/models/{name}:embedContent",
        "POST /v1/models/{name}:batchEmbedContents",
        "POST /v1beta/{name}:embedContent",
        "POST /v1beta/{name}:batchEmbedContents",
    }
)


def code_of(error):
    """Return the code of an error in OpenAI's or in Google's shape; None where a shape has no codes."""
    if isinstance(error.get("code"), str):
        return error["code"]
    return next((detail["reason"].lower() for detail in error.get("details", ()) if "reason" in detail), None)


@schemathesis.check
def valid_bodies_are_not_called_malformed(ctx, response, case):
    """Raise AssertionError for a valid body that is refused for what it is."""
    meta = case.meta
    if response.status_code != 400 or meta is None or not meta.generation.mode.is_positive:
        return
    body = response.json()
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or case.operation.label in BEYOND_A_SCHEMA:
        return
    code = code_of(error)
    assert code is None or code in REASONS, response.text
    assert MALFORMED not in error["message"], response.text
