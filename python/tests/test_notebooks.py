# SPDX-License-Identifier: Apache-2.0
"""Runs the code of each notebook in a folder with the files that `lightloom init scenario` writes."""

import json
import subprocess
from pathlib import Path

import pytest

import lightloom

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_its_frames_have_rows(notebook, tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    subprocess.run([lightloom.program(), "init", "scenario", "-o", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    frames = [value for value in names.values() if isinstance(value, pandas.DataFrame)]
    assert frames and all(len(frame) > 0 for frame in frames)
