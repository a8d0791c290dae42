#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that requests phases in the line protocol of Opus's process groups, over the real daemon and emulated devices.

    opus_job.py PROGRAMS [--changes 1000] [--kills 100] [--faults 0.25] [--ranks 4] [--overhead-ms 10]

PROGRAMS is the folder of lightloom, lightloom-lab and lightloomd. The client is written from a description of the protocol
and shares no code with the daemon or the Python package. Each rank is a process. Circuits are read over the protocol that the
daemon does not use, and compared with the plan. The time of the devices is the union of the operations in the daemon's traces.
"""

import argparse
import bisect
import collections
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SWITCHES, PORTS, LEAVES, NODES = 16, 16, 8, 8
PHASES = ["forward", "experts", "backward", "weights"]
SWITCH_FAULTS = ["late 30ms", "defer 200ms", "lie", "stuck", "half-open", "slow 20", "reboot", "reboot-in-commit"]
MODULE_FAULTS = ["lose 1%", "late 5ms", "half-open"]
ANSWER_WITHIN = 9.0
SHIM_SLICE, SHIM_JOIN, SHIM_WAIT = 0.2, 1.0, 10.0


# A rank, as the shim behaves.


def rank(address, host):
    """Executes `join G n r` and `ask G b c` from standard input, and prints one JSON answer for each."""
    controller = socket.create_connection(address, timeout=5, source_address=(host, 0))
    controller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    controller.settimeout(SHIM_SLICE)
    received = bytearray()

    def lines(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                more = controller.recv(512)
            except TimeoutError:
                continue
            if not more:
                raise ConnectionError
            received.extend(more)
            while b"\n" in received:
                line, _, rest = bytes(received).partition(b"\n")
                received[:] = rest
                yield line.decode().partition(";")[::2]

    def join(group, size, number):
        controller.sendall(f"COMM;{group},{size},{number}\n".encode())
        for header, body in lines(SHIM_JOIN):
            if header == "CHECKIN_ACK":
                found, domain = body.split(",")
                return {"domain": int(domain) if found == group else 0}
        return {"domain": None}

    def ask(group, backend, count):
        asked, code = time.time_ns(), "lit"
        controller.sendall(f"CONFIG_REQ;{group},{backend},{count}\n".encode())
        for header, body in lines(SHIM_WAIT):
            if header == "CONFIG_NACK" and body.startswith(f"{group},{backend},{count},"):
                code = body.rsplit(",", 1)[1]
            if header == "CONFIG_ACK" and body == group:
                return {"code": code, "asked": asked, "answered": time.time_ns()}
        return {"code": "silence"}

    for command in sys.stdin:
        verb, *arguments = command.split()
        try:
            answer = {"join": join, "ask": ask}[verb](*arguments)
        except OSError:
            answer = {"code": "closed", "domain": None}
        print(json.dumps(answer), flush=True)


class Rank:
    def __init__(self, address, host):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--rank", f"{address[0]}:{address[1]}", host], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1)

    def send(self, *words):
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
        except BrokenPipeError:
            pass

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"code": "killed", "domain": None}

    def kill(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass


class Job:
    """The ranks of one group."""

    def __init__(self, cluster, hosts, size):
        self.cluster, self.hosts, self.size = cluster, hosts, size
        self.start()

    def start(self):
        self.group, self.count = os.urandom(32).hex().upper(), 0
        self.ranks = [Rank(self.cluster.lines, self.hosts[number % len(self.hosts)]) for number in range(self.size)]
        for number, one in enumerate(self.ranks):
            one.send("join", self.group, self.size, number)
        # A rank gets no answer if the others join more than a second later.
        domains = {one.answer()["domain"] for one in self.ranks} - {None}
        assert domains <= {int(len({*self.hosts[:self.size]}) == 1)}, domains

    def replace(self, number):
        self.ranks[number].kill()
        self.ranks[number] = Rank(self.cluster.lines, self.hosts[number % len(self.hosts)])
        self.ranks[number].send("join", self.group, self.size, number)
        assert self.ranks[number].answer()["domain"] in (0, None)

    def ask(self, phase, silent=()):
        self.count += 1
        for number, one in enumerate(self.ranks):
            if number not in silent:
                one.send("ask", self.group, PHASES.index(phase) + 2, self.count)

    def answers(self, silent=()):
        return [one.answer() for number, one in enumerate(self.ranks) if number not in silent]

    def codes(self, phase):
        self.ask(phase)
        return [answer["code"] for answer in self.answers()]

    def kill(self):
        for one in self.ranks:
            one.kill()


# Devices and daemon.


class Traces(http.server.BaseHTTPRequestHandler):
    spans = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                self.spans.extend(scope["spans"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    def __init__(self, programs, folder, seed):
        self.programs, self.folder = pathlib.Path(programs).resolve(), pathlib.Path(folder)
        self.daemon = self.devices = None
        self.socket, self.log = self.folder / "state/lightloomd.sock", open(self.folder / "log", "w", encoding="utf-8")
        self.lines = ("127.0.0.1", free_port())
        try:
            self.start(seed)
        except BaseException:
            self.stop()
            raise

    def start(self, seed):
        self.collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Traces)
        threading.Thread(target=self.collector.serve_forever, daemon=True).start()
        self.write_fabric(random.Random(3))
        self.run("plan", self.folder / "fabric.yaml", "-o", self.folder / "PLAN")
        plan = json.loads((self.folder / "PLAN").read_text(encoding="utf-8"))
        self.phases = {phase["name"]: phase["circuits"] for phase in plan["phases"]}
        self.start_devices(seed)
        self.write_config()
        self.start_daemon()
        self.ctl("apply", self.folder / "PLAN", "--phase", PHASES[0], "--cut-light")

    def write_fabric(self, draws):
        for shift, name in enumerate(PHASES, 1):
            # Each phase has other neighbours, so that the plan gives it circuits of its own.
            near = [(a, (a + way * shift) % LEAVES) for a in range(LEAVES) for way in (1, -1)]
            sends = lambda a, b: 0 if a == b else (60 if (a, b) in near else 0) + draws.randrange(1, 4)
            rows = [[f"{sends(a, b)}e9" for b in range(LEAVES)] for a in range(LEAVES)]
            (self.folder / f"{name}.csv").write_text("".join(", ".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
        phases = "".join(f"        - {{name: {name}, slack: 100ms, demand: {{csv: {name}.csv}}}}\n" for name in PHASES)
        (self.folder / "fabric.yaml").write_text(f"""kind: fabric
