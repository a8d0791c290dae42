#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts gloo training steps at half the link rate from profiles at the full rate, within 10 % for five models.

    ci/gloo_rates.py [MODEL…]     (root; skipped without a PyTorch that writes Kineto profiles)

Two ranks train in separate network namespaces over a cable that alternates between 400 and 200 Mb/s, so that other load affects both
rates. Each profile at 400 Mb/s is emulated at 200 Mb/s, and the median is compared with that of the steps recorded at 200 Mb/s.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "target/debug"
RATES_MBPS, RANKS, CYCLES, MOST_ERROR = (400, 200), 2, 18, 0.10
SCENARIO = """kind: scenario
version: 2
name: gloo
on: {{graph: {{hosts: [a, b], switches: [s], cables: [{{ends: [a, s]}}, {{ends: [b, s]}}]}}}}
links: {{rate: {rate}Mbps, delay: 20us}}
transport: {{timeout: 1s}}
traffic: [{{name: step, run: {{recorded: [{files}]}}, hosts: [a, b]}}]
"""


def shaped(verb, rate):
    return ["tc", "qdisc", verb, "dev", "eth0", "root", "tbf", "rate", f"{rate}mbit", "burst", "32kb", "latency", "200ms"]


def models():
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.LSTM(256, 384, num_layers=2, batch_first=True), nn.Linear(384, 256)

        def forward(self, x):
            return self.out(self.cells(x)[0])

    def perceptron(width, layers):
        return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())])

    def convolutions():
        blocks = [part for _ in range(4) for part in (nn.Conv2d(128, 128, 3, padding=1), nn.ReLU())]
        return nn.Sequential(nn.Conv2d(3, 128, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 256))

    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return {
        "wide": (perceptron(1024, 3), (512, 1024)),
        "deep": (perceptron(512, 12), (512, 512)),
        "convolutions": (convolutions(), (8, 3, 24, 24)),
        "transformer": (nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), (4, 96, 256)),
        "recurrent": (Recurrent(), (16, 32, 256)),
    }


def worker(rank, name, folder):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model, shape = models()[name]
    model, data = DistributedDataParallel(model, bucket_cap_mb=2), torch.randn(shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    cycle = iter(range(CYCLES))
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=1, warmup=1, active=1, repeat=CYCLES),
        on_trace_ready=lambda one: one.export_chrome_trace(f"{folder}/{next(cycle)}.{rank}.json"),
    ) as profiler:
        for step in range(3 * CYCLES):
            if step % 3 == 0:
                subprocess.run(shaped("change", RATES_MBPS[step // 3 % 2]), check=True)
            model(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.destroy_process_group()


def lightloom(*arguments):
    program = "lightloom-lab" if arguments[0] == "workload" else "lightloom"
    said = subprocess.run([PROGRAMS / program, *arguments, "--format", "json"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        sys.exit(said.stderr)
    return json.loads(said.stdout)


def recorded(name, folder):
    """Trains, and returns the step seconds and the files of each cycle."""
    names = [f"gloo{os.getpid()}-{rank}" for rank in range(RANKS)]
    try:
        for space in names:
            subprocess.run(["ip", "netns", "add", space], check=True)
        ends = ["eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1]]
        subprocess.run(["ip", "link", "add", *ends], check=True)
        for rank, space in enumerate(names):
            inside = ["ip", "netns", "exec", space]
            for command in (
                ["ip", "link", "set", "lo", "up"],
                ["ip", "address", "add", f"10.77.0.{rank + 1}/24", "dev", "eth0"],
                ["ip", "link", "set", "eth0", "up"],
                shaped("add", RATES_MBPS[0]),
            ):
                subprocess.run([*inside, *command], check=True)
        where = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}
        ranks = [
            subprocess.Popen(["ip", "netns", "exec", space, sys.executable, __file__, "--rank", str(rank), name, folder],
                             env=os.environ | where, stderr=subprocess.DEVNULL)
            for rank, space in enumerate(names)
        ]
        if any(rank.wait(timeout=300) for rank in ranks):
            sys.exit(f"{name}: a rank failed")
    finally:
        for space in names:
            subprocess.run(["ip", "netns", "delete", space], check=False)
    files = [[str(folder / f"{cycle}.{rank}.json") for rank in range(RANKS)] for cycle in range(CYCLES)]
    return [(lightloom("workload", "replay", *of, "--tp", "1")["recorded_seconds"], of) for of in files]


def emulated(rate, files, folder):
    scenario = folder / "scenario.yaml"
    scenario.write_text(SCENARIO.format(rate=rate, files=", ".join(files)), encoding="utf-8")
    step = lightloom("emulate", str(scenario))["workloads"][0]
    return (step["end_ps"] - step["start_ps"]) / 1e12


def main(asked):
    warnings.simplefilter("ignore")
    try:
        import torch
    except ImportError:
        return print("skipped: no torch")
    if os.geteuid() != 0 or not torch.distributed.is_available() or not torch.autograd.kineto_available():
        return print("skipped: needs root, torch.distributed and Kineto")
    worst = 0.0
    for name in asked or models():
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            steps = recorded(name, folder)
            whole, half = steps[::2], steps[1::2]
            again, predicted = (statistics.median(emulated(rate, of, folder) for _, of in whole) for rate in RATES_MBPS)
        seconds, measured = (statistics.median(one for one, _ in steps) for steps in (whole, half))
        error = predicted / measured - 1
        worst = max(worst, abs(error))
        rates = f"{RATES_MBPS[0]} Mb/s {seconds:.4f} s (emulated {again:.4f}), {RATES_MBPS[1]} Mb/s {measured:.4f} s"
        print(f"{name:<13} {rates}, predicted {predicted:.4f}, {error:+.1%}", flush=True)
    if worst > MOST_ERROR:
        sys.exit(f"the largest error is {worst:.1%}, above the limit of {MOST_ERROR:.0%}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        worker(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        main(sys.argv[1:])
