# SPDX-License-Identifier: Apache-2.0
"""lightloom from Python: each verb of the program is a function, each result its JSON document.

    import lightloom
    run = lightloom.emulate("scenario.yaml", seed=7)
    run["metrics"]["availability"]
    run.frame("workloads").to_parquet("workloads.parquet")

Nothing is computed here: what a function returns is what the program printed with ``--format json``. A :class:`Network` is
the packet engine under a program that sends.
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
    """The program refused its input: ``str(error)`` is what it wrote, ``error.status`` its exit status."""

    def __init__(self, arguments, status, messages):
        super().__init__(messages.strip() or f"`lightloom {' '.join(arguments)}` ended with status {status}")
        self.status = status


class Result(dict):
    """One JSON document of the program, with its lists of rows as frames."""

    @property
    def tables(self):
        """Names of the lists of rows that :meth:`frame` takes."""
        return [name for name, value in self.items() if isinstance(value, list) and value and isinstance(value[0], dict)]

    def frame(self, table):
        """The rows of a list as a pandas frame; what is nested gets names with dots."""
        try:
            import pandas
        except ImportError as missing:
            raise ImportError("frames want pandas: pip install pandas pyarrow") from missing
        if not isinstance(self.get(table), list):
            raise KeyError(f"no table {table!r}: this result has {', '.join(self.tables) or 'none'}")
        return pandas.json_normalize(self[table])


def program():
    """Path of the program: ``LIGHTLOOM``, else the one installed with this package, else the one on PATH."""
    named = os.environ.get("LIGHTLOOM")
    beside = shutil.which("lightloom", path=str(Path(sys.executable).parent))
    found = named or beside or shutil.which("lightloom")
    if not found:
        raise FileNotFoundError("no program `lightloom`: install the wheel, or set LIGHTLOOM to its path")
    return found


def verb(name, *inputs, **options):
    """Runs ``lightloom NAME INPUTS --option value … --format json`` and returns its result.

    An option is written with underscores (``gpus_per_node=8``); ``True`` gives the flag alone, ``None`` leaves it
    out, a list is separated by commas. A run whose expectations fail is a result too: look at ``expectations``.
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
    """Makes the next plan with the least change: ``replan("plan.json", "fabric.yaml", fault=["n21"])``."""
    return verb("replan", before, fabric=fabric, **options)


def emulate(scenario, **options):
    """Runs a scenario packet by packet: ``emulate("scenario.yaml", seed="0..99")`` is a sweep."""
    return verb("emulate", scenario, **options)


def compare(**options):
    """Waste of designs under faults: ``compare(gpus=2880, arch=["khop:3", "nvl:72"])``."""
    return verb("compare", **options)


def cost(**options):
    """Cost and power of designs."""
    return verb("cost", **options)


def mfu(model, gpus, **options):
    """Step time and MFU: ``mfu("llama-3.1-70b", 1024, arch="dgx", top=4)``."""
    return verb("mfu", model=model, gpus=gpus, **options)
