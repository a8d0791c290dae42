#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a deployed TL1 driver against an emulated switch: log in, read, connect ports, clear them.

    ci/polatis_tl1.py SOURCE [--lightloom target/debug/lightloom]

SOURCE is a checkout of cloudshell-L1-polatis at release 2.0.0 or 3.0.5 (or CLOUDSHELL_L1_POLATIS in the environment), of which
nothing is copied. The result is read back over the switch's other protocol, SCPI.
"""

import argparse
import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import types

SIZE = 8


class Scpi:
    """Independent reading of the connected ports, over another protocol."""

    def __init__(self, at):
        self.at = at

    def pairs(self):
        host, port = self.at.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=5) as line:
            line.sendall(b":oxc:swit:conn:stat?\n")
            text = b""
            while not text.endswith(b"\n"):
                text += line.recv(4096)
        ingress, egress = ([int(n) for n in re.findall(r"\d+", side)] for side in text.decode().split("),("))
        return sorted(zip(ingress, egress))


def release_2(source, port):
    """The driver of release 2.0.0, written for Python 2. Its texts are converted to bytes; nothing else is changed."""
    sys.path.insert(0, source)
    import polatis_l1_handler as module

    class Connection(module.PolatisRawConnection):
        def _write(self, text):
            self._sock.sendall(text.encode())

        def _read_until(self, regex):
            text = ""
            while not re.search(regex, text):
                piece = self._sock.recv(1024).decode()
                if not piece:
                    raise EOFError(text)
                text += piece
            return text

    module.PolatisRawConnection = Connection
    handler = module.PolatisL1Handler(logging.getLogger("driver"))
    handler._get_json_settings = lambda: (port, True, {})
    handler.login("127.0.0.1", "root", "root")
    return (
        lambda: handler.get_resource_description("127.0.0.1").to_string(),
        lambda a, b: handler.map_bidi(f"x/{a}", f"x/{b}", ""),
        lambda a, b: handler.map_clear(f"x/{a}", f"x/{b}"),
    )


class Session:
    """Replaces the framework of release 3: logs in, names and numbers requests, and waits for `COMPLD`."""

    def __init__(self, port):
        self.line = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.counter, self.name = 0, ""
        header = self.ask("ACT-USER::root:<counter>::root;")
        self.name = re.search(r"^(.*)\s+\d+-", header, re.MULTILINE).group(1).strip()

    def ask(self, command):
        self.counter += 1
        command = command.replace("<counter>", str(self.counter)).replace("<name>", self.name)
        self.line.sendall(f"{command}\n".encode())
        text, reply = "", None
        while not reply:
            text += self.line.recv(1024).decode()
            reply = re.search(rf"M\s+{self.counter}\s+([A-Z ]+)[^;]*;", text)
        if reply.group(1).strip() != "COMPLD":
            raise ValueError(text)
        return text


def release_3(source, port):
    """Requests and parsers of release 3.0.5, with a minimal session instead of its framework."""
    for name in ("command_template", "command_template_executor"):
        for parent in ("cloudshell", "cloudshell.cli", "cloudshell.cli.command_template"):
            sys.modules.setdefault(parent, types.ModuleType(parent))
        sys.modules[f"cloudshell.cli.command_template.{name}"] = types.ModuleType(name)
    sys.modules["cloudshell.cli.command_template.command_template"].CommandTemplate = str

    class Executor:
        def __init__(self, session, template):
            self.session, self.template = session, template

        def execute_command(self, **words):
            return self.session.ask(self.template.format(**words) if words else self.template)

    sys.modules["cloudshell.cli.command_template.command_template_executor"].CommandTemplateExecutor = Executor
    sys.path.insert(0, source)
    from polatis.command_actions.autoload_actions import AutoloadActions
    from polatis.command_actions.mapping_actions import MappingActions
    from polatis.command_actions.system_actions import SystemActions

    session, log = Session(port), logging.getLogger("driver")
    load, maps, size = AutoloadActions(session, log), MappingActions(session, log), SystemActions(session, log)

    def describe():
        total, logical = sum(size.get_device_size()), min(size.get_device_size())
        ports = [load.get_port_status(total), load.get_port_power(total), load.get_port_wavelength(total)]
        if [len(seen) for seen in ports] != 3 * [2 * SIZE]:
            raise ValueError(f"ports: {ports}")
        return f"{load.get_switch_serial()} {load.get_switch_details()} {load.get_connections(logical, True)} {ports}"

    def join(a, b):
        maps.map_uni(src_port=a + SIZE, dst_port=b)
        maps.map_uni(src_port=b + SIZE, dst_port=a)

    def clear(a, b):
        for port in (a, b):
            maps.map_clear([str(port), str(port + SIZE)])

    return describe, join, clear


def check(what, seen, good):
    print(f"| {what} | {seen} | {'yes' if good else 'NO'} |")
    return not good


def drive(source, tl1, scpi):
    release = release_2 if os.path.exists(os.path.join(source, "polatis_l1_handler.py")) else release_3
    describe, join, clear = release(source, tl1)
    print(f"{release.__name__}\n\n| what the driver does | what is so | as it should be |\n| --- | --- | --- |")
    failed = check("log in", "done", True)
    join(3, 7)
    failed += check("join 3 and 7 both ways", scpi.pairs(), scpi.pairs() == [(3, 7 + SIZE), (7, 3 + SIZE)])
    shown = describe()
    failed += check("describe the switch", f"{len(shown)} characters, with its serial number", "ocs0" in shown)
    clear(3, 7)
    failed += check("clear both ends", scpi.pairs(), scpi.pairs() == [])
    print(f"\n{failed} not as they should be")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="?", default=os.environ.get("CLOUDSHELL_L1_POLATIS"))
    parser.add_argument("--lightloom", default="target/debug/lightloom")
    arguments = parser.parse_args()
    if not arguments.source or not os.path.isdir(arguments.source):
        print("skipped: no checkout of cloudshell-L1-polatis (argument or CLOUDSHELL_L1_POLATIS)")
        return 0
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        devices = os.path.join(folder, "devices.yaml")
        ports = f"ingress: {SIZE}, egress: {SIZE}, scpi: '127.0.0.1:0', tl1: '127.0.0.1:0'"
        with open(devices, "w", encoding="utf-8") as file:
            file.write(f"switches:\n  - {{name: ocs0, {ports}}}\n")
        serve = [arguments.lightloom, "device", "serve", devices, "--format", "json"]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as served:
            try:
                shown = ""
                while not shown.endswith("\n}\n"):
                    shown += served.stdout.readline() or sys.exit("device serve ended")
                at = {device["speaks"]: device["at"] for device in json.loads(shown)["devices"]}
                return drive(arguments.source, int(at["tl1"].rsplit(":", 1)[1]), Scpi(at["scpi"]))
            finally:
                served.terminate()


if __name__ == "__main__":
    sys.exit(main())
