# SPDX-License-Identifier: Apache-2.0
"""Python interface of lightloom: one function per verb, which returns the JSON result.

    import lightloom
    run = lightloom.emulate("scenario.yaml", seed=7)
    run["metrics"]["availability"]
    run.frame("workloads").to_parquet("workloads.parquet")

Functions run the program with ``--format json`` and return its output. A :class:`Network` gives access to the packet
engine.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .network import Network, Refused

__all__ = [
    "Failed", "Network", "Refused", "Result", "compare", "cost", "emulate", "mfu", "plan", "program", "replan", "verb",
]


class Failed(RuntimeError):
    """The program rejected its input: ``str(error)`` contains its messages, ``error.status`` its exit status."""

    def __init__(self, arguments, status, messages):
        super().__init__(messages.strip() or f"`lightloom {' '.join(arguments)}` ended with status {status}")
        self.status = status


class Result(dict):
    """A JSON result of the program, whose tables can be converted to pandas frames."""

    @property
    def tables(self):
        """Names of the tables that :meth:`frame` accepts, including those inside other tables."""
        outer = {name: value for name, value in self.items() if isinstance(value, list) and all(isinstance(row, dict) for row in value)}
        inner = {name for rows in outer.values() for row in rows for name, value in row.items() if _is_table(value)}
        return [*outer, *sorted(inner - set(outer))]

    def frame(self, table):
        """Returns a table as a pandas frame; nested values get dotted names.

        Rows of an inner table, such as the ``faults`` of all runs of a sweep, begin with the first value of their outer row,
        such as the seed.
        """
        try:
            import pandas
        except ImportError as missing:
            raise ImportError("frames require pandas: pip install pandas pyarrow") from missing
        if isinstance(self.get(table), list):
            return pandas.json_normalize(self[table])
        for rows in self.values():
            if not isinstance(rows, list) or not any(isinstance(row, dict) and _is_table(row.get(table)) for row in rows):
                continue
            labels = ((next(iter(row.items())), row.get(table, [])) for row in rows)
            return pandas.json_normalize([{name: value, **row} for (name, value), inner in labels for row in inner])
        raise KeyError(f"no table {table!r}: this result has {', '.join(self.tables) or 'none'}")


def _is_table(value):
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def program():
    """Returns the path of the program: ``LIGHTLOOM``, else the program of this package, else the one on PATH."""
    named = os.environ.get("LIGHTLOOM")
    beside = shutil.which("lightloom", path=str(Path(sys.executable).parent))
    found = named or beside or shutil.which("lightloom")
    if not found:
        raise FileNotFoundError("cannot find the program `lightloom`: install the wheel, or set LIGHTLOOM to its path")
    return found


def verb(name, *inputs, **options):
    """Runs ``lightloom NAME INPUTS --option value … --format json`` and returns its result.

    Options use underscores (``gpus_per_node=8``). ``True`` sets a flag without a value, ``None`` omits it, and lists are
    joined with commas. If the expectations of a run fail, its result is still returned: check ``expectations``.
    """
    arguments = [name, *map(str, inputs), "--format", "json"]
    for option, value in options.items():
        flag = "--" + option.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(flag)
        elif isinstance(value, (list, tuple)):
            arguments += [flag, ",".join(map(str, value))]
        else:
            arguments += [flag, str(value)]
    ended = subprocess.run([program(), *arguments], capture_output=True, text=True, check=False)
    if not ended.stdout.lstrip().startswith("{"):
        raise Failed(arguments, ended.returncode, ended.stderr)
    return Result(json.loads(ended.stdout))


def plan(fabric, **options):
    """Plans rings, ranks and circuits: ``plan("fabric.yaml", fault=["n17", "ocs3"])``."""
    return verb("plan", fabric, **options)


def replan(before, fabric, **options):
    """Makes the next plan with the fewest changes: ``replan("plan.json", "fabric.yaml", fault=["n21"])``."""
    return verb("replan", before, fabric=fabric, **options)


def emulate(scenario, **options):
    """Runs a scenario packet by packet: ``emulate("scenario.yaml", seed="0..99")`` runs a sweep."""
    return verb("emulate", scenario, **options)


def compare(**options):
    """Compares the waste of designs under faults: ``compare(gpus=2880, arch=["khop:3", "nvl:72"])``."""
    return verb("compare", **options)


def cost(**options):
    """Computes the cost and power of designs."""
    return verb("cost", **options)


def mfu(model, gpus, **options):
    """Computes step time and MFU: ``mfu("llama-3.1-70b", 1024, arch="dgx", top=4)``."""
    return verb("mfu", model=model, gpus=gpus, **options)
