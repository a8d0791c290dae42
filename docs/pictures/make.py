#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README and docs from real runs: `python3 docs/pictures/make.py [PROGRAM]`.

Wants matplotlib and rich. Each picture is what the program printed at that time; nothing is drawn by hand.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/lightloom").resolve()
RED, BLUE, GREY = "#d55e00", "#0072b2", "#777777"


def lightloom(*arguments):
    """What the program shows, in colour."""
    command = [str(PROGRAM), "--color", "always", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def ring(folder):
    """The ring of the report, as a picture of its own: the page's own style goes with it."""
    page = folder / "report.html"
    lightloom("report", "topologies/ring-2880.yaml", "--fault", "n17,n42,n200,n201,n416/b1", "-o", page)
    html = page.read_text()
    style = re.search(r"<style>(.*?)</style>", html, re.S).group(1)
    drawn = re.search(r'<svg class="ring".*?</svg>', html, re.S).group(0)
    drawn = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    begin = drawn.index(">") + 1
    # Titles are for a pointer that the picture does not have.
    body = re.sub(r"<title>.*?</title>", "", drawn[begin:], flags=re.S)
    (HERE / "ring.svg").write_text(f"{drawn[:begin]}<style>{style}</style>{body}\n")


def recovery(folder):
    """Bus bandwidth of the ring that loses a node, and of all others."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "lightloom"
    run = folder / "run.json"
    lightloom("emulate", HERE / "recovery.yaml", "-o", run)
    run = json.loads(run.read_text())
    fault = run["faults"][0]
    affected = set(fault["groups_affected"])
    # A ring goes on as soon as the nodes that it moves to have light; the fault is restored when the last bundle that is switched has.
    goes_on = fault["at_ps"] + max(row["down_ps"] for row in run["groups"] if row["group"] in affected)
    figure, axes = pyplot.subplots(figsize=(8, 3))
    lines = {}
    for row in run["workloads"]:
        lines.setdefault(row["group"], []).append(row)
    drawn = set()
    for group, rows in lines.items():
        rows.sort(key=lambda row: row["start_ps"])
        times, rates = [], []
        for row in rows:
            begin = max(row["start_ps"], times[-1] * 1e9 if times else 0)
            gap = row["end_ps"] - begin > 3 * row["ideal_ps"]
            if gap:  # the collective that the fault interrupted: its ring began it again
                times += [fault["at_ps"] / 1e9, fault["at_ps"] / 1e9, goes_on / 1e9]
                rates += [rates[-1], 0, 0]
                begin = goes_on
            rate = row["busbw_bytes_per_s"] * (row["end_ps"] - row["start_ps"]) / (row["end_ps"] - begin) / 1e9
            times += [begin / 1e9, row["end_ps"] / 1e9]
            rates += [rate, rate]
        colour, width = (RED, 2) if group in affected else (BLUE, 0.6)
        label = f"{group}, which loses {fault['parts'][0]}" if group in affected else f"the other {len(lines) - len(affected)} rings"
        axes.plot(times, rates, color=colour, linewidth=width, label=None if label in drawn else label, zorder=3 if group in affected else 2)
        drawn.add(label)
    restored = f"ring goes on ({goes_on / 1e9:.2f} ms)\nrestored: last bundle switched ({fault['restored_ps'] / 1e9:.3f} ms)"
    times = [("dead", fault["at_ps"]), ("detected", fault["detected_ps"]), ("planned", fault["replanned_ps"]), (None, goes_on), (restored, fault["restored_ps"])]
    for name, time in times:
        axes.axvline(time / 1e9, color=GREY, linewidth=0.8, linestyle=":")
        if name:
            axes.annotate(name, (time / 1e9, 1.01), xycoords=("data", "axes fraction"), fontsize=8, color=GREY, ha="left" if name == restored else "center")
    axes.set_xlabel("time in ms (emulated)")
    axes.set_ylabel("bus bandwidth in GB/s")
    axes.set_ylim(bottom=0)
    axes.legend(loc="center right", frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "recovery.svg", bbox_inches="tight", metadata={"Date": None}, facecolor="white")


def terminal():
    """A terminal with a plan of both halves around what is broken."""
    from rich.console import Console
    from rich.text import Text

    command = "lightloom plan topologies/pod-2048.yaml --fault n17,ocs3"
    console = Console(record=True, width=132, file=open("/dev/null", "w"))
    console.print(Text(f"$ {command}\n"))
    console.print(Text.from_ansi(lightloom(*command.split()[1:])))
    (HERE / "plan.svg").write_text(console.export_svg(title="lightloom", unique_id="plan"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ring(Path(folder))
        recovery(Path(folder))
    terminal()
