# SPDX-License-Identifier: Apache-2.0
"""What pygnmi, a gNMI client of somebody else, makes of a gNMI switch of 8 by 8 ports: gnmi_switch.py HOST PORT.

Prints one line for each thing that was found as expected, and ends with `all as expected`.
"""

import sys
import threading
import time

from pygnmi.client import gNMIclient

HOST, PORT = sys.argv[1], sys.argv[2]
LIST = "/connections/port-connection"


def connection(name, source, target):
    config = {"name": name, "input-port-name": source, "output-port-name": target}
    return (f"{LIST}[name={name}]/config", config)


def value(client, path):
    return client.get(path=[path], encoding="json_ietf")["notification"][0]["update"][0]["val"]


def status(client, name):
    return value(client, f"{LIST}[name={name}]/state/status")


def until(client, name, wanted):
    for _ in range(200):
        if status(client, name) == wanted:
            return
        time.sleep(0.01)
    raise AssertionError(f"{name} is {status(client, name)}, not {wanted}")


def main():
    with gNMIclient(target=(HOST, PORT), insecure=True) as client:
        said = client.capabilities()
        models = {model["name"]: model["version"] for model in said["supported_models"]}
        assert models["ocp-ocs-optical-switch-connections"] == "0.8.0", models
        assert "json_ietf" in said["supported_encodings"], said
        print("capabilities")

        assert value(client, "/optical-switch/state/cold-boot-recovery") == "REMOVE"
        assert value(client, "/optical-switch/state/port-groups[name=in]/direction") == "INPUT-ONLY"
        print("defaults and port groups")

        client.set(update=[connection("a", "in-1", "out-2"), connection("b", "in-2", "out-1")], encoding="json_ietf")
        until(client, "a", "CONNECTED")
        until(client, "b", "CONNECTED")
        peer = value(client, "/components/component[name=out-2]/ocp-ocs-port/state/connection/peer")
        assert peer == "in-1", peer
        power = float(value(client, "/components/component[name=out-2]/ocp-ocs-port/state/output-optical-power"))
        assert -6 < power < -2, power
        print("two connections in one Set, peers and power")

        before = value(client, "/connections")
        try:
            client.set(update=[connection("c", "in-3", "out-3"), connection("d", "in-1", "out-4")], encoding="json_ietf")
            raise AssertionError("a port in two connections was taken")
        except Exception as error:  # pygnmi's own class wraps gRPC's
            assert "nothing was changed" in str(error), error
        assert value(client, "/connections") == before
        print("a Set with a wrong part is refused whole")

        heard = []

        def listen():
            with gNMIclient(target=(HOST, PORT), insecure=True) as other:
                wanted = {
                    "subscription": [{"path": f"{LIST}[name=*]/state/status", "mode": "on_change"}],
                    "mode": "stream",
                    "encoding": "json_ietf",
                }
                for message in other.subscribe2(subscribe=wanted):
                    heard.append(str(message))
                    if "'CONNECTED'" in heard[-1] and "name=x" in heard[-1]:
                        return

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        for _ in range(200):
            if any("sync" in message for message in heard):
                break
            time.sleep(0.01)
        gone = [f"{LIST}[name=a]", f"{LIST}[name=b]"]
        client.set(delete=gone, update=[connection("x", "in-1", "out-1"), connection("y", "in-2", "out-2")], encoding="json_ietf")
        until(client, "x", "CONNECTED")
        listener.join(5)
        assert not listener.is_alive(), heard
        print("deletes before updates, heard by a subscriber on change")

        client.set(delete=[f"{LIST}[name=x]", f"{LIST}[name=y]"])
    print("all as expected")


main()
