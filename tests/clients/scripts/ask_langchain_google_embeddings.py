"""A program for LangChain's embeddings of Google's: vectors of documents, and of a question."""

import json
import os

from langchain_google_genai import GoogleGenerativeAIEmbeddings

embedder = GoogleGenerativeAIEmbeddings(
    model="embedder",
    google_api_key=os.environ["GATEWAY_KEY"],
    base_url=os.environ["GATEWAY_URL"],
    output_dimensionality=4,
)
texts = json.loads(os.environ["TEXTS"])
print(json.dumps({"texts": embedder.embed_documents(texts), "query": embedder.embed_query(texts[0])}))
