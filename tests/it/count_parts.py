# SPDX-License-Identifier: Apache-2.0
"""Counts the parts of a fabric file (as JSON) by the rules of docs/fabric-file.md. Shares no code with lightloom."""

import json
import sys
from collections import Counter


def gbps(text):
    return int(text.removesuffix("Gbps"))


def divided(a, b):
    return -(-a // b)


def leaf_set(ranges, leaves):
    if ranges is None:
        return set(range(leaves))
    found = set()
    for text in ranges:
        first, _, last = text.partition("..")
        low = int(first.removeprefix("leaf"))
        found |= set(range(low, int((last or first).removeprefix("leaf")) + 1))
    return found


def count(fabric):
    parts = Counter()

    def link(rate, links, switch_ends):
        parts[f"dcn-optical-{rate}g"] += 2 * links
        parts[f"switch-port-{rate}g"] += switch_ends * links

    (domain, hbd), = fabric["hbd"].items()
    nodes, size = hbd.get("nodes") or sum(hbd["lines"]), hbd["gpus_per_node"]
    installed = nodes - len(fabric.get("start", {}).get("absent", []))
    gpus = installed * size
    parts["gpu"] = gpus
    if domain == "khop":
        modules = 8 * hbd["k"] * installed
        parts.update({"ocstrx-800g": modules, "fibre": modules, "dac-1.6t": 2 * (size - hbd["k"]) * installed})
    if domain == "switch" and hbd["gpus"] > size:
        # One switch chip of 72 ports for four GPUs, and 72 copper cables for each GPU.
        parts.update({"nvlink-switch": gpus / 4, "copper-200g": 72 * gpus})
    (kind, dcn), = fabric["dcn"].items()
    if kind == "reconfigurable_fat_tree":
        rate = gbps(dcn.get("gpu_rate", dcn["circuit_rate"]))
        parts[f"nic-{rate}g"] += gpus
        link(rate, gpus, 1)
        core = dcn["electrical"]
        other = {entry["leaf"]: entry["rate"] for entry in core.get("uplinks", [])}
        rates = [gbps(other.get(f"leaf{leaf}", core["rate_per_leaf"])) for leaf in range(dcn["leaves"])]
        link(rate, sum(divided(own, rate) for own in rates), 2)
        first = 0
        for bank in dcn["banks"]:
            circuit = gbps(bank.get("circuit_rate") or dcn["circuit_rate"])
            wired = leaf_set(bank.get("leaves"), dcn["leaves"])
            own = range(first, first + bank["switches"])
            first += bank["switches"]
            taken = sum(int(port.split("/")[0].removeprefix("ocs")) in own for port in dcn.get("occupied", []))
            fibres = bank["switches"] * len(wired) * bank["ports_per_leaf"] - taken
            parts[f"switch-port-{circuit}g"] += fibres
            parts[f"dcn-optical-{circuit}g"] += fibres
            parts["ocs-port"] += bank["switches"] * bank["ports_per_switch"]
        return parts
    rate = gbps(dcn["link_rate"])
    interfaces = dcn.get("planes", 1) if kind == "rails" else dcn.get("nics_per_gpu", 1)
    parts[f"nic-{rate}g"] += gpus * interfaces
    link(rate, gpus * interfaces, 1)
    if kind == "rails":
        groups = divided(nodes, dcn["nodes_per_group"])
        up = divided(dcn["nodes_per_group"] * interfaces, dcn["oversubscription"])
        link(rate, groups * size * up, 2)
        return parts
    below = dcn["nodes_per_tor" if kind == "fat_tree" else "nodes_per_leaf"]
    leaves = divided(nodes, below)
    up = divided(below * size * interfaces, dcn["oversubscription"])
    link(rate, leaves * up, 2)
    if kind == "fat_tree":
        domains = divided(leaves, dcn["tors_per_domain"])
        if domains > 1:
            # Each aggregation switch has a link to every core switch of its plane.
            link(rate, domains * up * divided(dcn["tors_per_domain"], dcn["core_oversubscription"]), 2)
    return parts


print(json.dumps({part: n for part, n in count(json.load(open(sys.argv[1]))).items() if n}))