version: 2
name: sixteen
hbd:
  khop: {{nodes: {NODES}, gpus_per_node: 32, k: 2}}
dcn:
  reconfigurable_fat_tree:
    leaves: {LEAVES}
    gpus_per_leaf: 32
    circuit_rate: 400Gbps
    electrical: {{rate_per_leaf: 12.8Tbps, oversubscription: 16}}
    banks:
      - {{name: core, switches: {SWITCHES}, ports_per_switch: {PORTS}, ports_per_leaf: 2, insertion_loss_db: 1.5}}
    timing: {{control: 5ms, switching: 10ms}}
    failure_domains: 4
jobs:
  - name: sixteen
    step:
      phases:
{phases}""", encoding="utf-8")

    def start_devices(self, seed):
        switches = "".join(
            f"  - {{name: ocs{ocs}, ingress: {PORTS}, egress: {PORTS}, scpi: '127.0.0.1:0', tl1: '127.0.0.1:0', switching: 10ms, boot: 300ms}}\n"
            for ocs in range(SWITCHES))
        modules = f"transceivers:\n  - names: n{{0..{NODES - 1}}}/b{{0..1}}\n"
        text = f"seed: {seed}\nfabric: fabric.yaml\n{modules}switches:\n{switches}"
        (self.folder / "devices.yaml").write_text(text, encoding="utf-8")
        arguments = ["device", "serve", "devices.yaml", "--links", "links", "--control", "control", "--format", "json"]
        self.devices = subprocess.Popen([self.programs / "lightloom", *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=self.log, text=True)
        text = ""
        while True:
            line = self.devices.stdout.readline()
            assert line, "the devices did not start"
            text += line
            try:
                served = json.loads(text)["devices"]
                break
            except json.JSONDecodeError:
                continue
        self.at = {(one["name"], one["speaks"]): one["at"].rsplit(":", 1) for one in served if ":" in one["at"]}

    def write_config(self):
        password = self.folder / "password"
        password.write_text("root", encoding="utf-8")
        password.chmod(0o600)
        limits = "limits: {reply_within: 2s, reconcile_within: 4s, settle_within: 1s, late_within: 300ms}"
        devices = ""
        for ocs in range(SWITCHES):
            driver = f"scpi: {{tcp: '{':'.join(self.at[f'ocs{ocs}', 'scpi'])}'}}"
            if ocs % 2:
                driver = f"tl1: {{tcp: '{':'.join(self.at[f'ocs{ocs}', 'tl1'])}', user: root, password_file: {password}, allow_default_password: true}}"
            devices += f"  - {{name: ocs{ocs}, driver: {{{driver}}}, {limits}}}\n"
        phases = ", ".join(f"{{backend: {number}, phase: {name}, for: 10min}}" for number, name in enumerate(PHASES, 2))
        (self.folder / "daemon.yaml").write_text(f"""state_dir: state
