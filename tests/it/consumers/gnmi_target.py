# SPDX-License-Identifier: Apache-2.0
"""An optical switch with the OCP model over gNMI, on grpcio and the messages of pygnmi. Shares no code with the emulated switch.

It supports neither Subscribe nor master arbitration, and refuses a Set whole.
"""

import concurrent.futures
import json
import threading

import grpc
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

MODULES = ["ocp-ocs-optical-switch", "ocp-ocs-optical-switch-connections", "ocp-ocs-optical-switch-port"]


class Switch(gnmi_pb2_grpc.gNMIServicer):
    """Connects `in-N` to `out-N`. The circuits are in `connections`, as (input, output) by name."""

    def __init__(self, ports):
        self.ports, self.connections, self.lock = ports, {}, threading.Lock()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=4))
        gnmi_pb2_grpc.add_gNMIServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def stop(self):
        self.server.stop(None)

    def pairs(self):
        with self.lock:
            return sorted((int(a[3:]) - 1, int(b[4:]) - 1) for a, b in self.connections.values())

    def Capabilities(self, request, context):
        models = [gnmi_pb2.ModelData(name=name, organization="independent", version="0.8.0") for name in MODULES]
        return gnmi_pb2.CapabilityResponse(supported_models=models, supported_encodings=[gnmi_pb2.JSON_IETF], gNMI_version="0.8.0")

    def Get(self, request, context):
        with self.lock:
            updates = [update for path in request.path for update in self.read(path, context)]
        return gnmi_pb2.GetResponse(notification=[gnmi_pb2.Notification(timestamp=1, update=updates)])

    def read(self, path, context):
        names = [elem.name for elem in path.elem]
        if names[:1] == ["optical-switch"]:
            groups = [
                {"name": own, "direction": direction, "connection-groups": [{"peer-name": peer}]}
                for own, direction, peer in (("in", "INPUT-ONLY", "out"), ("out", "OUTPUT-ONLY", "in"))
            ]
            return [update(path, {"port-groups": groups})]
        if names == ["connections"]:
            return [update(path, {"port-connection": [self.entry(name) for name in sorted(self.connections)]})]
        if names[:2] == ["connections", "port-connection"]:
            name = path.elem[1].key["name"]
            if name not in self.connections:
                context.abort(grpc.StatusCode.NOT_FOUND, f"no connection {name}")
            return [update(path, self.entry(name)["state"])]
        wanted, leaf = path.elem[1].key["name"], names[4:]
        peers = {a: b for a, b in self.connections.values()}
        peers.update({b: a for a, b in self.connections.values()})
        found = []
        for side in ("in", "out"):
            for index in range(1, self.ports + 1):
                name = f"{side}-{index}"
                if wanted not in ("*", name):
                    continue
                value = {"group": side, "index": index, "output-optical-power": "-3.0", "connection": peers.get(name)}[leaf[0]]
                if value is not None:
                    elems = [gnmi_pb2.PathElem(name=elem.name, key=elem.key) for elem in path.elem]
                    elems[1].key["name"] = name
                    found.append(update(gnmi_pb2.Path(elem=elems), value))
        return found

    def entry(self, name):
        a, b = self.connections[name]
        ends = {"name": name, "input-port-name": a, "output-port-name": b}
        return {"name": name, "config": ends, "state": {**ends, "status": "CONNECTED"}}

    def Set(self, request, context):
        with self.lock:
            after = dict(self.connections)
            for path in request.delete:
                after.pop(path.elem[1].key["name"], None)
            for part in (*request.replace, *request.update):
                config = json.loads(part.val.json_ietf_val)
                after[config["name"]] = (config["input-port-name"], config["output-port-name"])
            ends = [end for pair in after.values() for end in pair]
            if len(ends) != len(set(ends)):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a port is in two connections")
            self.connections = after
        return gnmi_pb2.SetResponse(timestamp=1)

    def Subscribe(self, requests, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "no subscriptions")


def update(path, value):
    return gnmi_pb2.Update(path=path, val=gnmi_pb2.TypedValue(json_ietf_val=json.dumps(value).encode()))
