# SPDX-License-Identifier: Apache-2.0
"""Computes facts from files of other projects without lightloom's readers. `ci/shelf` compares them with its output.

A function takes the files of an example and returns facts by name. `ABSENT` is a fact that the files do not contain;
lightloom must not report it as stated. `Refusal` is a text that the error must contain."""

import collections
import gzip
import json
import re
import statistics
import xml.etree.ElementTree

ABSENT = None
# Tokens of a sequence in `lightloom mfu`.
SEQUENCE = 8192


class Refusal(str):
    pass


class Rough(float):
    """A fact that leaves out operations of a few per cent."""


def text(path):
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return data.decode("utf-8", errors="replace")


def documents(path):
    """Returns the YAML documents of a file."""
    import yaml  # Only examples need it.

    return [one for one in yaml.safe_load_all(text(path)) if one]


def usual(values):
    """Returns the most frequent value, the largest in a tie."""
    counts = collections.Counter(values)
    return max(counts, key=lambda value: (counts[value], value)) if counts else ABSENT


def expanded(hosts):
    """Expands `gpu[001-003,7],login`."""
    found = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", str(hosts or "")):
        match = re.match(r"(.*?)\[([^\]]*)\](.*)$", word)
        if not match:
            found.append(word)
            continue
        for part in match[2].split(","):
            low, _, high = part.partition("-")
            for number in range(int(low), int(high or low) + 1):
                found += expanded(f"{match[1]}{number:0{len(low)}}{match[3]}")
    return found


# --- clusters -------------------------------------------------------------------------------------------------------


def below_leaves(units):
    """`units` are pairs of the hosts and the switches below a switch."""
    return usual(len(hosts) for hosts, switches in units if hosts and not switches)


def topology(switches, blocks):
    leaves = [hosts for hosts, below in switches if not below] + blocks
    return {
        "hosts": len({host for hosts in leaves for host in hosts}) or ABSENT,
        "nodes_per_tor": below_leaves(switches),
        "domain_hosts": usual(len(hosts) for hosts in blocks if hosts),
    }


def slurm(paths):
    if any(path.suffix == ".yaml" for path in paths):
        listed = documents(paths[0])[0]
        listed.sort(key=lambda one: str(one.get("cluster_default")).lower() != "true")
        trees = [one["tree"]["switches"] for one in listed if one.get("tree", {}).get("switches")]
        blocks = [one["block"]["blocks"] for one in listed if one.get("block", {}).get("blocks")]
        switches = [(expanded(one.get("nodes")), expanded(one.get("children"))) for one in (trees or [[]])[0]]
        return topology(switches, [expanded(one.get("nodes")) for one in (blocks or [[]])[0]])
    switches, blocks, gpus, whole = [], [], {}, "\n".join(text(path) for path in paths)
    for line in re.sub(r"\\\n", " ", whole).splitlines():
        line = re.sub(r"\s*=\s*", "=", line.split("#")[0])
        keys = {key.lower(): value.strip('"') for key, value in re.findall(r'(\w+)=("[^"]*"|\S*)', line)}
        hosts = expanded(keys.get("nodes"))
        if "switchname" in keys:
            switches.append((hosts, expanded(keys.get("switches"))))
        elif "blockname" in keys:
            blocks.append(hosts)
        gres = re.findall(r"gpu:(?:[^,(:]*:)?(\d+)", keys.get("gres", ""))
        if gres:
            gpus.update(dict.fromkeys(expanded(keys.get("nodename")), sum(map(int, gres))))
    facts = topology(switches, blocks)
    if gpus and not switches and not blocks:
        facts["hosts"] = len(gpus)
    if not switches and not blocks and not gpus:
        return {"refused": Refusal("cannot read any file")}
    return {**facts, "gpus_per_node": usual(gpus.values())}