fabric: fabric.yaml
policies: {{poll_every: 500ms}}
traces: {{endpoint: 'http://127.0.0.1:{self.collector.server_port}'}}
job_lines:
  listen: {self.lines[0]}:{self.lines[1]}
  jobs:
    - {{name: train, hosts: [127.0.0.1, 127.0.0.2], phases: [{phases}]}}
    - {{name: infer, hosts: [127.0.0.3], phases: [{phases}]}}
modules:
  - {{nodes: [0, {NODES - 1}], bundles: 2, serial: '{self.folder}/links/n{{node}}-b{{bundle}}'}}
devices:
{devices}""", encoding="utf-8")

    def start_daemon(self):
        self.daemon = subprocess.Popen([self.programs / "lightloomd", "--config", "daemon.yaml"], cwd=self.folder, stderr=self.log)
        until = time.monotonic() + 60
        while not self.ctl("wait", "--for", "1s", fails=True):
            assert self.daemon.poll() is None and time.monotonic() < until, "the daemon did not start"

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait()

    def run(self, *arguments, fails=False):
        done = subprocess.run([self.programs / "lightloom", *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, check=False)
        assert fails or done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.returncode == 0

    def ctl(self, *arguments, fails=False):
        return self.run("ctl", *arguments, "--socket", self.socket, fails=fails)

    def get(self, path):
        connection = http.client.HTTPConnection("lightloomd")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(20)
        connection.sock.connect(str(self.socket))
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def disturb(self, device, fault):
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(20)
            control.connect(str(self.folder / "control"))
            control.sendall(f"{device} {fault}\n".encode())
            assert control.recv(4096).strip() == b"ok", (device, fault)

    def read(self, ocs):
        """Reads the connections of a switch over the protocol that the daemon does not use there."""
        speaks = "scpi" if ocs % 2 else "tl1"
        host, port = self.at[f"ocs{ocs}", speaks]
        asked, end = {"scpi": (b":OXC:SWIT:CONN:STAT?\n", b"\n"), "tl1": (b"ACT-USER::root:1::root;\nRTRV-PATCH:::2:;\n", b";")}[speaks]
        while True:
            try:
                with socket.create_connection((host, int(port)), timeout=1) as switch:
                    switch.sendall(asked)
                    text = b""
                    while True:
                        start = text.find(b"M  2 COMPLD") if speaks == "tl1" else text.find(b"(@")
                        if start >= 0 and end in text[start:]:
                            break
                        more = switch.recv(4096)
                        if not more:
                            raise ConnectionError
                        text += more
                    text = text[start:].decode()
                    if speaks == "tl1":
                        pairs = re.findall(r'"(\d+),(\d+)"', text)
                    else:
                        sides = re.findall(r"\(@([\d,]*)\)", text)
                        pairs = zip(*(side.split(",") if side else [] for side in sides))
                    return sorted((int(a) - 1, int(b) - 1 - PORTS) for a, b in pairs)
            except OSError:
                time.sleep(0.05)

    def expected(self, phase, ocs):
        ways = [(circuit["a_port"], circuit["b_port"]) for circuit in self.phases[phase] if circuit["ocs"] == f"ocs{ocs}"]
        return sorted(ways + [(b, a) for a, b in ways])

    def wrong(self, phase):
        return [ocs for ocs in range(SWITCHES) if self.read(ocs) != self.expected(phase, ocs)]

    def settle(self, phase):
        """Waits until no change is in progress. Returns the lit phase, after a repair of mixed circuits to `phase`."""
        until = time.monotonic() + 120
        while True:
            self.ctl("wait", "--for", "60s", fails=True)
            lit = self.get("/v1/phases")["lit"]
            if self.get("/v1/status").get("transaction") is None and lit and not self.wrong(lit):
                return lit
            self.ctl("apply", "--again", "--phase", phase, "--mode", "update", "--cut-light", fails=True)
            assert time.monotonic() < until, "the circuits cannot be repaired"

    def stop(self):
        """Stops everything, and shows the end of the log after a failure."""
        for process in filter(None, (self.daemon, self.devices)):
            process.kill()
            process.wait()
        self.collector.shutdown()
        self.log.close()
        if sys.exc_info()[0]:
            print((self.folder / "log").read_text(encoding="utf-8")[-3000:], file=sys.stderr)


class Watcher(threading.Thread):
    """Reads all switches continuously: no port is ever in two circuits."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.over, self.reads, self.found = cluster, threading.Event(), 0, []

    def run(self):
        while not self.over.wait(0.02):
            ocs = self.reads % SWITCHES
            partners = collections.defaultdict(set)
            for a, b in self.cluster.read(ocs):
                partners[a].add(b)
                partners[b].add(a)
            self.found += [(ocs, port, with_) for port, with_ in partners.items() if len(with_) > 1]
            self.reads += 1


