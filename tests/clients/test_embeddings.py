"""OpenAI's and Google's own clients, and LangChain over the first: vectors over the running product."""

from __future__ import annotations

import openai
import pytest
import tiktoken
from google import genai
from google.genai import types
from langchain_openai import OpenAIEmbeddings
from pydantic import SecretStr

from apps.sandbox.generated_media import vector_of
from tests.clients.gateway import Gateway

pytestmark = pytest.mark.stack
TEXTS = [f"text {number}" for number in range(6)]


def vectors(length: int = 8) -> list[list[float]]:
    """Return the vectors of the texts."""
    return [list(vector_of(text, length)) for text in TEXTS]


def test_openais_client_which_asks_for_base64_unasked(gateway: Gateway) -> None:
    client = openai.OpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=0)
    answer = client.embeddings.create(model="embedder", input=TEXTS)
    assert [one.embedding for one in answer.data] == vectors()
    assert ([one.index for one in answer.data], answer.usage.prompt_tokens) == (list(range(6)), 12)
    plain = client.embeddings.create(model="embedder", input=TEXTS, encoding_format="float", dimensions=4)
    assert [one.embedding for one in plain.data] == vectors(4)
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="embedder", input=["a", ""])
    assert refused.value.param == "input[1]"


def test_googles_client(gateway: Gateway) -> None:
    client = genai.Client(api_key=gateway.key, http_options=types.HttpOptions(base_url=gateway.url))
    answer = client.models.embed_content(
        model="embedder",
        contents=[*TEXTS],
        config={"task_type": "RETRIEVAL_DOCUMENT", "output_dimensionality": 4},
    )
    assert [one.values for one in answer.embeddings or []] == vectors(4)


def test_langchain_with_texts(gateway: Gateway) -> None:
    texts = OpenAIEmbeddings(
        model="embedder",
        base_url=gateway.openai_url,
        api_key=SecretStr(gateway.key),
        check_embedding_ctx_length=False,
    )
    assert texts.embed_documents(TEXTS) == vectors()
    assert texts.embed_query(TEXTS[0]) == vectors()[0]


def test_langchain_with_tokens_which_it_sends_unasked(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its tokenizer would fetch its vocabulary from elsewhere: here every byte is a token.
    of_bytes = tiktoken.Encoding(
        "cl100k_base",
        pat_str="(?s:.)",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={},
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "cl100k_base", of_bytes)
    tokens = OpenAIEmbeddings(model="embedder", base_url=gateway.openai_url, api_key=SecretStr(gateway.key))
    # The sandbox takes each token for four characters.
    texts = ["".join(f"{byte:4}" for byte in text.encode()) for text in TEXTS]
    assert tokens.embed_documents(TEXTS) == [list(vector_of(text, 8)) for text in texts]