def topograph(paths):
    model = documents(paths[0])[0]
    blocks = model.get("blocks") or model.get("capacity_blocks") or []
    blocks = [dict(one, name=name) for name, one in blocks.items()] if isinstance(blocks, dict) else blocks
    leaf = collections.defaultdict(set)
    domain = collections.defaultdict(set)
    below = {name for one in model["switches"].values() for name in one.get("blocks", []) + one.get("capacity_blocks", [])}
    for block in blocks:
        hosts = expanded(",".join(block.get("nodes", [])))
        above = block.get("switch")
        if block.get("name") in below:
            lists = [(name, one.get("blocks", []) + one.get("capacity_blocks", [])) for name, one in model["switches"].items()]
            above = next(name for name, listed in lists if block["name"] in listed)
        leaf[above] |= set(hosts)
        marks = {**(block.get("annotations") or {}), **(block.get("labels") or {})}
        named = [value for key, value in marks.items() if key.endswith("/domain")] or [block.get("nvlink")]
        domain[named[0]] |= set(hosts)
    domain.pop(None, None)
    return {
        "hosts": len(set().union(*leaf.values())),
        "nodes_per_tor": usual(len(hosts) for hosts in leaf.values()),
        "domain_hosts": usual(len(hosts) for hosts in domain.values()),
    }


def infragraph(paths):
    infra = documents(paths[0])[0]
    # Version 3.1 has no `connections`, which the examples of earlier versions use.
    if not infra.get("edges") or not infra.get("instances"):
        return {"refused": Refusal("does not contain any known log")}
    devices = {one["name"]: one for one in infra["devices"]}

    def count(device, kind):
        components = devices.get(device, {}).get("components", [])
        of = lambda one: count(one["name"], kind) if one["choice"] == "device" else one["choice"] == kind
        return sum(one["count"] * of(one) for one in components)

    def indices(endpoint):
        low, colon, high = re.search(r"(?:\[(\d*)(:?)(\d*)\])?$", endpoint).groups()
        name = endpoint.split("[")[0]
        size = next(one["count"] for one in infra["instances"] if one["name"] == name)
        first = int(low or 0)
        return [(name, index) for index in range(first, int(high or size) if colon or low is None else first + 1)]

    hosts = {one["name"]: one for one in infra["instances"] if count(one["device"], "xpu")}
    below, used = collections.defaultdict(set), []
    for edge in infra["edges"]:
        ends = [indices(edge[end]["instance"]) for end in ("ep1", "ep2")]
        ends.sort(key=lambda end: end[0][0] not in hosts)
        low, high = ends
        if low[0][0] in hosts and high[0][0] not in hosts:
            for other in high[:1] if len(high) == 1 else high:
                below[other] |= set(low)
            link = next(one for one in infra["links"] if one["name"] == edge["link"])
            width = link["physical"]["bandwidth"]
            used.append(width[width["choice"]] * (8 if "bytes" in width["choice"] else 1))
    return {
        "hosts": sum(one["count"] for one in hosts.values()),
        "gpus_per_node": usual(count(one["device"], "xpu") for one in hosts.values()),
        "nodes_per_tor": usual(len(found) for found in below.values()),
        "link_gbps": usual(used),
    }


def nccl_topology(paths):
    root = xml.etree.ElementTree.fromstring(re.sub(r"^\s*<!--.*?-->", "", text(paths[0]), flags=re.S))
    gpus = len(root.findall(".//gpu"))
    if not gpus:
        gpus = sum(pci.get("class", "").startswith("0x03") for pci in root.iter("pci"))
    if not gpus:
        return {"refused": Refusal("cannot read any file")}
    speeds = [int(net.get("speed")) for net in root.iter("net") if int(net.get("speed", 0)) > 0]
    links = [sum(int(one.get("count")) for one in gpu.findall("nvlink")) for gpu in root.iter("gpu")]
    return {
        "gpus_per_node": gpus,
        "link_gbps": usual(speeds) / 1000 if speeds else ABSENT,
        "nvlinks": links[0] or ABSENT if links else ABSENT,
    }


def kubernetes(paths):
    listed = [one for path in paths for one in documents(path)]
    nodes = [node for one in listed for node in one.get("items", [one]) if node["kind"] == "Node"]
    labels = [node["metadata"].get("labels", {}) for node in nodes]
    capacity = [node.get("status", {}).get("capacity", {}) for node in nodes]
    names = "nvidia.com/gpu", "alibabacloud.com/gpu-count"
    gpus = [max(int(one.get(name, 0)) for name in names) for one in capacity]
    # MIG instances and shares of a GPU count as capacity.
    gpus = [int(label.get("nvidia.com/gpu.count", count)) for label, count in zip(labels, gpus)]
    products = {one.get("nvidia.com/gpu.product") or one.get("alibabacloud.com/gpu-card-model") for one in labels}
    if not any(gpus):
        return {"refused": Refusal("does not contain any known log")}
    return {
        "hosts": sum(count > 0 for count in gpus),
        "gpus_per_node": usual(filter(None, gpus)),
        "accelerator": accelerator(" ".join(filter(None, products))),
    }


