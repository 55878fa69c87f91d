"""Cohere's and Voyage's own clients, and OpenAI's for moderation: rankings, vectors and judgements of the product."""

from __future__ import annotations

import cohere
import openai
import pytest
import voyageai
import voyageai.error

from apps.sandbox.generated_media import vector_of
from tests.clients.gateway import Gateway

pytestmark = pytest.mark.stack
QUERY = "a quiet cat"
DOCUMENTS = ["a loud dog", "a quiet cat", "the cat"]
RANKING = [(1, 1.0), (0, 0.3125), (2, 0.3125)]
TEXTS = [f"text {number}" for number in range(6)]
VECTORS = [list(vector_of(text, 8)) for text in TEXTS]


def test_coheres_client_ranks(gateway: Gateway) -> None:
    client = cohere.ClientV2(api_key=gateway.key, base_url=gateway.url)
    for model, units, tokens in (("reranker", None, 17), ("reranker-units", 1, None)):
        answer = client.rerank(model=model, query=QUERY, documents=DOCUMENTS, top_n=2)
        assert [(one.index, one.relevance_score) for one in answer.results] == RANKING[:2]
        assert answer.meta is not None
        assert answer.meta.billed_units is not None
        assert (answer.meta.billed_units.search_units, answer.meta.billed_units.input_tokens) == (units, tokens)
    with pytest.raises(cohere.BadRequestError) as refused:
        client.rerank(model="reranker", query=QUERY, documents=["a", ""])
    assert refused.value.body["error"]["param"] == "documents[1]"


def test_coheres_older_client_ranks(gateway: Gateway) -> None:
    client = cohere.Client(api_key=gateway.key, base_url=gateway.url)
    documents = [{"text": text} for text in DOCUMENTS]
    answer = client.rerank(model="reranker", query=QUERY, documents=documents, return_documents=True)
    assert [(one.index, one.relevance_score) for one in answer.results] == RANKING
    assert [one.document.text for one in answer.results if one.document] == ["a quiet cat", "a loud dog", "the cat"]


def test_coheres_client_embeds(gateway: Gateway) -> None:
    client = cohere.ClientV2(api_key=gateway.key, base_url=gateway.url)
    answer = client.embed(model="embedder", texts=TEXTS, input_type="search_document", embedding_types=["float"])
    assert (answer.embeddings.float_, answer.texts) == (VECTORS, TEXTS)
    with pytest.raises(cohere.BadRequestError) as refused:
        client.embed(model="embedder", texts=TEXTS, input_type="search_document", embedding_types=["int8"])
    assert refused.value.body["error"]["param"] == "embedding_types[0]"


def test_voyages_client_ranks_and_embeds(gateway: Gateway) -> None:
    client = voyageai.Client(api_key=gateway.key, base_url=gateway.openai_url)
    answer = client.rerank(QUERY, DOCUMENTS, model="reranker", top_k=2)
    assert [(one.index, one.relevance_score) for one in answer.results] == RANKING[:2]
    assert [one.document for one in answer.results] == ["a quiet cat", "a loud dog"]
    assert answer.total_tokens == 17
    vectors = client.embed(TEXTS, model="embedder", input_type="document")
    assert (vectors.embeddings, vectors.total_tokens) == (VECTORS, 12)
    with pytest.raises(voyageai.error.InvalidRequestError, match="documents: must not be empty"):
        client.rerank(QUERY, [], model="reranker")
    with pytest.raises(voyageai.error.InvalidRequestError, match=r"input\[1\]"):
        client.embed(["a", ""], model="embedder")
    stranger = voyageai.Client(api_key="wrong", base_url=gateway.openai_url)
    with pytest.raises(voyageai.error.AuthenticationError):
        stranger.rerank(QUERY, DOCUMENTS, model="reranker")


def test_openais_client_moderates(gateway: Gateway) -> None:
    client = openai.OpenAI(base_url=gateway.openai_url, api_key=gateway.key, max_retries=0)
    answer = client.moderations.create(model="moderator", input=["a cat", "self-harm"])
    calm, harm = answer.results
    assert (calm.flagged, harm.flagged, harm.categories.self_harm) == (False, True, True)
    assert harm.category_applied_input_types.self_harm == ["text"]
    [harm] = client.moderations.create(model="moderator-mistral", input="selfharm").results
    assert (harm.flagged, harm.categories.self_harm, harm.category_scores.self_harm) == (True, True, 0.9375)
    with pytest.raises(openai.BadRequestError) as refused:
        client.moderations.create(model="moderator", input=["a", ""])
    assert refused.value.param == "input[1]"
