"""Retrieval-augmented generation: documents become vectors in PostgreSQL (pgvector), a question finds the nearest of
them, and a chat model answers from these with citations.

    pip install openai "psycopg[binary]"
    export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=$KEY DATABASE_URL=postgresql://...
    export EMBEDDING_MODEL=text-embedding-3-small CHAT_MODEL=gpt-5.4-mini
    python examples/rag.py "When does the pool open?" notes/*.txt
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import openai
import psycopg

MOST_FOUND = 3
INSTRUCTIONS = "Answer from these sources alone and cite them by their numbers, as [1]. Say so if they do not tell."


def embed(client: openai.OpenAI, texts: list[str], purpose: str) -> list[str]:
    """Return the vectors of texts as pgvector reads them; all in one request, however many there are."""
    answer = client.embeddings.create(
        model=os.environ["EMBEDDING_MODEL"], input=texts, extra_body={"input_type": purpose}
    )
    return [str(item.embedding) for item in answer.data]


def index(client: openai.OpenAI, database: psycopg.Connection, documents: dict[str, str]) -> None:
    """Keep documents, by name, with their vectors; one that is kept already is replaced."""
    database.execute("CREATE EXTENSION IF NOT EXISTS vector")
    database.execute("CREATE TABLE IF NOT EXISTS rag_documents (name text PRIMARY KEY, body text, embedding vector)")
    vectors = embed(client, list(documents.values()), "document")
    with database.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO rag_documents VALUES (%s, %s, %s::vector) ON CONFLICT (name)"
            " DO UPDATE SET body = excluded.body, embedding = excluded.embedding",
            [(name, body, vector) for (name, body), vector in zip(documents.items(), vectors, strict=True)],
        )


def search(client: openai.OpenAI, database: psycopg.Connection, question: str) -> list[tuple[str, str]]:
    """Return the names and texts of the documents that are nearest to a question, by the cosine of their vectors."""
    (vector,) = embed(client, [question], "query")
    nearest = "SELECT name, body FROM rag_documents ORDER BY embedding <=> %s::vector, name LIMIT %s"
    return database.execute(nearest, (vector, MOST_FOUND)).fetchall()


def answer(client: openai.OpenAI, question: str, found: list[tuple[str, str]]) -> str:
    """Return a chat model's answer, and under it the sources by their numbers."""
    sources = "\n\n".join(f"[{number}] {body}" for number, (_, body) in enumerate(found, 1))
    messages = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": f"{sources}\n\nQuestion: {question}"},
    ]
    reply = client.chat.completions.create(model=os.environ["CHAT_MODEL"], messages=messages)
    names = "\n".join(f"[{number}] {name}" for number, (name, _) in enumerate(found, 1))
    return f"{reply.choices[0].message.content}\n\n{names}\n"


if __name__ == "__main__":
    asked, *paths = sys.argv[1:]
    with openai.OpenAI() as gateway, psycopg.connect(os.environ["DATABASE_URL"]) as store:
        index(gateway, store, {path: Path(path).read_text() for path in paths})
        sys.stdout.write(answer(gateway, asked, search(gateway, store, asked)))
