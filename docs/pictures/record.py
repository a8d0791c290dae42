#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records `lightloom demo --live`: `python3 docs/pictures/record.py [FOLDER WITH THE PROGRAMS]`, as root where Slurm is installed.

Writes demo-live.svg, an animation in which each line of the terminal appears when the program printed it, and, if Chromium is installed,
report.png, the first screen of the report that the demo wrote. Needs only the standard library.
"""

import html
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[1] / "target/release").resolve()
# `--no-open` is not shown: it only keeps the demo from opening a browser.
COMMAND = ["lightloom", "demo", "--live", "--no-open"]
FONT, LINE, MARGIN = 14, 20, 16
# The width of a character of most fixed-width fonts, in ems. Each line is stretched to it, whatever the font.
CHARACTER = FONT * 0.602
# The animation shows the last line for this long before it starts again.
HOLD_SECONDS = 6
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STYLE = f"""
text {{ font: {FONT}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d6dbe1; white-space: pre }}
.prompt {{ fill: #7ee787 }} .duration {{ fill: #79c0ff }}
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none !important }} }}
"""


def recorded(folder):
    """Runs the command on a terminal. Returns its lines, each with the seconds from the start to its end, and the seconds of the run."""
    leader, follower = pty.openpty()
    environment = os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "TERM": "dumb"}
    start = time.monotonic()
    program = subprocess.Popen(COMMAND, cwd=folder, env=environment, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    lines, rest = [], b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # Linux reports the end of a terminal as an error.
            data = b""
        now = time.monotonic() - start
        *ended, rest = (rest + data).split(b"\n")
        # A line that was overwritten in place counts as it was at its end.
        lines += [(now, ESCAPE.sub("", line.decode().rstrip("\r").rpartition("\r")[2])) for line in ended]
        if not data:
            break
    if program.wait() != 0:
        sys.exit("\n".join(line for _, line in lines) + f"\n{COMMAND} failed with {program.returncode}")
    return lines, time.monotonic() - start


def drawn(line):
    """Returns the line as SVG, with a prompt or a duration in its own colour."""
    begin = re.match(r"(\$ )?( *\d+ ms)?", line)[0]
    kind = "prompt" if begin.startswith("$") else "duration"
    coloured = f'<tspan class="{kind}">{html.escape(begin)}</tspan>' if begin else ""
    return coloured + html.escape(line[len(begin) :], quote=False)


def animation(lines, seconds):
    """Returns the terminal as an SVG. A viewer that does not animate shows the last state."""
    shown = [(0, "$ " + " ".join(COMMAND[:3])), *lines]
    total = seconds + HOLD_SECONDS
    columns = max(len(line) for _, line in shown)
    width, height = round(columns * CHARACTER + 2 * MARGIN), len(shown) * LINE + 2 * MARGIN
    texts, moments = [], {}
    for number, (at, line) in enumerate(shown):
        if not line:
            continue
        moment = moments.setdefault(f"{100 * at / total:.2f}", f"m{len(moments)}")
        x, y, length = MARGIN, MARGIN + number * LINE + FONT, len(line) * CHARACTER
        attributes = f'x="{x}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs" xml:space="preserve"'
        texts.append(f'<text {attributes} style="animation: {moment} {total:.2f}s step-end infinite">{drawn(line)}</text>')
    frames = "".join(
        f"@keyframes {name} {{ 0% {{ opacity: 0 }} {percent}% {{ opacity: 1 }} }}\n" for percent, name in moments.items() if float(percent) > 0
    )
    label = html.escape("A terminal: " + "; ".join(" ".join(line.split()) for _, line in shown if line))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">\n<style>{STYLE}{frames}</style>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>\n' + "\n".join(texts) + "\n</svg>\n"
    )


def screenshot(page):
    """Renders the first screen of the page."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        print("no Chromium: report.png is unchanged")
        return
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=900,620", "--force-device-scale-factor=1.5", f"--screenshot={HERE / 'report.png'}"]
    subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        (HERE / "demo-live.svg").write_text(animation(*recorded(folder)))
        screenshot(Path(folder, "lightloom-demo/report.html"))
