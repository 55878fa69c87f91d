"""The table of clients and formats: it holds what ran to its end, and keeps the rows of clients that did not run."""

from __future__ import annotations

from pathlib import Path

from tests.clients.matrix import BEGIN, CLIENTS, END, Cell, merged_into, rows_of

HERE = Path(__file__).parent
FIRST, SECOND = CLIENTS[0], CLIENTS[1]


def test_every_file_that_tests_a_client_is_named() -> None:
    named = {test.split("::")[0] for client in CLIENTS for test in client.tests}
    assert named == {path.name for path in HERE.glob("test_*.py")} - {
        "test_environment.py",
        "test_matrix.py",
        # Clients of other gateways: their own fields are tried, over one format.
        "test_routers.py",
        # Not chats: embeddings, rankings, judgements and sound are asked for over one format; and a format that no
        # client of today begins with.
        "test_embeddings.py",
        "test_cohere_and_voyage.py",
        "test_embeddings_frameworks.py",
        "test_rag_example.py",
        "test_completions.py",
        "test_audio.py",
        # Sessions with masked values of agents whose chats are tested in files of their own.
        "test_masking_in_agents.py",
        # The console after agents have worked.
        "test_console_walk.py",
        # Tools and signing in, not chats.
        "test_agents_sign_in.py",
        "test_mcp.py",
        "test_server_tools.py",
        "test_mcp_sign_in.py",
    }


def test_a_cell_tells_nothing_before_all_tests_ran() -> None:
    cells = [Cell(2, 1), Cell(2, 2), Cell(2, 1, 1), Cell(1, 0, 0, 1), Cell()]
    assert [str(cell) for cell in cells] == ["", "2", "**1 of 2 fail**", "", ""]


def test_a_run_of_some_clients_keeps_the_rows_of_others() -> None:
    document = f"before\n{BEGIN}\n{END}\nafter"
    both = rows_of({(FIRST, "openai"): Cell(1, 1), (SECOND, "openai"): Cell(1, 1)}, "2026-01-01")
    later = rows_of({(SECOND, "google"): Cell(1, 0, 1)}, "2026-02-02")
    written = merged_into(merged_into(document, both), later)
    rows = [line for line in written.splitlines() if line.startswith("|")][2:]
    assert rows == [both[FIRST.row], later[SECOND.row]]
    assert written.startswith("before\n")
    assert written.endswith("\nafter")