def accelerator(product):
    cards = "gb300 gb200 b300 b200 h200 h100 h800 h20 a100".split()
    return next((card for card in cards if card in product.lower()), ABSENT)


# --- jobs and faults ------------------------------------------------------------------------------------------------


def sacct(paths):
    whole = text(paths[0])
    if whole.lstrip().startswith("{"):
        states = [job["state"]["current"] for job in json.loads(whole)["jobs"]]
        failed = sum("NODE_FAIL" in state for state in states)
        return {"read": "sacct", "gpus_per_node": ABSENT, "outages": failed or ABSENT}
    header = whole.splitlines()[0].lower().split("|")
    if "jobid" not in header:
        return {"refused": Refusal("does not contain any known log")}
    if "start" not in header:
        return {"refused": Refusal("no column `start`")}
    return {"read": "sacct", "gpus_per_node": ABSENT, "outages": whole.count("|NODE_FAIL|") or ABSENT}


def nvsentinel(paths):
    event = json.loads(text(paths[0]))
    return {"refused": Refusal("cannot read any file")} if "generatedTimestamp" not in event else {"outages": 1}


def mlperf(paths):
    marked = [line.split(":::MLLOG ", 1)[1] for line in text(paths[0]).splitlines() if ":::MLLOG " in line]
    entries = [json.JSONDecoder().raw_decode(line)[0] for line in marked]
    last = {entry["key"]: entry["value"] for entry in entries}
    stats = [entry["value"] for entry in entries if entry["key"] == "tracked_stats"]
    times = [one[key] for one in stats for key in ("train_step_time", "train_step_timing") if key in one]
    rates = [one["throughput"] for one in stats if "throughput" in one]
    step = ABSENT
    if times:
        step = statistics.median(times[1:] or times)
    elif rates:
        step = last["global_batch_size"] / statistics.median(rates[1:] or rates)
    return {
        "batch": last["global_batch_size"] if step else ABSENT,
        "step_s": step,
        "accelerator": accelerator(last["submission_platform"]),
    }


# --- steps ----------------------------------------------------------------------------------------------------------


