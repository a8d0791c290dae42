#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Four ranks of PyTorch with gloo train over the phases of the real daemon: with static circuits, with phases, and with the daemon
killed in the middle. The losses are equal to the last bit. Skipped without PyTorch.

    torch_job.py PROGRAMS [--steps 12]

PROGRAMS is the folder of lightloom, lightloom-lab and lightloomd.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

RANKS = 4
EXCHANGE, REDUCTION = "experts", "weights"


def train(steps):
    """Trains a model whose input is exchanged between the ranks, and prints the loss of each step."""
    import torch
    import torch.distributed as dist

    backend = os.environ["BACKEND"]
    if backend == "lightloom":
        import lightloom.torch as phased
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        batch = torch.randn(16, 64, generator=torch.Generator().manual_seed(step * ranks + rank))
        received = torch.empty_like(batch)
        dist.all_to_all_single(received, batch)
        loss = (model(received) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            print(json.dumps({"step": step, "loss": total.item().hex()}), flush=True)
    if rank == 0 and backend == "lightloom":
        print(json.dumps({"answers": phased._announcer().answers}), flush=True)
    dist.destroy_process_group()


def run(folder, cluster, backend, steps, kill_at=None):
    """Returns the losses, the answers of the daemon and the duration in seconds."""
    from opus_job import PHASES, free_port

    port, began = str(free_port()), time.monotonic()
    phases = f"all_to_all={PHASES.index(EXCHANGE) + 2},all_reduce={PHASES.index(REDUCTION) + 2}"
    python = pathlib.Path(__file__).resolve().parents[3] / "python"
    settings = {"BACKEND": backend, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(RANKS), "PYTHONPATH": str(python),
                "LIGHTLOOM_BACKEND": "gloo", "LIGHTLOOM_JOB_LINES": "%s:%d" % cluster.lines, "LIGHTLOOM_PHASES": phases}
    with open(pathlib.Path(folder) / "ranks", "w", encoding="utf-8") as log:
        command = [sys.executable, __file__, "--rank", str(steps)]
        ranks = [subprocess.Popen(command, env={**os.environ, **settings, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=log, text=True)
                 for rank in range(RANKS)]
        losses, answers = [], {}
        for line in map(json.loads, ranks[0].stdout):
            losses += [line["loss"]] if "loss" in line else []
            answers = line.get("answers", answers)
            if kill_at is not None and line.get("step") == kill_at:
                cluster.kill_daemon()
        for rank in ranks:
            rank.stdout.close()
            assert rank.wait(timeout=120) == 0, (pathlib.Path(folder) / "ranks").read_text(encoding="utf-8")[-3000:]
    return losses, answers, round(time.monotonic() - began, 1)


class Observer(threading.Thread):
    """Reads a switch and notes the phases whose circuits it finds."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.over, self.changes = cluster, threading.Event(), []

    def run(self):
        while not self.over.wait(0.005):
            found = self.cluster.read(0)
            lit = [phase for phase in (EXCHANGE, REDUCTION) if found == self.cluster.expected(phase, 0)]
            if lit and self.changes[-1:] != lit:
                self.changes += lit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    if subprocess.run([sys.executable, "-c", "import torch.distributed"], capture_output=True, check=False).returncode != 0:
        print("skipped: no PyTorch")
        return
    from opus_job import Cluster

    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(options.programs, folder, 1)
        try:
            plain, _, plain_s = run(folder, cluster, "gloo", options.steps)
            observer = Observer(cluster)
            observer.start()
            phased, answers, phased_s = run(folder, cluster, "lightloom", options.steps)
            observer.over.set()
            observer.join()
            killed, after, killed_s = run(folder, cluster, "lightloom", options.steps, kill_at=options.steps // 2)
        finally:
            cluster.stop()
    print(json.dumps({"steps": options.steps, "losses_equal": plain == phased == killed, "loss": float.fromhex(plain[-1]), "answers": answers,
                      "answers_with_kill": after, "changes_seen": len(observer.changes), "plain_s": plain_s, "phased_s": phased_s, "killed_s": killed_s}))
    assert len(plain) == options.steps and plain == phased == killed, "the losses differ"
    assert set(answers) == {"lit"} and answers["lit"] == 2 * options.steps, answers
    assert len(observer.changes) >= options.steps, "the switch did not follow the phases"
    assert after["lit"] >= options.steps - 2 and after["away"] > 0, after


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        train(int(sys.argv[2]))
    else:
        main()
