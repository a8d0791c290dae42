#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README and docs from real runs: `python3 docs/pictures/make.py [PROGRAM]`.

Wants matplotlib and rich. Each picture is what the program printed at that time; nothing is drawn by hand.
"""

import json
import math
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
    """The nodes of the report, as a separate picture with the page's style."""
    page = folder / "report.html"
    lightloom("report", "topologies/ring-2880.yaml", "--fault", "n17,n42,n200,n201,n416/b1", "-o", page)
    html = page.read_text()
    style = re.search(r"<style>(.*?)</style>", html, re.S).group(1)
    drawn = re.search(r'<svg class="nodes".*?</svg>', html, re.S).group(0)
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


MOVES_STYLE = """
text { font: 14px system-ui, sans-serif; fill: #333 } .what { font-weight: 600 } .node { fill: #8a929c } .dead { fill: #d55e00 }
path { fill: none; stroke: #0072b2; stroke-width: 2 } .bypass { stroke: #e69f00; stroke-width: 3 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } path { stroke: #56b4e9 } .bypass { stroke: #e69f00 } }
.s0, .s1, .s2, .p0, .p1 { opacity: 0; animation: 9s step-end infinite } .s0 { animation-name: s0 } .s1 { animation-name: s1 }
.s2 { animation-name: s2 } .p0 { animation-name: p0 } .p1 { animation-name: p1 }
@keyframes s0 { 0% { opacity: 1 } 33% { opacity: 0 } } @keyframes s1 { 33% { opacity: 1 } 50% { opacity: 0 } }
@keyframes s2 { 50% { opacity: 1 } } @keyframes p0 { 0% { opacity: 1 } 50% { opacity: 0 } } @keyframes p1 { 50% { opacity: 1 } }
@media (prefers-reduced-motion: reduce) { .s0, .s1, .s2, .p0, .p1 { animation: none } .s2, .p1 { opacity: 1 } }
"""


def on_circle(centre, radius, index, count):
    angle = 2 * math.pi * index / count - math.pi / 2
    return centre + radius * math.cos(angle), 200 + radius * math.sin(angle)


def bow(centre, radius, ends, kind):
    """A curve between two places, drawn towards the middle."""
    (ax, ay), (bx, by) = ends
    pull = 0.5 if kind == "bypass" else 0.7
    mx, my = centre + ((ax + bx) / 2 - centre) * pull, 200 + ((ay + by) / 2 - 200) * pull
    return f'<path class="{kind}" d="M{ax:.1f} {ay:.1f}Q{mx:.1f} {my:.1f} {bx:.1f} {by:.1f}"/>'


def moves(folder):
    """Rings around a node that fails, and the circuits of a job's phases."""
    before, after, phases = (folder / name for name in ("before.json", "after.json", "phases.json"))
    lightloom("plan", "topologies/ring-40-spare.yaml", "-o", before)
    change = lightloom("replan", before, "--fabric", "topologies/ring-40-spare.yaml", "--fault", "n8", "-o", after, "--format", "json")
    bundles = len(json.loads(change)["change"]["bundles"])
    lightloom("plan", "topologies/job-64-circuits.yaml", "-o", phases)
    before, after, phases = (json.loads(path.read_text()) for path in (before, after, phases))
    pair = lambda circuit: tuple(int(re.match(r"n(\d+)/", circuit[end]).group(1)) for end in "ab")
    lit = [{pair(circuit) for circuit in plan["circuits"]} for plan in (before, after)]
    # The line of nodes: those of a slot of each ToR, one after the other.
    line = sorted(range(40), key=lambda node: (node % 4, node // 4))
    at = {node: on_circle(200, 160, place, 40) for place, node in enumerate(line)}
    ring = lambda circuits, kind: "".join(bow(200, 160, (at[a], at[b]), kind) for a, b in sorted(circuits))
    steady = lit[0] & lit[1]
    drawn = ring(steady, "lit")
    drawn += f'<g class="s0">{ring(lit[0] - steady, "lit")}</g>'
    drawn += f'<g class="s1">{ring({pair for pair in lit[0] - steady if 8 not in pair}, "lit")}</g>'
    drawn += f'<g class="s2">{ring(lit[1] - steady, "bypass")}</g>'
    drawn += "".join(f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in at.values())
    for state in ("s1", "s2"):
        drawn += f'<circle class="dead {state}" cx="{at[8][0]:.1f}" cy="{at[8][1]:.1f}" r="7"/>'
    rings = len(before["groups"])
    for state, words in (("s0", f"{rings} rings of 5 nodes"), ("s1", "n8 fails"), ("s2", f"bypassed: {bundles} bundles switch")):
        drawn += f'<text class="what {state}" x="200" y="205" text-anchor="middle">{words}</text>'
    leaves = [on_circle(620, 150, leaf, 16) for leaf in range(16)]
    for state, phase in zip(("p0", "p1"), phases["phases"]):
        ends = [tuple(int(circuit[end][4:]) for end in "ab") for circuit in phase["circuits"]]
        curves = "".join(bow(620, 150, (leaves[a], leaves[b]), "lit") for a, b in sorted(set(ends)))
        drawn += f'<g class="{state}">{curves}<text class="what" x="620" y="392" text-anchor="middle">{phase["name"]}: {len(ends)} circuits</text></g>'
    drawn += "".join(f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="6"/>' for x, y in leaves)
    about = "A node fails and its ring is closed around it; optical switches give each phase of a job its own circuits"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 404" role="img" aria-label="{about}">'
    (HERE / "moves.svg").write_text(f"{head}<style>{MOVES_STYLE}</style>{drawn}</svg>\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ring(Path(folder))
        recovery(Path(folder))
        moves(Path(folder))
    terminal()