# The run.


class Busy:
    """The intervals in which spans of some kind were in progress."""

    def __init__(self, is_counted):
        self.intervals = []
        for start, end in sorted((int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])) for span in Traces.spans if is_counted(span)):
            if self.intervals and start <= self.intervals[-1][1]:
                self.intervals[-1][1] = max(self.intervals[-1][1], end)
            else:
                self.intervals.append([start, end])
        self.starts = [start for start, _ in self.intervals]

    def ms(self, asked, answered):
        first, last = max(bisect.bisect(self.starts, asked) - 1, 0), bisect.bisect(self.starts, answered)
        return sum(max(min(end, answered) - max(start, asked), 0) for start, end in self.intervals[first:last]) / 1e6


def is_operation(span):
    return any("ocs" in value for attribute in span["attributes"] for value in attribute["value"].values())


def is_disk(span):
    return span["name"] == "journal"


class Run:
    def __init__(self, cluster, options):
        self.cluster, self.options, self.draws = cluster, options, random.Random(options.seed)
        self.job, self.lit = Job(cluster, ["127.0.0.1", "127.0.0.2"], options.ranks), PHASES[0]
        self.codes, self.events, self.took = collections.Counter(), collections.Counter(), []
        self.wrong, self.longest = [], 0.0

    def change(self, number, event):
        phase = self.draws.choice([name for name in PHASES if name != self.lit])
        device, fault = None, None
        if self.draws.random() < self.options.faults:
            device, fault = f"ocs{self.draws.randrange(SWITCHES)}", self.draws.choice(SWITCH_FAULTS)
            if self.draws.random() < 0.2:
                device, fault = f"n{self.draws.randrange(NODES)}/b{self.draws.randrange(2)}", self.draws.choice(MODULE_FAULTS)
            self.cluster.disturb(device, fault)
        if event == "daemon during" and self.options.overhead_ms is not None:
            time.sleep(1)  # for the last batch of traces, without which earlier changes would have no time of devices
        victim, began = self.draws.randrange(len(self.job.ranks)), time.monotonic()
        silent = {victim} if event == "silent rank" else set()
        if event == "rank before":
            self.job.ranks[victim].kill()
            silent = {victim}
        self.job.ask(phase, silent)
        if event in ("rank during", "daemon during", "job during"):
            time.sleep(self.draws.random() * 0.06)
        if event == "rank during":
            self.job.ranks[victim].process.send_signal(signal.SIGKILL)
        elif event == "job during":
            self.job.kill()
        elif event == "daemon during":
            self.cluster.kill_daemon()
        answers = [] if event == "job during" else self.job.answers(silent)
        self.longest = max(self.longest, time.monotonic() - began)
        codes = [answer["code"] for answer in answers]
        self.codes.update(codes)
        self.events.update(filter(None, [event, fault]))
        if device:
            self.cluster.disturb(device, "clear")
        self.judge(number, phase, event, fault, answers)
        self.repair(event, victim, phase)
        if event or fault:
            self.cluster.ctl("wait", "--for", "60s", fails=True)

    def judge(self, number, phase, event, fault, answers):
        codes = {answer["code"] for answer in answers} - {"killed"}
        assert "silence" not in codes and ("closed" not in codes or event == "daemon during"), (number, event, fault, codes)
        assert event or fault or codes == {"lit"}, (number, codes)
        if codes == {"lit"}:
            self.lit = phase
            if not event and not fault:
                self.took.append((max(a["asked"] for a in answers), max(a["answered"] for a in answers)))
            if event == "daemon during":
                self.cluster.start_daemon()
            if wrong := self.cluster.wrong(phase):
                self.wrong.append((number, phase, event, fault, wrong))
            return
        assert "lit" not in codes or event == "daemon during", (number, event, fault, codes)
        if event == "daemon during":
            self.cluster.start_daemon()
        self.lit = self.cluster.settle(self.lit)

    def repair(self, event, victim, phase):
        if event == "silent rank":
            # The rank asks after the others got their answer, so it does not wait for them.
            self.job.ranks[victim].send("ask", self.job.group, PHASES.index(phase) + 2, self.job.count)
            assert self.job.ranks[victim].answer()["code"] == "late"
        elif event in ("rank before", "rank during"):
            self.job.replace(victim)
        elif event in ("daemon during", "job during"):
            self.job.kill()
            if event == "job during":
                self.lease_ends()
            self.job.start()

    def lease_ends(self):
        until = time.monotonic() + ANSWER_WITHIN + 1
        while self.cluster.get("/v1/phases")["lease"]:
            assert time.monotonic() < until, "a job without processes keeps its lease"
            time.sleep(0.01)

    def two_jobs(self):
        """The second job is refused at once while the first holds the lease, and is served when the first has ended."""
        other = Job(self.cluster, ["127.0.0.3"], 1)
        first, second = [name for name in PHASES if name != self.lit][:2]
        assert self.job.codes(first) == ["lit"] * len(self.job.ranks)
        began = time.monotonic()
        assert other.codes(second) == ["lease-held"] and time.monotonic() - began < ANSWER_WITHIN / 2
        assert not self.cluster.wrong(first)
        self.job.kill()
        self.lease_ends()
        assert other.codes(second) == ["lit"] and not self.cluster.wrong(second)
        self.job.start()
        assert set(self.job.codes(first)) == {"lease-held"} and not self.cluster.wrong(second)
        other.kill()
        self.lease_ends()
        assert set(self.job.codes(first)) == {"lit"} and not self.cluster.wrong(first)
        self.lit = first

    def report(self, watcher):
        if self.options.overhead_ms is not None:
            time.sleep(1)  # for the last batch of traces
        totals = [(answered - asked) / 1e6 for asked, answered in self.took]
        devices, known = Busy(is_operation), Busy(lambda span: is_operation(span) or is_disk(span))
        overheads = [total - devices.ms(*span) for total, span in zip(totals, self.took)]
        daemon = [total - known.ms(*span) for total, span in zip(totals, self.took)]
        return {
            "changes": self.options.changes, "answers": dict(self.codes), "events": dict(self.events), "wrong": self.wrong,
            "ports_in_two_circuits": watcher.found, "reads": watcher.reads, "longest_answer_s": round(self.longest, 2),
            "undisturbed": len(totals), "total_ms": shares(totals), "overhead_ms": shares(overheads), "without_disk_ms": shares(daemon),
        }