def kineto(paths):
    profile = json.loads(text(paths[0]))
    events = profile["traceEvents"]
    marks = [e for e in events if str(e.get("name")).startswith("ProfilerStep") and e.get("cat") != "gpu_user_annotation"]
    devices = profile.get("deviceProperties", [])
    info = profile.get("distributedInfo") or {}
    seconds = sorted(mark["dur"] / 1e6 for mark in marks)
    return {
        "step_s": seconds[len(seconds) // 2] if seconds else ABSENT,
        "gpus_per_node": len(devices) or ABSENT,
        "accelerator": accelerator(devices[0]["name"] if devices else ""),
        "ranks": info.get("world_size") or ABSENT,
    }


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Yields the numbers and values of the fields of a protocol buffers message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def chakra_nodes(path):
    """Returns the attributes of each node of an execution trace, and its type."""
    data, at, nodes = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        message, at = data[at : at + size], at + size
        node = {"type": 0}
        for number, value in fields(message):
            if number == 3:
                node["type"] = value
            elif number == 10:
                attribute = list(fields(value))
                name = next((v.decode() for n, v in attribute if n == 1), "")
                node[name] = next((v for n, v in attribute if n != 1 and n != 2 and isinstance(v, int)), 0)
        nodes.append(node)
    return nodes[1:]


SEND, RECEIVE, COLLECTIVE = 5, 6, 7
KINDS = {0: "all-reduce", 2: "all-gather", 5: "broadcast", 6: "all-to-all", 7: "reduce-scatter"}


def chakra(paths):
    nodes = [chakra_nodes(path) for path in paths]
    bytes_of = lambda kind: sum(node.get("comm_size", 0) for one in nodes for node in one if node["type"] == kind)
    kinds = {KINDS.get(node["comm_type"]) for one in nodes for node in one if node["type"] == COLLECTIVE and "comm_type" in node}
    return {
        "ranks": len(paths),
        "collective_bytes": bytes_of(COLLECTIVE) or ABSENT,
        "sent_bytes": bytes_of(SEND) or ABSENT,
        "collectives": sorted(kinds) or ABSENT,
    }


def simai(paths):
    header, count, *rows = text(paths[0]).splitlines()
    setting = lambda name: int(re.search(name + r":?\s+(\d+)", header)[1])
    rows = [row.split() for row in rows if row.strip()][: int(count)]
    nanoseconds = sum(int(row[at]) for row in rows for at in (2, 5, 8))
    return {
        "ranks": setting("all_gpus"),
        "tp": setting("model_parallel_NPU_group"),
        "compute_s": nanoseconds / 1e9 if setting("pp") == 1 else ABSENT,
    }


def goal(paths):
    whole = text(paths[0])
    return {
        "ranks": int(re.search(r"num_ranks (\d+)", whole)[1]),
        "sent_bytes": sum(map(int, re.findall(r"send (\d+)b", whole))),
        "sends": len(re.findall(r"send \d+b", whole)),
    }


def connection_matrix(paths):
    flows = re.findall(r"^(\d+)->(\d+).* size (\d+)", text(paths[0]), re.M)
    if any(size == "0" for _, _, size in flows):
        return {"refused": Refusal("without a size never ends")}
    if len(flows) != int(re.search(r"Connections (\d+)", text(paths[0]))[1]):
        return {"refused": Refusal("the file announces")}
    return {
        "ranks": int(re.search(r"Nodes (\d+)", text(paths[0]))[1]),
        "sends": len(flows),
        "sent_bytes": sum(int(size) for _, _, size in flows),
    }


def hugging_face(paths):
    """Returns the operations of a training step on a token, from the published shapes of the layers."""
    config = json.loads(text(paths[0]))
    config = config.get("text_config", config)
    if "global_head_dim" in config:
        return {"refused": Refusal("not understood: `global_head_dim`")}
    get = lambda *keys: next((config[key] for key in keys if config.get(key)), 0)
    hidden, heads, layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    if config.get("kv_lora_rank"):
        nope, rope, value = (config[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        query, latent = config["q_lora_rank"], config["kv_lora_rank"]
        weights = hidden * query + query * heads * (nope + rope) + hidden * (latent + rope)
        weights += latent * heads * (nope + value) + heads * value * hidden
        mixed = heads * (nope + rope + value)
    else:
        size, shared = get("head_dim") or hidden // heads, get("num_key_value_heads") or heads
        weights, mixed = 2 * hidden * size * (heads + shared), 2 * heads * size
    experts = get("num_experts", "n_routed_experts", "num_local_experts")
    dense = 3 * hidden * get("intermediate_size_mlp", "intermediate_size")
    first = get("first_k_dense_replace") if experts else layers
    width = get("moe_intermediate_size", "intermediate_size")
    one = get("n_shared_experts") * width or get("shared_expert_intermediate_size")
    if config.get("model_type", "").startswith(("llama4", "gemma4")):
        one = config["intermediate_size"]
    chosen = get("num_experts_per_tok", "top_k_experts")
    sparse = 3 * hidden * (chosen * width + one) + hidden * experts
    attention, output = 2 * weights + 2 * SEQUENCE * mixed, 2 * hidden * config["vocab_size"]
    forward = layers * attention + 2 * first * dense + 2 * (layers - first) * sparse + output
    types = config.get("layer_types", [])
    window = get("sliding_window")
    if window and types:
        seen = 2 * window - window**2 / SEQUENCE
        forward -= types.count("sliding_attention") * 2 * (SEQUENCE - seen) * mixed
    # Gated DeltaNet decays, reads, corrects and queries a state instead of comparing tokens with each other.
    linear = types.count("linear_attention")
    if linear:
        key, value = (get(f"linear_num_{one}_heads") * get(f"linear_{one}_head_dim") for one in ("key", "value"))
        states = 2 * hidden * (2 * key + 3 * value) + 7 * value * get("linear_key_head_dim")
        forward += linear * (states - attention)
    # Each layer for the prediction of later tokens also joins two vectors and has an output.
    last = 2 * (sparse if experts else dense)
    forward += get("num_nextn_predict_layers", "mtp_num_hidden_layers") * (attention + last + 4 * hidden * hidden + output)
    return {"flops_per_token": Rough(3 * forward)}
