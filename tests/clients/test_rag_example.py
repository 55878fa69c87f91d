"""The example of retrieval-augmented generation as it stands: files, vectors in PostgreSQL, a cited answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.clients.gateway import Gateway
from tests.stack.product import PROJECT

pytestmark = pytest.mark.stack
# The sandbox's vectors know nothing of meaning: the same text has the same one.
QUESTION = "When does the pool open?"


def test_an_answer_cites_the_nearest_document_first(gateway: Gateway, tmp_path: Path) -> None:
    texts = {"pool.txt": QUESTION, "keys.txt": "Keys are at the desk.", "menu.txt": "Soup on Mondays."}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    database = os.environ["DATABASE_URL"]
    key = gateway.new_key("rag")
    environment = {
        "PATH": os.environ["PATH"],
        "OPENAI_BASE_URL": gateway.openai_url,
        "OPENAI_API_KEY": key.token,
        "DATABASE_URL": database,
        "EMBEDDING_MODEL": "embedder",
        "CHAT_MODEL": "sandbox/echo",
    }
    command = [sys.executable, str(PROJECT / "examples" / "rag.py"), QUESTION, *texts]
    try:
        # The second run replaces the existing texts.
        for _ in range(2):
            done = subprocess.run(
                command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr
        with psycopg.connect(database) as store:
            kept = store.execute("SELECT name, body, vector_dims(embedding) FROM rag_documents ORDER BY name")
            assert kept.fetchall() == [(name, texts[name], 8) for name in sorted(texts)]
    finally:
        with psycopg.connect(database) as store:
            store.execute("DROP TABLE IF EXISTS rag_documents")
            store.execute("DROP EXTENSION IF EXISTS vector")
    said, _, sources = done.stdout.rstrip("\n").rpartition("\n\n")
    assert said.startswith(f"You said: [1] {QUESTION}\n\n[2] ")
    assert said.endswith(f"Question: {QUESTION}")
    assert sources.splitlines()[0] == "[1] pool.txt"
    assert {line[4:] for line in sources.splitlines()} == set(texts)
    logs = gateway.logs_of(key)
    assert [log["route"] for log in logs] == ["embeddings", "embeddings", "chat_completions"] * 2
    assert len({log["cost"] for log in logs[0::3]}) == 1
    assert gateway.is_paid_to_the_last_digit()