def shares(values):
    ordered = sorted(values)
    at = lambda share: round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 1) if ordered else None
    return {"p50": at(0.5), "p99": at(0.99), "most": at(1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--faults", type=float, default=0.25, help="share of changes with a faulty device")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--overhead-ms", type=float, help="highest p99 of the time that is not the devices' own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(options.programs, folder, options.seed)
        try:
            run, watcher = Run(cluster, options), Watcher(cluster)
            watcher.start()
            kinds = ["daemon during", "rank before", "rank during", "job during"]
            drawn = run.draws.sample(range(options.changes), min(options.kills, options.changes))
            events = {number: kinds[place % len(kinds)] for place, number in enumerate(drawn)}
            for number in range(options.changes):
                quiet = events.get(number) or ("silent rank" if number % 100 == 50 else None)
                run.change(number, quiet)
            run.two_jobs()
            watcher.over.set()
            watcher.join(30)
            run.job.kill()
            result = run.report(watcher)
        finally:
            cluster.stop()
    print(json.dumps(result))
    assert not result["wrong"] and not result["ports_in_two_circuits"], "wrong circuits"
    assert result["longest_answer_s"] < ANSWER_WITHIN + 1, "a rank waited too long"
    if options.overhead_ms is not None:
        assert result["overhead_ms"]["p99"] <= options.overhead_ms, "the daemon's share is too long"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        at, port = sys.argv[2].rsplit(":", 1)
        rank((at, int(port)), sys.argv[3])
    else:
        main()
