# SPDX-License-Identifier: Apache-2.0
"""Reports the known faults of ``lightloomd`` to NVSentinel as health events.

    python3 -m lightloom.nvsentinel                                                  # prints batches as JSON lines
    python3 -m lightloom.nvsentinel --connector unix:///var/run/nvsentinel/platform-connector.sock   # needs grpcio

A fault is fatal until the plan in force bypasses it. After a start, the current state of every node is reported, so a recovery
during a restart is not lost. While the daemon is unreachable nothing is reported, and a batch that cannot be delivered is sent again.
"""

import argparse
import datetime
import http.client
import json
import logging
import re
import socket
import sys
import time

log = logging.getLogger("lightloom.nvsentinel")

AGENT, COMPONENT, CHECK = "lightloom", "INFRASTRUCTURE", "OpticalFabric"
METHOD = "/datamodels.PlatformConnector/HealthEventOccurredV1"
#: Numbers of `RecommendedAction` and `ProcessingStrategy`.
NONE, CONTACT_SUPPORT = 0, 5
EXECUTE_REMEDIATION, STORE_ONLY = 1, 2
RETRY_AFTER = 1.0
WAIT_MS = 30_000


def nodes_of(status):
    """Returns the numbers of all nodes whose transceivers the daemon drives, and of nodes with faults."""
    names = [device.get("name", "") for device in status.get("devices", [])]
    names += [fault["part"] for fault in status.get("broken_parts", [])]
    found = (re.match(r"n(\d+)(?:/|$)", name) for name in names)
    return {int(match[1]) for match in found if match}


class Reporter:
    """Converts statuses of the daemon to batches of events."""

    def __init__(self, hostname="n{}", strategy=STORE_ONLY):
        self.hostname, self.strategy = hostname, strategy
        self.known = None  # (fatal, reason) by part; None before the first status

    def batch(self, status, now):
        """Returns the batch of changes since the last call of `sent`, and the state to pass to it."""
        faults = {fault["part"]: fault for fault in status.get("broken_parts", [])}
        current = {part: (not fault.get("bypassed", True), fault.get("why", "")) for part, fault in faults.items()}
        events = []
        if self.known is None:
            # A healthy event without entities ends all earlier events of this check on the node.
            events += [self.event(node, now, healthy=True) for node in sorted(nodes_of(status))]
        for part in sorted((self.known or {}).keys() - current.keys()):
            events.append(self.event(self.node(part), now, healthy=True, part=part))
        for part, (fatal, why) in sorted(current.items()):
            if (self.known or {}).get(part) != (fatal, why):
                since = faults[part].get("since_unix_ms")
                at = now if since is None else since / 1000
                events.append(self.event(self.node(part), at, healthy=False, part=part, fatal=fatal, why=why))
        return {"version": 1, "events": [event for event in events if event["nodeName"]]}, current

    def sent(self, current):
        self.known = current

    @staticmethod
    def node(part):
        match = re.match(r"n(\d+)(?:/|$)", part)
        return int(match[1]) if match else None

    def event(self, node, at, healthy, part=None, fatal=False, why=""):
        time_of = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
        kind = "NODE" if part is None or "/" not in part else "OPTICAL_PORT" if "." in part else "OPTICAL_BUNDLE"
        return {
            "version": 1, "agent": AGENT, "componentClass": COMPONENT, "checkName": CHECK, "isFatal": fatal, "isHealthy": healthy,
            "message": why if part else "no known fault", "recommendedAction": CONTACT_SUPPORT if fatal else NONE,
            "errorCode": [], "entitiesImpacted": [{"entityType": kind, "entityValue": part}] if part else [],
            "generatedTimestamp": time_of.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "nodeName": "" if node is None else self.hostname.format(node), "processingStrategy": self.strategy,
        }


def varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes(encoded + bytes([value]))


def field(number, value):
    """Encodes one protobuf field. Defaults are omitted."""
    if not value:
        return b""
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def encoded(batch):
    """Encodes a batch as `datamodels.HealthEvents`."""
    return field(1, batch["version"]) + b"".join(field(2, encoded_event(event)) for event in batch["events"])


def encoded_event(event):
    at = datetime.datetime.fromisoformat(event["generatedTimestamp"].replace("Z", "+00:00"))
    seconds, micros = divmod(round(at.timestamp() * 1_000_000), 1_000_000)
    entities = [field(1, one["entityType"]) + field(2, one["entityValue"]) for one in event["entitiesImpacted"]]
    names = ("version", "agent", "componentClass", "checkName", "isFatal", "isHealthy", "message", "recommendedAction")
    numbered = b"".join(field(number, event[name]) for number, name in enumerate(names, 1))
    stamp = field(1, seconds) + field(2, micros * 1000)
    return (
        numbered + b"".join(field(10, entity) for entity in entities) + field(12, stamp) + field(13, event["nodeName"])
        + field(16, event["processingStrategy"])
    )


class Daemon:
    def __init__(self, path):
        self.path, self.changes = path, None

    def status(self):
        """Waits for a change of the daemon's state."""
        connection = http.client.HTTPConnection("lightloomd")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(WAIT_MS / 1000 + 10)
        try:
            connection.sock.connect(self.path)
            wait = "" if self.changes is None else f"?wait_ms={WAIT_MS}&since={self.changes}"
            connection.request("GET", f"/v1/status{wait}")
            response = connection.getresponse()
            if response.status != 200:
                raise ValueError(f"the daemon answered with status {response.status}")
            status = json.loads(response.read())
        finally:
            connection.close()
        self.changes = status["changes"]
        return status


def connector(address):
    """Returns a function that delivers a batch to NVSentinel's platform connector."""
    import grpc

    send = grpc.insecure_channel(address).unary_unary(METHOD, request_serializer=encoded, response_deserializer=bytes)

    def deliver(batch):
        try:
            send(batch, timeout=10)
        except grpc.RpcError as error:
            raise OSError(f"{address}: {error.code().name}: {error.details()}") from error

    return deliver


def printed(batch):
    print(json.dumps(batch), flush=True)


def follow(daemon, reporter, deliver, rounds=None):
    """Reports changes forever, or for a number of rounds."""
    done = 0
    while rounds is None or done < rounds:
        done += 1
        try:
            batch, current = reporter.batch(daemon.status(), time.time())
            if batch["events"]:
                deliver(batch)
            reporter.sent(current)
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            log.warning("%s; retrying", error)
            daemon.changes = None
            time.sleep(RETRY_AFTER)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="lightloom.nvsentinel", description="Report the daemon's known faults to NVSentinel.")
    parser.add_argument("--socket", default="/run/lightloom/lightloomd.sock", help="socket of lightloomd [default: %(default)s]")
    parser.add_argument("--connector", metavar="ADDRESS", help="platform connector [default: print batches]")
    parser.add_argument("--hostname", default="n{}", help="name of node N in Kubernetes, such as gpu{:04} [default: %(default)s]")
    parser.add_argument("--remediate", action="store_true", help="let NVSentinel act on the events [default: it only stores them]")
    options = parser.parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    reporter = Reporter(options.hostname, EXECUTE_REMEDIATION if options.remediate else STORE_ONLY)
    follow(Daemon(options.socket), reporter, connector(options.connector) if options.connector else printed)


if __name__ == "__main__":
    main()
