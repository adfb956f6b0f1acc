"""Rows of measurements: adding some loses none."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from record import Record


def test_rows_are_added_with_their_columns(tmp_path):
    path = tmp_path / "results" / "rows.csv"
    Record(path).write([{"system": "S0", "us": 9.0}])
    record = Record(path)
    for rows in ([{"system": "S1", "commit": "abc"}], [{"system": "S2", "commit": "abc"}] * 2):
        record.write(rows)
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["system"] for row in found] == ["S0", "S2", "S2"], "a run's rows replace its own"
    assert found[0] == {"system": "S0", "us": "9.0", "commit": ""}
