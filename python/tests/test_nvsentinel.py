# SPDX-License-Identifier: Apache-2.0
"""Health events over a stand-in for the daemon and one for NVSentinel's platform connector, which decodes with Google's protobuf."""

import concurrent.futures
import http.server
import json
import pathlib
import socketserver
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lightloom import nvsentinel

DEVICES = [{"name": name} for name in ("n0/b0", "n1/b0", "n2/b0", "ocs0")]


def fault(part, bypassed=False, why="no light"):
    return {"part": part, "since_unix_ms": 1_700_000_000_123, "why": why, "bypassed": bypassed}


def status(*faults, changes=1):
    return {"changes": changes, "devices": DEVICES, "broken_parts": list(faults)}


def short(batch):
    return [
        (event["nodeName"], event["isHealthy"], event["isFatal"], [entity["entityValue"] for entity in event["entitiesImpacted"]])
        for event in batch["events"]
    ]


class Events(unittest.TestCase):
    def taken(self, reporter, *faults):
        batch, current = reporter.batch(status(*faults), 1_800_000_000.0)
        reporter.sent(current)
        return short(batch)

    def test_fault_bypass_and_recovery_are_reported_once_each(self):
        reporter = nvsentinel.Reporter()
        healthy = [(name, True, False, []) for name in ("n0", "n1", "n2")]
        self.assertEqual(self.taken(reporter), healthy)
        self.assertEqual(self.taken(reporter), [])
        self.assertEqual(self.taken(reporter, fault("n1/b0.2")), [("n1", False, True, ["n1/b0.2"])])
        self.assertEqual(self.taken(reporter, fault("n1/b0.2", bypassed=True)), [("n1", False, False, ["n1/b0.2"])])
        self.assertEqual(self.taken(reporter, fault("n1/b0.2", bypassed=True)), [])
        self.assertEqual(self.taken(reporter), [("n1", True, False, ["n1/b0.2"])])

    def test_recovery_during_a_restart_is_reported(self):
        before = nvsentinel.Reporter()
        self.taken(before, fault("n1"), fault("n2/b0"))
        # The fault of n2/b0 ends while neither reporter runs, and n1 remains.
        events = self.taken(nvsentinel.Reporter(), fault("n1"))
        self.assertIn(("n2", True, False, []), events)
        self.assertEqual(events[-1], ("n1", False, True, ["n1"]), "a fault follows the healthy event of its node")

    def test_undelivered_batch_is_sent_again(self):
        reporter = nvsentinel.Reporter()
        first, _ = reporter.batch(status(fault("n1")), 1.0)
        second, _ = reporter.batch(status(fault("n1")), 1.0)
        self.assertEqual(first, second)

    def test_names_follow_the_cluster(self):
        batch, _ = nvsentinel.Reporter("gpu{:04}").batch(status(fault("n17/b0")), 1.0)
        self.assertEqual(short(batch)[-1][0], "gpu0017")
        event = batch["events"][-1]
        self.assertEqual(event["generatedTimestamp"], "2023-11-14T22:13:20.123Z")
        self.assertEqual(event["entitiesImpacted"][0]["entityType"], "OPTICAL_BUNDLE")


class Daemon(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class Delivery(unittest.TestCase):
    def test_connector_decodes_what_the_daemon_reported(self):
        try:
            import grpc
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2  # noqa: F401
        except ImportError:
            self.skipTest("no grpcio")
        messages = message_class(descriptor_pb2, descriptor_pool, message_factory)
        received, statuses = [], [status(fault("n1")), {}, status(changes=2)]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(statuses.pop(0)).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def address_string(self):
                return "socket"

            def log_message(self, *_):
                pass

        def take(request, context):
            received.append(messages.FromString(request))
            if len(received) == 1:
                context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
            return b""

        service, method = nvsentinel.METHOD[1:].split("/")
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        handlers = {method: grpc.unary_unary_rpc_method_handler(take)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        with tempfile.TemporaryDirectory() as folder:
            server.add_insecure_port(f"unix://{folder}/connector.sock")
            server.start()
            with Daemon(f"{folder}/daemon.sock", Handler) as daemon:
                threading.Thread(target=daemon.serve_forever, daemon=True).start()
                nvsentinel.log.disabled, nvsentinel.RETRY_AFTER = True, 0.01
                # The first batch is refused, and the second answer is not a status.
                statuses.insert(0, status(fault("n1")))
                deliver = nvsentinel.connector(f"unix://{folder}/connector.sock")
                nvsentinel.follow(nvsentinel.Daemon(f"{folder}/daemon.sock"), nvsentinel.Reporter(), deliver, rounds=4)
                daemon.shutdown()
            server.stop(None)
        self.assertEqual([event.nodeName for event in received[0].events], [event.nodeName for event in received[1].events])
        broken, healed = received[1].events[-1], received[2].events
        self.assertEqual((broken.nodeName, broken.isFatal, broken.isHealthy), ("n1", True, False))
        self.assertEqual((broken.recommendedAction, broken.processingStrategy, broken.checkName), (5, 2, "OpticalFabric"))
        self.assertEqual((broken.generatedTimestamp.seconds, broken.generatedTimestamp.nanos), (1_700_000_000, 123_000_000))
        self.assertEqual([(event.nodeName, event.isHealthy, event.entitiesImpacted[0].entityValue) for event in healed], [("n1", True, "n1")])


def message_class(descriptor_pb2, descriptor_pool, message_factory):
    """Builds the messages from the public definition: numbers, types and names."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="health.proto", package="datamodels", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")

    def message(name, *fields):
        built = file.message_type.add(name=name)
        for number, field, kind, label, of in fields:
            built.field.add(name=field, number=number, type=kind, label=label, type_name=of)

    text, whole, flag, inner = kinds.TYPE_STRING, kinds.TYPE_UINT32, kinds.TYPE_BOOL, kinds.TYPE_MESSAGE
    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    message("Entity", (1, "entityType", text, one, None), (2, "entityValue", text, one, None))
    message(
        "HealthEvent", (1, "version", whole, one, None), (2, "agent", text, one, None), (3, "componentClass", text, one, None),
        (4, "checkName", text, one, None), (5, "isFatal", flag, one, None), (6, "isHealthy", flag, one, None),
        (7, "message", text, one, None), (8, "recommendedAction", kinds.TYPE_INT32, one, None), (9, "errorCode", text, many, None),
        (10, "entitiesImpacted", inner, many, ".datamodels.Entity"),
        (12, "generatedTimestamp", inner, one, ".google.protobuf.Timestamp"), (13, "nodeName", text, one, None),
        (16, "processingStrategy", kinds.TYPE_INT32, one, None))
    message("HealthEvents", (1, "version", whole, one, None), (2, "events", inner, many, ".datamodels.HealthEvent"))
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("datamodels.HealthEvents"))


if __name__ == "__main__":
    unittest.main()
