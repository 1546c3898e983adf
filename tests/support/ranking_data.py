"""Real ranking data for the tests in Python: 201 queries with 1 to 27 candidates each."""

import os
import pathlib

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("LOSSD_DATA", ROOT.parent / "shared" / "data"))


def read_ranking_data():
    """(candidates of each query, grades [C], features [C, 300]); the test is skipped where there is no data."""
    if not (DATA / "rank.train").exists():
        pytest.skip(f"no ranking data in {DATA}: set LOSSD_DATA to a folder with rank.train and rank.train.query")
    lengths = [int(n) for n in (DATA / "rank.train.query").read_text().split()]
    lines = [line.split() for line in (DATA / "rank.train").read_text().splitlines()]
    features = np.zeros((len(lines), 300))
    for row, (_, *pairs) in enumerate(lines):
        for pair in pairs:
            index, value = pair.split(":")
            features[row, int(index) - 1] = float(value)
    return lengths, np.array([float(line[0]) for line in lines]), features
