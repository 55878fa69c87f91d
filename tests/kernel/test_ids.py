"""Ids: never the same twice, not even in a process and its child, and the text that `str` gives."""

from __future__ import annotations

import os
from uuid import UUID, uuid4

from apps.kernel.ids import new_id, random_number, text_of


def test_ids_are_uuids_of_version_7_and_differ() -> None:
    ids = [new_id() for _ in range(2_000)]
    assert len(set(ids)) == 2_000
    assert {(one.version, one.variant) for one in ids} == {(7, UUID(int=2 << 62).variant)}


def test_a_child_does_not_repeat_its_parents_numbers() -> None:
    random_number()  # From here on there are some left over.
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, b"%d" % random_number())
        os._exit(0)
    os.waitpid(child, 0)
    childs = int(os.read(reading, 100))
    os.close(reading)
    os.close(writing)
    assert childs not in {random_number() for _ in range(1_000)}


def test_the_text_of_an_id_is_what_str_says() -> None:
    ids = [UUID(int=0), UUID(int=(1 << 128) - 1), uuid4(), new_id()]
    assert [text_of(one) for one in ids] == [str(one) for one in ids]
