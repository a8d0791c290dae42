#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Brings up an emulated module with the host side of SONiC (`sonic_xcvr`), and prints its readings.

    ci/sonic_xcvr.py SOURCE [--eeprom] [--lightloom target/debug/lightloom]

SOURCE is a checkout of sonic-platform-common (or SONIC_PLATFORM_COMMON in the environment), of which nothing is copied. A client in
this file, written only from docs/firmware-api.md and docs/firmware-registers.md, accesses the memory over the module's serial line. With
--eeprom, SONiC's own class for `optoe` files accesses the module's file (root only). Exits with 1 if a check fails or after five minutes,
and with 0 and `skipped: …` without SOURCE.
"""

import argparse
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import tty
import types
import unittest.mock
import zlib

IDENTITY = ("lightloom", "OCSTRX-800G-3P")


def reach(source):
    """Makes `sonic_xcvr` importable without its package initialisation, which needs all of SONiC."""
    package = types.ModuleType("sonic_platform_base")
    package.__path__ = [os.path.join(source, "sonic_platform_base")]
    sys.modules["sonic_platform_base"] = package
    for name in ("sonic_py_common", "sonic_py_common.logger", "sonic_py_common.syslogger", "sonic_py_common.device_info"):
        sys.modules.setdefault(name, unittest.mock.MagicMock())


class Line:
    """The serial protocol of docs/firmware-api.md, section 1: COBS frames with a CRC."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.fd, termios.TCSANOW)
        self.sequence = int(time.time()) & 0xFFFF
        self.received = b""

    @staticmethod
    def encode(frame):
        out = bytearray()
        for block in frame.split(b"\0"):
            while len(block) >= 254:
                out += b"\xff" + block[:254]
                block = block[254:]
            out += bytes([len(block) + 1]) + block
        return b"\0" + bytes(out) + b"\0"

    @staticmethod
    def decode(coded):
        out, at = bytearray(), 0
        while at < len(coded):
            code = coded[at]
            out += coded[at + 1 : at + code]
            at += code
            if code < 255 and at < len(coded):
                out.append(0)
        return bytes(out)

    def ask(self, command, payload):
        self.sequence = (self.sequence + 1) & 0xFFFF
        head = struct.pack(">BBHBBH", 1, 1, self.sequence, command, 0, len(payload)) + payload
        os.write(self.fd, self.encode(head + struct.pack(">I", zlib.crc32(head))))
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.2)[0]:
                self.received += os.read(self.fd, 4096)
            *whole, self.received = self.received.split(b"\0")
            for frame in (self.decode(coded) for coded in whole if coded):
                if frame[1] == 2 and struct.unpack(">H", frame[2:4])[0] == self.sequence:
                    length = struct.unpack(">H", frame[6:8])[0]
                    return frame[5], frame[8 : 8 + length]
        raise TimeoutError("the module does not answer")


