#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real daemon over switches that share no code with it: more than 1,024 circuits while the daemon is killed.

    foreign_switches.py PROGRAMS [--kills 500] [--ports 288]

PROGRAMS is the folder of lightloom and lightloomd. Each switch has a quarter of the circuits, which are read without the daemon:

    scpi, tl1   the switch program that LIGHTLOOM_FOREIGN_SWITCH names [default: ../shared/cases/public-files/switch.py]
    sonic       the tables of SONiC's design 0.5 on a real redis-server, with the agent in this file
    gnmi        the OCP model on grpcio (gnmi_target.py); skipped without pygnmi

A switch that cannot be started is named, and the others divide its ports. A circuit is stale if the daemon reports a lit phase and no
transaction, but the switch has other circuits.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import opus_job

ROOT = pathlib.Path(__file__).resolve().parents[3]
LEAVES, PHASES = 32, ["a", "b", "c"]


class Program:
    """A switch of LIGHTLOOM_FOREIGN_SWITCH, with its number of ports changed."""

    def __init__(self, kind, ports, folder):
        self.kind, self.ports = kind, ports
        path = pathlib.Path(os.environ.get("LIGHTLOOM_FOREIGN_SWITCH", ROOT / "../shared/cases/public-files/switch.py"))
        if not path.exists():
            raise FileNotFoundError(f"no switch program: {path}")
        changed = folder / f"{kind}.py"
        changed.write_text(path.read_text(encoding="utf-8").replace("\nN=8;", f"\nN={ports};"), encoding="utf-8")
        self.port = opus_job.free_port()
        self.process = subprocess.Popen([sys.executable, changed, kind, str(self.port), "plain", os.devnull])

    def driver(self, password):
        if self.kind == "scpi":
            return f"scpi: {{tcp: '127.0.0.1:{self.port}'}}"
        return f"tl1: {{tcp: '127.0.0.1:{self.port}', user: op, password_file: {password}}}"

    def pairs(self):
        asked, end = {"scpi": (b":oxc:swit:conn:stat?\n", b"\n"), "tl1": (b"ACT-USER::op:1::x;RTRV-PATCH:::2:;", b";")}[self.kind]
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as line:
            line.sendall(asked)
            text = b""
            while not (text.endswith(end) and (self.kind == "scpi" or b"M  2 COMPLD" in text)):
                text += line.recv(65_536)
        text = text.decode()
        if self.kind == "scpi":
            sides = [side.strip("(@)\n ") for side in text.split("),(")]
            numbers = zip(*(side.split(",") if side else [] for side in sides))
        else:
            numbers = (part.strip().strip('"').split(",") for part in text[text.index("M  2"):].splitlines()[1:] if '"' in part)
        return sorted((int(a) - 1, int(b) - 1 - self.ports) for a, b in numbers)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Redis:
    """The database of a SONiC optical switch, and an agent that applies CONFIG_DB (4) to STATE_DB (6) with a delay."""

    def __init__(self, ports, folder):
        if not shutil.which("redis-server"):
            raise FileNotFoundError("no redis-server")
        self.port, self.over = opus_job.free_port(), threading.Event()
        command = ["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", folder, "--logfile", "redis.log"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while True:
            try:
                self.line = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                time.sleep(0.05)
        self.lock = threading.Lock()
        self.say("SELECT 4", "HSET DEVICE_METADATA|localhost switch_type ocs")
        self.say(*(f"HSET OCS_PORT|{number}{side} state normal" for number in range(1, ports + 1) for side in "AB"))
        self.agent = threading.Thread(target=self.apply, daemon=True)
        self.agent.start()

    def say(self, *commands):
        """Returns the words of all replies, which a PING ends."""
        with self.lock:
            self.line.sendall("".join(f"{command}\r\n" for command in (*commands, "PING")).encode())
            text = b""
            while not text.endswith(b"+PONG\r\n"):
                text += self.line.recv(65_536)
        return [word for word in text.decode().split("\r\n") if word and word[0] not in "$*+:"]

    def circuits(self, database):
        keys = self.say(f"SELECT {database}", "KEYS OCS_CROSS_CONNECT|*")
        return {key.split("|")[1] for key in keys}

    def apply(self):
        while not self.over.wait(0.02):
            asked, lit = self.circuits(4), self.circuits(6)
            done = [f"DEL OCS_CROSS_CONNECT|{name}" for name in lit - asked]
            done += [f"HSET OCS_CROSS_CONNECT|{name} a_side_status tuned b_side_status tuned" for name in asked - lit]
            if done:
                self.say("SELECT 6", *done)

    def driver(self, _):
        return f"sonic: {{tcp: '127.0.0.1:{self.port}'}}"

    def pairs(self):
        ends = (name.split("-") for name in self.circuits(6))
        return sorted((int(a[:-1]) - 1, int(b[:-1]) - 1) for a, b in ends)

    def stop(self):
        self.over.set()
        self.agent.join()
        self.process.kill()
        self.process.wait()


class Grpc:
    def __init__(self, ports, _):
        from gnmi_target import Switch

        self.switch = Switch(ports)
        self.pairs, self.stop = self.switch.pairs, self.switch.stop

    def driver(self, _):
        return f"gnmi: {{tcp: '127.0.0.1:{self.switch.port}', plaintext: true}}"


KINDS = {"scpi": lambda *of: Program("scpi", *of), "tl1": lambda *of: Program("tl1", *of), "sonic": Redis, "gnmi": Grpc}
ABSENT = {
    "SONIC_OCS_IMAGE": "SONiC's image with its orchagent and libsai-ocs",
    "RECONFIGNET_AGENT": "the gNMI agent of ReconfigNet-Sim",
}


class Fabric(opus_job.Cluster):
    """The daemon over foreign switches; `opus_job` runs it over emulated ones."""

    def start(self, options):
        self.switches = {}
        for kind, start in KINDS.items():
            try:
                self.switches[kind] = start(options.ports, self.folder)
            except (FileNotFoundError, ImportError) as error:
                print(f"skipped: {kind}: {error}", flush=True)
        for variable, what in ABSENT.items():
            if not os.environ.get(variable):
                print(f"skipped: {what}: {variable} is not set", flush=True)
        self.collector = opus_job.http.server.ThreadingHTTPServer(("127.0.0.1", 0), opus_job.Traces)
        threading.Thread(target=self.collector.serve_forever, daemon=True).start()
        self.write_files(options.ports // LEAVES)
        self.run("plan", self.folder / "fabric.yaml", "-o", self.folder / "PLAN")
        plan = json.loads((self.folder / "PLAN").read_text(encoding="utf-8"))
        self.phases = {phase["name"]: phase["circuits"] for phase in plan["phases"]}
        self.start_daemon()
        self.ctl("apply", self.folder / "PLAN", "--phase", PHASES[0], "--cut-light")

    def write_files(self, of_leaf):
        draws, phases = random.Random(3), ""
        for shift, name in enumerate(PHASES, 1):
            near = {(a, (a + way * shift) % LEAVES) for a in range(LEAVES) for way in (1, -1)}
            rows = [["0" if a == b else f"{(60 if (a, b) in near else 0) + draws.randrange(1, 4)}e9" for b in range(LEAVES)] for a in range(LEAVES)]
            (self.folder / f"{name}.csv").write_text("".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
            phases += f"        - {{name: {name}, slack: 100ms, demand: {{csv: {name}.csv}}}}\n"
        (self.folder / "fabric.yaml").write_text(f"""kind: fabric
version: 2
name: foreign
hbd: {{switch: {{nodes: {4 * LEAVES}, gpus_per_node: 8, gpus: 8, edge_rate: 3.6Tbps}}}}
dcn:
  reconfigurable_fat_tree:
    leaves: {LEAVES}
    gpus_per_leaf: 32
    circuit_rate: 400Gbps
    electrical: {{rate_per_leaf: 12.8Tbps, oversubscription: 8}}
    banks:
      - {{name: core, switches: {len(self.switches)}, ports_per_switch: {LEAVES * of_leaf}, ports_per_leaf: {of_leaf}, insertion_loss_db: 2.0}}
    timing: {{control: 5ms, switching: 10ms}}
    failure_domains: 1
jobs:
  - name: job
    step:
      phases:
{phases}""", encoding="utf-8")
        password = self.folder / "password"
        password.write_text("secret", encoding="utf-8")
        password.chmod(0o600)
        devices = "".join(
            f"  - {{name: ocs{number}, driver: {{{switch.driver(password)}}}, limits: {{reconcile_within: 8s, late_within: 300ms}}}}\n"
            for number, switch in enumerate(self.switches.values()))
        (self.folder / "daemon.yaml").write_text(
            f"state_dir: state\nfabric: fabric.yaml\npolicies: {{poll_every: 500ms}}\ndevices:\n{devices}", encoding="utf-8")

    def wrong(self, phase):
        return [kind for number, (kind, switch) in enumerate(self.switches.items()) if switch.pairs() != self.expected(phase, number)]

    def request(self, phase, number):
        """Requests a phase, without waiting for its end."""
        connection = http.client.HTTPConnection("lightloomd")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(20)
        connection.sock.connect(str(self.socket))
        body = {"request_id": f"foreign-{number}", "job": "job", "phase": phase, "for_ms": 600_000, "lease_ms": 600_000}
        connection.request("POST", "/v1/phase", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse().read()
        connection.close()
        return json.loads(answer)

    def settle(self, phase):
        """Waits for the end of the interrupted change. Returns the lit phase, and how often an operator had to repair mixed circuits."""
        until, repairs = time.monotonic() + 120, 0
        while True:
            self.ctl("wait", "--for", "60s", fails=True)
            status, lit = self.get("/v1/status"), self.get("/v1/phases")["lit"]
            if status.get("transaction") is None and not status["attention"] and lit:
                return lit, repairs
            if status.get("transaction") is None:
                repairs += 1
                self.ctl("apply", "--again", "--phase", phase, "--mode", "update", "--cut-light", fails=True)
            assert time.monotonic() < until, "the circuits cannot be repaired"
            time.sleep(0.05)

    def stop(self):
        super().stop()
        for switch in self.switches.values():
            switch.stop()


def conform(programs, kind, folder):
    """Runs the conformance suite on a switch of 8 by 8 ports, which it restarts. Returns what it observed."""
    switch = Program(kind, 8, folder)
    pid, restart, password = folder / "pid", folder / "restart", folder / "password"
    pid.write_text(str(switch.process.pid), encoding="utf-8")
    command = f"{sys.executable} {folder}/{kind}.py {kind} {switch.port} plain {os.devnull}"
    restart.write_text(f"kill -9 $(cat {pid})\n{command} > {os.devnull} 2>&1 &\necho $! > {pid}\n", encoding="utf-8")
    password.write_text("secret", encoding="utf-8")
    password.chmod(0o600)
    login = ["--user", "op", "--password-file", password] if kind == "tl1" else []
    arguments = ["--may-move", "2,3,10,11", "--restart", f"sh {restart}", "--format", "json", *login]
    try:
        time.sleep(0.5)
        done = subprocess.run(
            [pathlib.Path(programs) / "lightloom", "conform", f"{kind}://127.0.0.1:{switch.port}", *arguments], capture_output=True, text=True, check=False)
        report = json.loads(done.stdout)
    finally:
        switch.stop()
        os.kill(int(pid.read_text(encoding="utf-8")), signal.SIGKILL)
    cases = {line["id"].split("/")[1]: line for line in report["cases"]}
    for case in ("sessions", "warm-restart", "cold-restart", "put-back"):
        assert cases[case]["verdict"] == "passed", cases[case]
    return report["observations"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--ports", type=int, default=288)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draws, began = random.Random(options.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        fabric = Fabric(options.programs, folder, options)
        try:
            lit, stale, ended, repairs = PHASES[0], [], collections.Counter(), 0
            circuits = sum(len(switch.pairs()) for switch in fabric.switches.values())
            stale += [("start", kind) for kind in fabric.wrong(lit)]
            for number in range(options.kills):
                wanted = draws.choice([name for name in PHASES if name != lit])
                answer = fabric.request(wanted, number)
                assert answer["answer"] == "booked", answer
                time.sleep(draws.random() * 0.4)
                fabric.kill_daemon()
                fabric.start_daemon()
                before = lit
                lit, more = fabric.settle(before)
                repairs += more
                ended["forward" if lit == wanted else "back" if lit == before else "elsewhere"] += 1
                if wrong := fabric.wrong(lit):
                    stale += [(number, kind) for kind in wrong]
                    print(f"kill {number}: {lit} is reported, {wanted} was requested: {json.dumps(fabric.get('/v1/status'))[:1500]}", file=sys.stderr)
        finally:
            fabric.stop()
        observed = {kind: conform(options.programs, kind, fabric.folder) for kind in ("scpi", "tl1") if kind in fabric.switches}
    result = {
        "switches": list(fabric.switches), "circuits": circuits, "kills": options.kills, "ended": dict(ended), "repaired_by_operator": repairs,
        "stale": stale, "conform": observed, "minutes": round((time.monotonic() - began) / 60, 1),
    }
    print(json.dumps(result))
    assert not stale, "stale circuits"


if __name__ == "__main__":
    main()
