"""Files of metrics: without holes, since writing to one on a full disk kills the process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from gateway_project.observability.metric_files import PreallocatedMetricFile


def kept(path: Path) -> dict[str, float]:
    return {key: value for key, value, _, _ in MmapedDict.read_all_values_from_file(str(path))}


def full(*_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def has_holes(path: Path) -> bool:
    return path.stat().st_blocks * 512 < path.stat().st_size


def test_a_metric_s_file_has_no_holes_however_large_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "counter_1.db"
    metrics = PreallocatedMetricFile(str(path))
    assert not has_holes(path)
    for number in range(3000):
        metrics.write_value(f"metric {number} with some labels", number, 0.0)
    assert path.stat().st_size > 65536
    assert not has_holes(path)
    assert len(kept(path)) == 3000
    metrics.close()


def test_without_room_to_grow_what_is_known_is_counted_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counter_1.db"
    metrics = PreallocatedMetricFile(str(path))
    metrics.write_value("known", 1.0, 0.0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    for number in range(3000):
        metrics.write_value(f"metric {number} with some labels", number, 0.0)
    metrics.write_value("known", 2.0, 0.0)
    assert (path.stat().st_size, has_holes(path)) == (65536, False)
    assert kept(path)["known"] == 2.0
    # Where there was no room they are counted all the same, and not told.
    assert metrics.read_value("metric 2999 with some labels") == (2999.0, 0.0)
    assert "metric 2999 with some labels" not in kept(path)
    metrics.close()


def test_a_process_that_starts_on_a_full_disk_counts_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    path = tmp_path / "counter_1.db"
    metrics = PreallocatedMetricFile(str(path))
    metrics.write_value("known", 2.0, 0.0)
    assert metrics.read_value("known") == (2.0, 0.0)
    # Nor is there a file that others could not read.
    assert list(tmp_path.iterdir()) == []
    metrics.close()
