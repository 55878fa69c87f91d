"""A program for LlamaIndex: vectors of texts, one by one and many at a time, and of a question."""

import json
import os

from llama_index.embeddings.openai_like import OpenAILikeEmbedding

embedder = OpenAILikeEmbedding(
    model_name="embedder",
    api_base=os.environ["GATEWAY_URL"] + "/v1",
    api_key=os.environ["GATEWAY_KEY"],
    embed_batch_size=5,
)
texts = json.loads(os.environ["TEXTS"])
print(
    json.dumps(
        {
            "texts": embedder.get_text_embedding_batch(texts),
            "text": embedder.get_text_embedding(texts[0]),
            "query": embedder.get_query_embedding(texts[0]),
        }
    )
)