class Eeprom:
    """Maps linear offsets of the optoe kernel driver to the module's pages."""

    def __init__(self, line):
        self.line = line

    @staticmethod
    def pieces(offset, size):
        while size:
            page, at = (0, offset) if offset < 128 else (offset // 128 - 1, 128 + offset % 128)
            length = min(size, (128 if at < 128 else 256) - at)
            yield page, at, length
            offset, size = offset + length, size - length

    def read(self, offset, size):
        out = b""
        for page, at, length in self.pieces(offset, size):
            status, data = self.line.ask(2, bytes([0, page, at, length]))
            # On the bus, selecting a nonexistent page selects page 00h.
            if status:
                status, data = self.line.ask(2, bytes([0, 0, at, length]))
            if status:
                return None
            out += data
        return bytearray(out)

    def write(self, offset, size, data):
        data = bytes(data)[:size]
        for page, at, length in self.pieces(offset, size):
            status, _ = self.line.ask(3, bytes([0, page, at]) + data[:length])
            if status:
                return False
            data = data[length:]
        return True


def optoe(path):
    """The host's class for a module with an `eeprom` file."""
    from sonic_platform_base.sonic_xcvr.sfp_optoe_base import SfpOptoeBase

    class Sfp(SfpOptoeBase):
        def get_eeprom_path(self):
            return path

    return Sfp()


class Checks:
    def __init__(self):
        self.failed = 0

    def row(self, what, seen, good):
        self.failed += not good
        print(f"| {what} | {seen} | {'yes' if good else 'NO'} |")


def masks():
    """Lane masks, each one data path of an application (1: eight lanes, 2: four, 3: one)."""
    yield 0xFF, 1
    yield from ((0x0F << first, 2) for first in (0, 4))
    yield from ((1 << lane, 3) for lane in range(8))


def wait(condition, seconds=3.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


def lanes(mask):
    return [lane for lane in range(8) if mask >> lane & 1]


def config(api, mask):
    status = api.get_config_datapath_hostlane_status()
    return {status[f"ConfigStatusLane{lane + 1}"] for lane in lanes(mask)}


def states(api, mask):
    state = api.get_datapath_state()
    return {state[f"DP{lane + 1}State"] for lane in lanes(mask)}


def apply(api, mask, application):
    """Follows the CMIS state machine of SONiC's xcvrd: stop, choose, apply, start."""
    api.set_datapath_deinit(0xFF)
    wait(lambda: states(api, 0xFF) == {"DataPathDeactivated"})
    api.set_application(0xFF, 0)
    api.scs_apply_datapath_init(0xFF)
    wait(lambda: config(api, 0xFF) == {"ConfigSuccess"})
    api.set_application(mask, application)
    api.scs_apply_datapath_init(mask)
    wait(lambda: "ConfigInProgress" not in config(api, mask))
    return config(api, mask)


def identity(api, checks):
    info = api.get_transceiver_info()
    checks.row("maker and part", (info["manufacturer"], info["model"]), (info["manufacturer"], info["model"]) == IDENTITY)
    checks.row("date code", repr(info["vendor_date"]), "\0" not in info["vendor_date"] and info["vendor_date"].strip() != "")
    checks.row("power class", info["ext_identifier"], "12.0W" in info["ext_identifier"] and "Class 6" in info["ext_identifier"])
    technology = api.get_media_interface_technology()
    checks.row("media technology", technology, technology == "1310 nm EML")
    checks.row("connector", info["connector"], info["connector"] not in ("Unknown", "Unknown or unspecified", "N/A"))
    media = api.get_module_media_type()
    checks.row("media type", media, media == "sm_media_interface")
    advertised = api.get_application_advertisement()
    names = [f"{a['host_electrical_interface_id']} over {a['module_media_interface_id']}" for a in advertised.values()]
    checks.row("applications", f"{len(names)}: " + "; ".join(names), len(names) == 3 and "Unknown" not in str(names))
    starts = [(a["host_lane_assignment_options"], a.get("media_lane_assignment_options")) for a in advertised.values()]
    checks.row("first lanes, host and media", starts, starts == [(1, 1), (17, 17), (255, 255)])


def supported(api, checks):
    for what, answer in [
        ("transmitted power", api.get_tx_power_support()),
        ("received power", api.get_rx_power_support()),
        ("laser bias", api.get_tx_bias_support()),
        ("loss of received light", api.get_rx_los_support()),
        ("transmitter off", api.get_tx_disable_support()),
        ("receiver output off", api.get_rx_disable_support()),
        ("low power", api.get_lpmode_support()),
        ("thresholds", api.get_transceiver_thresholds_support()),
    ]:
        checks.row(f"supported: {what}", bool(answer), bool(answer))
    thresholds = api.get_transceiver_threshold_info()
    ordered = all(
        thresholds[f"{name}highalarm"] > thresholds[f"{name}highwarning"] > thresholds[f"{name}lowwarning"] > thresholds[f"{name}lowalarm"]
        for name in ("temp", "vcc", "txpower", "rxpower", "txbias")
    )
    checks.row("thresholds in order, all five monitors", ordered, ordered)
    between = thresholds["temphighwarning"] > api.get_module_temperature() > thresholds["templowwarning"]
    between &= thresholds["vcchighwarning"] > api.get_voltage() > thresholds["vcclowwarning"]
    checks.row("temperature and supply within them", f"{api.get_module_temperature()} °C, {api.get_voltage()} V", between)


def bring_up(api, checks):
    good = 0
    for mask, application in masks():
        verdict = apply(api, mask, application)
        api.set_datapath_init(mask)
        up = wait(lambda: states(api, mask) == {"DataPathActivated"})
        rest = 0xFF & ~mask
        dark = not rest or states(api, rest) == {"DataPathDeactivated"}
        power = api.get_tx_power()
        lit = all((power[lane] > 0) == bool(mask >> lane & 1) for lane in range(8))
        if verdict == {"ConfigSuccess"} and up and dark and lit:
            good += 1
        else:
            print(f"mask {mask:02x} application {application}: {verdict}, {api.get_datapath_state()}, {power}", file=sys.stderr)
    checks.row("data paths up, each mask of each application", f"{good} of 11", good == 11)
    verdict = apply(api, 0xFF, 9)
    checks.row("application 9, which does not exist", sorted(verdict), verdict == {"ConfigRejectedInvalidAppSel"})
    api.set_datapath_init(0xFF)
    time.sleep(0.2)
    checks.row("nothing comes up after that", sorted(states(api, 0xFF)), states(api, 0xFF) == {"DataPathDeactivated"})


def transmitters(api, checks):
    apply(api, 0xFF, 1)
    api.set_datapath_init(0xFF)
    wait(lambda: states(api, 0xFF) == {"DataPathActivated"})
    bias, power, dom = api.get_tx_bias(), api.get_tx_power(), api.get_transceiver_dom_real_value()
    checks.row("light and bias of lane 1", f"{power[0]} mW, {bias[0]} mA", power[0] > 0 and bias[0] > 0)
    checks.row("received, lane 1", f"{dom['rx1power']} dBm", float(dom["rx1power"]) > -10)
    api.get_rx_los()
    api.tx_disable_channel(0x03, True)
    off = wait(lambda: api.get_tx_power()[:2] == [0, 0] and api.get_tx_power()[2] > 0)
    checks.row("transmitters 1 and 2 off", api.get_tx_disable()[:3], off)
    time.sleep(0.3)
    lost = api.get_rx_los()
    checks.row("flag: light lost on lanes 1 and 2, looped back", lost[:3], lost == [True, True] + 6 * [False])
    api.tx_disable_channel(0x03, False)
    on = wait(lambda: api.get_tx_power()[0] > 0)
    checks.row("and on again", api.get_tx_disable()[:3], on)
    api.get_rx_los()
    flags = api.get_transceiver_status_flags()
    checks.row("flag: read once, gone", flags["rx1los"], flags["rx1los"] is False)
    api.rx_disable_channel(0x01, True)
    status = api.get_rx_output_status()
    checks.row("receiver output 1 off", f"{status['RxOutputStatus1']}, {status['RxOutputStatus2']}", not status["RxOutputStatus1"] and status["RxOutputStatus2"])
    api.rx_disable_channel(0x01, False)


def low_power(api, checks):
    down = api.set_lpmode(True)
    checks.row("low power", api.get_module_state(), down and api.get_lpmode())
    up = api.set_lpmode(False)
    checks.row("and back", api.get_module_state(), up and api.get_module_state() == "ModuleReady")
    carries = wait(lambda: states(api, 0xFF) == {"DataPathActivated"})
    checks.row("data paths after that", sorted(states(api, 0xFF)), carries)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", nargs="?", default=os.environ.get("SONIC_PLATFORM_COMMON"))
    parser.add_argument("--eeprom", action="store_true")
    parser.add_argument("--lightloom", default="target/debug/lightloom")
    arguments = parser.parse_args()
    if not arguments.source or not os.path.isdir(os.path.join(arguments.source, "sonic_platform_base")):
        print("skipped: no checkout of sonic-platform-common (argument or SONIC_PLATFORM_COMMON)")
        return 0
    if arguments.eeprom and os.geteuid() != 0:
        print("skipped: mounting the module's file needs root")
        return 0
    # The timer's signal ends this program, and with it the server below.
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("timed out after five minutes"))
    signal.alarm(300)
    reach(arguments.source)
    from sonic_platform_base.sonic_xcvr.xcvr_api_factory import XcvrApiFactory

    with tempfile.TemporaryDirectory() as folder:
        devices = os.path.join(folder, "devices.yaml")
        with open(devices, "w", encoding="utf-8") as file:
            file.write("transceivers:\n  - {names: m0, power_on: loopback}\n")
        links = os.path.join(folder, "links")
        serve = [arguments.lightloom, "device", "serve", devices, "--links", links, "--format", "json"]
        if arguments.eeprom:
            serve += ["--eeproms", os.path.join(folder, "eeproms")]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as served:
            try:
                shown = ""
                while not shown.endswith("\n}\n"):
                    shown += served.stdout.readline() or sys.exit("device serve ended")
                at = {device["speaks"]: device["at"] for device in json.loads(shown)["devices"]}
                if arguments.eeprom:
                    api = optoe(at["eeprom"]).get_xcvr_api()
                else:
                    eeprom = Eeprom(Line(at["frames"]))
                    api = XcvrApiFactory(eeprom.read, eeprom.write).create_xcvr_api()
                checks = Checks()
                print("| what the host asks or does | what it sees | as it should be |\n| --- | --- | --- |")
                for part in (identity, supported, bring_up, transmitters, low_power):
                    try:
                        part(api, checks)
                    except Exception as error:  # what a host trips over is a finding, not the end
                        checks.row(part.__name__, f"{type(error).__name__}: {error}", False)
                print(f"\n{checks.failed} not as they should be")
                return 1 if checks.failed else 0
            finally:
                served.terminate()
                try:
                    served.wait(10)
                except subprocess.TimeoutExpired:
                    served.kill()


if __name__ == "__main__":
    sys.exit(main())
