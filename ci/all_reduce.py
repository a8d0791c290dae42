#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elastic all-reduce loop over the circuits of a live twin, with torch.distributed (gloo) or Open MPI.

    lightloom twin exec --all --name gloo --dir DIR -- ci/all_reduce.py gloo --steps 200
    lightloom twin exec --all --name mpi --dir DIR -- ci/all_reduce.py mpi --steps 200

Steps are printed as lines of JSON, which `lightloom twin report --name gloo` reads. When a node fails,
gloo's processes regroup according to the next rank file; for MPI, the group's first node reruns `mpirun`.
"""

import argparse
import array
import ctypes
import datetime
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

FOLDER, NODE = pathlib.Path(os.environ["LIGHTLOOM_TWIN"]), os.environ["LIGHTLOOM_NODE"]
START = time.time()
WITHIN = datetime.timedelta(seconds=60)
NONE_YET = 1 << 40


class Lost(Exception):
    """A neighbour has failed; the next rank file lists the remaining ranks."""


def ranks(kept=[None, None]):
    """Reads the rank file again when it was replaced."""
    file = FOLDER / "ranks.json"
    if (inode := file.stat().st_ino) != kept[0]:
        kept[:] = [inode, json.loads(file.read_text())]
    return kept[1]


def places():
    """Yields this node's group and rank for each generation of the rank file, until all groups are done."""
    before, until = 0, time.monotonic() + WITHIN.total_seconds()
    while True:
        now = ranks()
        working = [group for group in now["groups"] if group["job"]]
        if all(is_done(group["id"]) for group in working):
            return
        if now["generation"] > before:
            for group in working:
                nodes = [member["node"] for member in group["members"]]
                if NODE in nodes:
                    before = now["generation"]
                    yield before, group["id"], nodes, nodes.index(NODE)
                    until = time.monotonic() + WITHIN.total_seconds()
        if before and time.monotonic() > until:
            sys.exit(f"no rank file newer than generation {before} within {WITHIN}")
        time.sleep(0.002)


def is_of_this_run(file):
    return file.exists() and file.stat().st_mtime >= START


def is_done(group):
    return is_of_this_run(FOLDER / "done" / group)


def show(step, group, generation, members, took, file=sys.stdout):
    line = {"node": NODE, "group": group, "generation": generation, "step": step, "members": members}
    line |= {"unix_us": int(time.time() * 1e6), "step_us": int(took * 1e6)}
    print(json.dumps(line), file=file, flush=True)


def check(found, step, members):
    """Member m contributes m + 1 + step modulo 100."""
    expected = sum(m + 1 + step % 100 for m in range(members))
    if found != expected:
        sys.exit(f"step {step}: the sum is {found}, expected {expected}")


def wait_for(host, port, is_over):
    """Waits until a program listens, because the library itself retries only after a second."""
    while not is_over():
        try:
            return socket.create_connection((host, port), timeout=1).close()
        except OSError:
            time.sleep(0.005)
    raise Lost


def gloo(options):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    kept, todo = [], NONE_YET
    for generation, group, nodes, rank in places():

        def reduced(data, operation):
            """Sums until the rank file changes. The library alone would wait for a failed peer until its timeout."""
            work = kept[-1][1].allreduce([data], options_of(operation))
            while not work.is_completed():
                if is_over():
                    raise Lost
                time.sleep(0.002)
            work.wait()
            return data

        def options_of(operation):
            of = dist.AllreduceOptions()
            of.reduceOp = operation
            return of

        def is_over():
            return ranks()["generation"] > generation

        try:
            host, port = f"{nodes[0]}-light", 29500 + generation
            if rank != 0:
                wait_for(host, port, is_over)
            # An operation that waits for a failed peer cannot be closed, so keep it until the program ends.
            store = dist.TCPStore(host, port, len(nodes), rank == 0, WITHIN)
            kept.append((store, dist.ProcessGroupGloo(store, rank, len(nodes), WITHIN)))
            step = int(reduced(torch.tensor([todo]), dist.ReduceOp.MIN)[0])
            for step in range(0 if step == NONE_YET else step, options.steps):
                began = time.monotonic()
                data = torch.full((options.size // 4,), float(rank + 1 + step % 100))
                check(float(reduced(data, dist.ReduceOp.SUM)[-1]), step, len(nodes))
                todo = step + 1
                show(step, group, generation, len(nodes), time.monotonic() - began)
                time.sleep(options.pause)
            (FOLDER / "done" / group).touch()
            break
        except (Lost, RuntimeError) as error:
            print(f"generation {generation}: {error!r}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(0)


def mpi(options):
    """The first node of a group runs mpirun, and reruns it from the next step after each change, possibly on another node."""
    for generation, group, nodes, rank in places():
        if rank != 0:
            continue
        next_step = FOLDER / "done" / f"{group}.step"
        todo = int(next_step.read_text()) if is_of_this_run(next_step) else 0
        command = ["mpirun", "--hostfile", str(FOLDER / "hostfiles" / group), "-np", str(len(nodes)), sys.executable, __file__, "rank"]
        command += ["--steps", str(options.steps), "--size", str(options.size), "--pause", str(options.pause)]
        with subprocess.Popen([*command, "--first", str(todo)], stdout=subprocess.PIPE, text=True) as run:
            for line in run.stdout:
                step, took = line.split()
                todo = int(step) + 1
                next_step.write_text(str(todo))
                show(int(step), group, generation, len(nodes), float(took))
        if run.returncode == 0 and todo == options.steps:
            (FOLDER / "done" / group).touch()
            return


def rank(options):
    """One rank, through Open MPI's C interface, where handles are addresses of objects."""
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    world, real, add = (ctypes.byref(ctypes.c_char.in_dll(mpi, f"ompi_mpi_{name}")) for name in ("comm_world", "float", "op_sum"))
    mpi.MPI_Init(None, None)
    own, members = ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_rank(world, ctypes.byref(own))
    mpi.MPI_Comm_size(world, ctypes.byref(members))
    count = options.size // 4
    found = array.array("f", bytes(4 * count))
    for step in range(options.first, options.steps):
        began = time.monotonic()
        data = array.array("f", [own.value + 1 + step % 100]) * count
        into, out_of = (ctypes.c_void_p(of.buffer_info()[0]) for of in (found, data))
        mpi.MPI_Allreduce(out_of, into, count, real, add, world)
        check(found[-1], step, members.value)
        if own.value == 0:
            print(step, time.monotonic() - began, flush=True)
        time.sleep(options.pause)
    mpi.MPI_Finalize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["gloo", "mpi", "rank"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", type=int, default=1 << 20, help="bytes to sum per step")
    parser.add_argument("--pause", type=float, default=0.001, help="seconds between two steps")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    {"gloo": gloo, "mpi": mpi, "rank": rank}[options.library](options)


if __name__ == "__main__":
    main()
