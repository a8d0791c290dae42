# SPDX-License-Identifier: Apache-2.0
"""The package over the real program. `LIGHTLOOM` names the program; files are those of topologies/."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import lightloom

SHIPPED = Path(__file__).resolve().parents[2] / "topologies"
SCENARIO = SHIPPED / "scenarios" / "neighbours-k.yaml"


def printed(*arguments):
    shown = subprocess.run([lightloom.program(), *map(str, arguments)], capture_output=True, text=True, check=True)
    return json.loads(shown.stdout)


def without_times(document):
    return {name: value for name, value in document.items() if "seconds" not in name and not name.endswith("per_second")}


def test_a_result_is_what_the_program_prints():
    for ours, theirs in [
        (lightloom.plan(SHIPPED / "ring-256.yaml", fault=["n3", "n9/b0"]),
         printed("plan", SHIPPED / "ring-256.yaml", "--fault", "n3,n9/b0", "--format", "json")),
        (lightloom.emulate(SCENARIO, seed=3), printed("emulate", SCENARIO, "--seed", 3, "--format", "json")),
        (lightloom.compare(gpus=720, arch=["khop:3", "nvl:72"], tp=16),
         printed("compare", "--gpus", 720, "--arch", "khop:3,nvl:72", "--tp", 16, "--format", "json")),
    ]:
        assert without_times(ours) == without_times(theirs)


def test_tables_become_frames_and_parquet(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    run = lightloom.emulate(SCENARIO)
    assert {"workloads", "faults", "links", "expectations"} <= set(run.tables)
    frame = run.frame("links")
    assert len(frame) == len(run["links"])
    assert "queue.p99_bytes" in frame.columns
    frame.to_parquet(tmp_path / "links.parquet")
    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "links.parquet"), frame)
    sweep = lightloom.emulate(SCENARIO, seed="0..1")
    faults = sweep.frame("faults")
    assert list(faults["seed"].unique()) == [0, 1] and "parts" in faults.columns
    assert len(sweep.frame("expectations")) == len(sweep["expectations"])
    steps = lightloom.mfu("llama-3.1-70b", 1024, top=4).frame("rows")
    assert (steps["mfu"] > 0).all() and len(steps) == 4


def test_what_the_program_refuses_is_raised_with_its_own_words():
    with pytest.raises(lightloom.Failed, match="no/such.yaml") as refused:
        lightloom.plan("no/such.yaml")
    assert refused.value.status == 1
    with pytest.raises(lightloom.Failed) as wrong:
        lightloom.compare(no_such_flag=1)
    assert wrong.value.status == 2
    with pytest.raises(KeyError, match="workloads"):
        lightloom.emulate(SCENARIO).frame("no such table")


def test_expectations_that_fail_are_a_result(tmp_path):
    text = SCENARIO.read_text().replace("on: {fabric: ../", f"on: {{fabric: {SHIPPED}/")
    scenario = tmp_path / "strict.yaml"
    scenario.write_text(text.split("expect:")[0] + "expect: [completes within 1ps]\n")
    run = lightloom.emulate(scenario)
    assert [one["passed"] for one in run["expectations"]] == [False]


def test_a_missing_program_is_said(monkeypatch):
    monkeypatch.delenv("LIGHTLOOM", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(FileNotFoundError, match="LIGHTLOOM"):
        lightloom.program()
    assert os.environ["PATH"] == "/nonexistent"
