"""A prompt that is too long: each server's words are recognized, and each client gets those its agent looks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects import find_dialect
from apps.gateway.dialects.chat import anthropic, google, openai, responses
from apps.gateway.dialects.reading.answers import CODE
from apps.kernel.errors import InvalidRequest, UpstreamRefused

WORDS = {
    "OpenAI": "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    "OpenAI's Responses": "Your input exceeds the context window of this model. Please adjust your input and try "
    "again.",
    "Azure": "This model's maximum context length is 8192 tokens, however you requested 9000 tokens (8000 in your "
    "prompt; 1000 for the completion). Please reduce your prompt; or completion length.",
    "Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "Anthropic's limit": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input "
    "length or `max_tokens` and try again",
    "Gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Bedrock": "Input is too long for requested model.",
    "Nova": "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try "
    "again.",
    "Cohere": "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs.",
    "Cohere's total": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5001.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Groq": "Please reduce the length of the messages or completion.",
    "Cerebras": "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
    "DeepSeek": "This model's maximum context length is 131072 tokens. However, you requested 151265 tokens",
    "Moonshot": "Invalid request: Your request exceeded model token limit: 131072 (requested: 150000)",
    "Z.ai": "Prompt exceeds max length",
    "Alibaba": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "MiniMax": "invalid params, context window exceeds limit (2013)",
    "Mistral": "Prompt contains 150000 tokens and 0 draft tokens, too large for model with 131072 maximum context "
    "length",
    "Together": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` "
    "tokens and 200 `max_new_tokens`",
    "Text Generation Inference": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "Fireworks": "The prompt is too long: 142145, model maximum context length: 131071",
    "OpenRouter": "This endpoint's maximum context length is 1048576 tokens. However, you requested about 1293741 "
    "tokens",
    "vLLM": "You passed 9000 input tokens and requested 1000 output tokens. However, the model's context length is "
    "only 8192 tokens, resulting in a maximum input length of 7192 tokens. Please reduce the length of the "
    "input prompt.",
    "vLLM's decoder": "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure "
    "that `max_model_len` is no smaller than the number of text tokens.",
    "SGLang": "The input (26000 tokens) is longer than the model's context length (8192 tokens).",
    "SGLang's total": "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    "llama.cpp": "request (124071 tokens) exceeds the available context size (123904 tokens), try increasing it",
    "llama-cpp-python": "Requested tokens (600) exceed context window of 512",
    "LM Studio": "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with "
    "context length of only 32768 tokens, which is not enough.",
    "LM Studio's n_keep": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
    "LM Studio, MLX": "The number of tokens to keep from the initial prompt is greater than the context length "
    "(n_keep: 13055>= n_ctx: 4096).",
    "Ollama": "prompt too long; exceeded max context length by 1200 tokens",
    "Ollama's embeddings": "the input length exceeds the context length",
    "Cloudflare": "The estimated number of input and maximum output tokens (445000) exceeded this model context window "
    "limit (262144)",
    "Copilot": "prompt token count of 125516 exceeds the limit of 64000",
}
OTHERS = (
    "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31000.",
    "This request would exceed your organization's rate limit of 30,000 input tokens per minute",
    "Too many tokens, please wait before trying again.",
    "Request too large for model `llama` on tokens per minute (TPM): Limit 6000, Requested 9000",
    "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens",
    "Invalid value for 'temperature': exceeds the limit of 2",
)
DIALECTS = ("openai", "responses", "anthropic", "google", "bedrock", "cohere", "vertex_openai", "azure_anthropic")


def refused(dialect: str, words: str, status: int = 400) -> Any:
    found: Any = find_dialect(dialect)
    answers = {"bedrock": {"message": words}, "cohere": {"message": words}}
    return found.read_failure(status, json.dumps(answers.get(dialect, {"error": {"message": words}})).encode())


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("server", WORDS)
def test_each_servers_words_have_the_code_in_each_dialect(server: str, dialect: str) -> None:
    failure = refused(dialect, WORDS[server])
    assert (failure.code, failure.message) == (CODE, WORDS[server])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("words", OTHERS)
def test_other_limits_do_not_have_it(words: str, dialect: str) -> None:
    assert refused(dialect, words).code != CODE


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_bare_413_is_a_prompt_that_is_too_long(dialect: str) -> None:
    found: Any = find_dialect(dialect)
    assert found.read_failure(413, b"").code == CODE
    assert found.read_failure(502, b"").code is None


def test_a_failure_in_a_stream_is_the_requests_own_whatever_the_server_calls_it() -> None:
    said = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": WORDS["llama.cpp"]}}}
    chunk = {"error": {"message": WORDS["LM Studio"], "code": 500}}
    frames = {"openai": chunk, "responses": said, "google": {"error": {"code": 500, "message": WORDS["Gemini"]}}}
    for dialect, frame in frames.items():
        found: Any = find_dialect(dialect)
        failed = [event for event in found.read_events(iter([json.dumps(frame).encode()])) if isinstance(event, Failed)]
        assert [(event.error.status, event.error.code) for event in failed] == [(400, CODE)], dialect


def test_each_client_gets_the_words_that_its_agent_looks_for() -> None:
    words = WORDS["vLLM"]
    error = UpstreamRefused(words, status=400, code=CODE)
    chat = openai.read_request(b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}')
    shown = json.loads(openai.write_error(error))["error"]
    assert (shown["message"], shown["code"]) == (words, CODE)
    assert json.loads(responses.write_error(error))["error"]["code"] == CODE
    claude = f"prompt is too long: {words}"
    assert json.loads(anthropic.write_error(error)) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": claude},
        "status": 400,
        "message": claude,
    }
    gemini = json.loads(google.write_error(error))["error"]
    assert gemini["message"] == f"The input token count exceeds the maximum number of tokens allowed: {words}"
    assert (gemini["code"], gemini["status"]) == (400, "INVALID_ARGUMENT")
    for dialect, expected in ((anthropic, claude), (google, gemini["message"])):
        stream = b"".join(dialect.write_events([Failed(error=error)], chat)).decode()
        assert json.dumps(expected)[1:-1] in stream


def test_words_that_an_agent_knows_are_not_said_twice() -> None:
    for words in (WORDS["Anthropic"], WORDS["Anthropic's limit"]):
        error = UpstreamRefused(words, status=400, code=CODE)
        assert json.loads(anthropic.write_error(error))["error"]["message"] == words
    own = InvalidRequest("The prompt is too long: about 9 tokens > 8", code=CODE, param="messages")
    assert json.loads(anthropic.write_error(own))["error"]["message"] == own.message
    error = UpstreamRefused(WORDS["Gemini"], status=400, code=CODE)
    assert json.loads(google.write_error(error))["error"]["message"] == WORDS["Gemini"]
