#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the published work items of packet simulators through the command line, for every transport.

    ci/work_items.py [--items permutation-128,incast] [--transports dctcp,nscc] [--htsim SOURCE] [--seed 5]
                     [--lightloom target/release/lightloom]

Three-tier fat-trees with links of 400 Gb/s and 1 us, and queues of 1 MiB that mark from 128 KiB. Each row is one run of
`lightloom emulate` on a generated scenario; `--keep DIR` keeps them. In `dark` rows, one cable between aggregation and core is
down from the start. `--seed` draws five more networks, sizes and pairs. SOURCE is a checkout of csg-htsim built with `make -C sim`
(or CSG_HTSIM in the environment): its NDP, EQDS and RoCE alternate with our runs on the same flows. Processor time is that of the
whole process. Prints Markdown. Exits with 1 if a row misses its promised value.
"""

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile

QUEUE = "queue: 1MiB, mark_from: 128KiB"
SPRAY = "balance: {spray: {paths: 64}}"
TRANSPORTS = {
    "dctcp": ("DCTCP, per flow", "congestion: dctcp", QUEUE),
    "dcqcn": ("DCQCN, per flow, pauses", "congestion: dcqcn", "mark_from: 128KiB, pause: {priorities: [0], above: 400KiB}"),
    "dcqcn-simai": (
        "DCQCN as SimAI.conf has it, per flow, pauses",
        "congestion: dcqcn, dcqcn: {preset: simai}",
        "mark_from: 800KB, mark_ramp: {all_from: 3200KB, percent: 20}, pause: {priorities: [0], above: 2MiB}",
    ),
    "swift": ("Swift, per flow", "congestion: swift", QUEUE),
    "nscc": ("NSCC style, sprayed, trims", f"congestion: nscc, {SPRAY}, window_percent: 135", f"{QUEUE}, trim: true"),
    "entropy": (
        "NSCC style, 64 entropy values, trims",
        "congestion: nscc, balance: {entropy: {values: 64, probe: 20us, paths: even}}, window_percent: 135",
        f"{QUEUE}, trim: true",
    ),
    "adaptive": (
        "NSCC style, switches choose, trims",
        "congestion: nscc, balance: adaptive, window_percent: 135",
        f"{QUEUE}, trim: true",
    ),
    "credit": ("receiver credit, sprayed, trims", f"congestion: receiver_credit, {SPRAY}, window_percent: 100", f"{QUEUE}, trim: true"),
}
SPREAD = ("nscc", "entropy", "adaptive", "credit")
# Allowed duration of a permutation with adaptive switches, relative to its bound.
ADAPTIVE = 1.25
MIB = 1 << 20


def hosts_of(radix):
    return radix**3 // 4


def permutation(hosts, seed=1):
    """A random cycle through all hosts, in which each sends to one and receives from one. Maps such as `37 a + b` would
    spread flows over paths unlike any job."""
    order = list(range(hosts))
    random.Random(seed).shuffle(order)
    return [(order[at], order[(at + 1) % hosts]) for at in range(hosts)]


class Item:
    """A work item: its traffic on a fat-tree of this radix, and the allowed duration of spraying transports relative to its bound."""

    def __init__(self, radix, size, flows=None, run=None, promised=None, again=None):
        self.radix, self.size, self.flows, self.run = radix, size, flows, run
        self.promised, self.again = promised, again


def items():
    return {
        "permutation-16": Item(4, 64 * MIB, permutation(16), promised=1.15),
        "permutation-128": Item(8, 8 * MIB, permutation(128), promised=1.15),
        "permutation-1024": Item(16, MIB, permutation(1024), promised=1.15),
        "permutation-8192": Item(32, 256 << 10, permutation(8192)),
        "incast-32": Item(8, 8 * MIB, [(127 - 3 * at, 0) for at in range(32)], promised=1.02, again=7_000),
        # Each host sends 1 MiB to each of the 64.
        "all-to-all-64": Item(8, 64 * MIB, run="{all_to_all: at_once}, hosts: [h0..h63]"),
        "ring-128": Item(8, 16 * MIB, run="{all_reduce: ring}, directions: one"),
    }


def drawn(seed):
    """Five more items with random networks, sizes and pairs."""
    draw = random.Random(seed)
    for at in range(5):
        radix = draw.choice([4, 6, 8, 10, 12])
        hosts = list(range(hosts_of(radix)))
        to = hosts[:]
        draw.shuffle(to)
        size = draw.randint(256 << 10, 4 * MIB)
        flows = [(one, other) for one, other in zip(hosts, to) if one != other]
        yield f"drawn-{seed}.{at}", Item(radix, size, flows, promised=1.15)


def scenario(item, transport, dark, folder):
    _, sends, switches = TRANSPORTS[transport]
    lines = [
        "kind: scenario",
        "version: 2",
        "name: work-item",
        f"on: {{fat_tree: {{radix: {item.radix}}}}}",
        "links: {rate: 400Gbps, delay: 1us}",
        f"transport: {{{sends}}}",
        f"switches: {{{switches}}}",
        "seed: 1",
    ]
    if item.flows:
        table = os.path.join(folder, "flows.csv")
        with open(table, "w", encoding="utf-8") as file:
            file.write("start,src,dst,bytes\n")
            file.writelines(f"0,h{one},h{other},{item.size}\n" for one, other in item.flows)
        lines.append("traffic: [{name: work, run: {flows: flows.csv}}]")
    else:
        lines.append(f"traffic: [{{name: work, run: {item.run}, bytes: {item.size}B}}]")
    if dark:
        # The first pod consists of radix/2 edge switches and as many aggregation switches; cores follow all pods.
        first, core = item.radix // 2, item.radix * item.radix
        lines.append(f"faults: [{{part: s{first}-s{core}, at: 0us}}]")
    path = os.path.join(folder, "scenario.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def timed(command, **how):
    """Returns the output and the processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=False, capture_output=True, text=True, **how)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr[-2000:] or done.stdout[-500:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(lightloom, name, item, transport, dark, keep):
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(keep, f"{name}-{transport}{'-dark' if dark else ''}") if keep else scratch
        os.makedirs(folder, exist_ok=True)
        path = scenario(item, transport, dark, folder)
        text, seconds = timed([lightloom, "emulate", path, "--format", "json"])
    result = json.loads(text)
    work, packets = result["workloads"][0], result["packets"]
    if packets["sent"] != sum(packets[key] for key in ("delivered", "dropped", "lost", "in_flight")):
        sys.exit(f"{name} {transport}: packets are not conserved: {packets}")
    return work["lower_bound_ps"] / 1e6, work["end_ps"] / 1e6, packets["retransmitted"], seconds


def theirs(source, program, item):
    """Returns the last flow's end in microseconds and the processor time of a csg-htsim program on the same flows."""
    hosts = hosts_of(item.radix)
    common = ["-nodes", str(hosts), "-tiers", "3", "-linkspeed", "400000", "-mtu", "4096", "-hop_latency", "1", "-end", "100000"]
    own = {
        "ndp": ["-strat", "perm", "-paths", "64", "-q", "256", "-cwnd", "150"],
        "eqds": ["-strat", "ecmp_host", "-paths", "64", "-q", "256", "-cwnd", "150"],
        "roce": ["-strat", "ecmp_host", "-paths", "1", "-q", "256", "-pfc_thresholds", "50", "100"],
    }[program]
    with tempfile.TemporaryDirectory() as folder:
        matrix = os.path.join(folder, "work.cm")
        with open(matrix, "w", encoding="utf-8") as file:
            file.write(f"Nodes {hosts}\nConnections {len(item.flows)}\n")
            for at, (one, other) in enumerate(item.flows):
                file.write(f"{one}->{other} id {at + 1} start 0 size {item.size}\n")
        tool = os.path.abspath(os.path.join(source, "sim", "datacenter", f"htsim_{program}"))
        text, seconds = timed([tool, "-tm", matrix, "-o", os.path.join(folder, "log"), *common, *own], cwd=folder)
    ends = [float(at) for at in re.findall(r"finished at (?:time )?([0-9.]+)", text)]
    return (max(ends) if ends else float("nan")), len(ends), seconds


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def table_of_ours(args, chosen, transports):
    missed = []
    row("work", "transport", "bound, us", "took, us", "took / bound", "with a dark cable, us", "dark / whole", "sent again", "s")
    row("---", "---", *["---:"] * 7)
    for name, item in chosen.items():
        for transport in transports:
            bound, took, again, seconds = ours(args.lightloom, name, item, transport, False, args.keep)
            dark = ours(args.lightloom, name, item, transport, True, args.keep)[1]
            times = took / bound
            row(name, TRANSPORTS[transport][0], f"{bound:.1f}", f"{took:.1f}", f"{times:.3f}", f"{dark:.1f}", f"{dark / took:.3f}", again, f"{seconds:.2f}")
            is_permutation = item.flows and len({to for _, to in item.flows}) > 1
            promised = ADAPTIVE if transport == "adaptive" and is_permutation else item.promised
            if transport in SPREAD and promised and times > promised:
                missed.append(f"{name} {transport}: {times:.3f} times the bound, {promised} promised")
            if transport in SPREAD and item.again and again > item.again:
                missed.append(f"{name} {transport}: {again} sent again, {item.again} promised")
    return missed


def table_beside(args, chosen):
    print("\nAlternating with csg-htsim on the same flows:\n")
    row("work", "ours", "took, us", "processor, s", "csg-htsim", "took, us", "flows ended", "processor, s", "theirs / ours")
    row("---", "---", "---:", "---:", "---", "---:", "---:", "---:", "---:")
    for name, item in chosen.items():
        if not item.flows:
            continue
        for transport, program in (("credit", "ndp"), ("credit", "eqds"), ("nscc", "eqds"), ("dcqcn", "roce")):
            _, took, _, seconds = ours(args.lightloom, name, item, transport, False, None)
            end, ended, spent = theirs(args.htsim, program, item)
            row(name, TRANSPORTS[transport][0], f"{took:.1f}", f"{seconds:.2f}", program, f"{end:.1f}", f"{ended} of {len(item.flows)}", f"{spent:.2f}", f"{spent / seconds:.1f}")


def main():
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about.add_argument("--items", help="of " + ", ".join(items()))
    about.add_argument("--transports", help="of " + ", ".join(TRANSPORTS))
    about.add_argument("--htsim", default=os.environ.get("CSG_HTSIM"))
    about.add_argument("--lightloom", default="target/release/lightloom")
    about.add_argument("--seed", type=int)
    about.add_argument("--keep")
    args = about.parse_args()
    known = items()
    if args.seed is not None:
        known.update(drawn(args.seed))
    names = args.items.split(",") if args.items else list(known)
    transports = args.transports.split(",") if args.transports else list(TRANSPORTS)
    for name in names:
        if name not in known:
            about.error(f"unknown work item {name}: use one of {', '.join(known)}")
    for name in transports:
        if name not in TRANSPORTS:
            about.error(f"unknown transport {name}: use one of {', '.join(TRANSPORTS)}")
    chosen = {name: known[name] for name in names}
    missed = table_of_ours(args, chosen, transports)
    if args.htsim:
        table_beside(args, chosen)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
