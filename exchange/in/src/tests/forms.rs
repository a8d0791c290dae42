// SPDX-License-Identifier: Apache-2.0
//! Tests spellings, encodings and positions of facts in other programs' files, and damaged lines.

use lightloom_training::collectives::CollectiveKind;
use lightloom_training::graph::{Task, TaskGraph, TaskWork};
use lightloom_training::kineto::{self, RankProfile};
use lightloom_training::{chakra, goal, simai};

use super::{SACCT, TOPOLOGY, logs, problems};
use crate::{LogFile, Logs, read};

fn drafted(logs: &Logs, key: &str) -> (String, String) {
    let draft = crate::draft(logs, &|file| file.to_owned());
    let guess = draft.guesses.into_iter().find(|guess| guess.key == key).expect("a guess");
    (guess.value, guess.why)
}

fn hours_out(logs: &Logs, host: &str) -> Vec<f64> {
    let own = logs.outages.iter().filter(|outage| outage.host == host);
    own.map(|outage| (outage.end.expect("an end") - outage.start) as f64 / 3600.0).collect()
}

#[test]
fn reads_nodes_in_more_yaml_documents_than_the_usual_limit() {
    let node = |number: u32| {
        format!(
            "kind: Node\nmetadata: {{name: n{number}}}\nstatus: {{capacity: {{nvidia.com/gpu: '8'}}}}\n---\n"
        )
    };
    let logs = logs(&[("nodes", &(0..1100).map(node).collect::<String>())]);
    assert_eq!((problems(&logs), logs.hosts.len()), (Vec::new(), 1100));
}

/// Topograph's own models name a block's switch, which need not be in `switches`.
#[test]
fn block_of_a_topograph_model_is_below_its_switch() {
    let model = "switches:\n  core: {switches: [leaf1, leaf2]}\nblocks:\n\
        - {switch: leaf1, nodes: ['w[1-2]'], annotations: {accelerator.test/domain: d1}}\n\
        - {switch: leaf2, nodes: ['w[3-4]'], annotations: {accelerator.test/domain: d1}}\n";
    let logs = logs(&[("model.yaml", model)]);
    assert_eq!(problems(&logs), Vec::<String>::new());
    assert_eq!(logs.hosts["w3"].switches, ["leaf2", "core"]);
    assert_eq!(logs.hosts["w3"].domain.as_deref(), Some("d1"));
}

/// A device plugin multiplies the capacity by shares, and sets it to 0 if all GPUs are split into MIG instances.
#[test]
fn counts_gpus_of_a_node_and_not_their_shares() {
    let node = |labels: &str, capacity: &str| {
        format!(
            "kind: Node\nmetadata: {{name: w1, labels: {{{labels}}}}}\nstatus: {{capacity: {{{capacity}}}}}\n"
        )
    };
    let count = "nvidia.com/gpu.count: \"8\"";
    for text in [
        node(count, "nvidia.com/gpu: \"32\""),
        node(count, "nvidia.com/gpu: \"0\", nvidia.com/mig-1g.5gb: \"56\""),
        node("", "cpu: 64, alibabacloud.com/gpu-count: 8"),
    ] {
        let logs = logs(&[("nodes", &text)]);
        assert_eq!(problems(&logs), Vec::<String>::new(), "{text}");
        assert_eq!(logs.hosts["w1"].gpus, Some(8), "{text}");
    }
}

/// Cloud providers ship files for `NCCL_TOPO_FILE` without `<gpu>`; hosts that share NVLinks are in one dump.
#[test]
fn counts_the_gpus_of_every_form_of_an_nccl_topology() {
    let pci =
        "<pci busid=\"1\" class=\"0x030200\"/><pci busid=\"2\" class=\"0x020700\"/>".repeat(8);
    let input = format!("<system version=\"1\"><cpu numaid=\"0\">{pci}</cpu></system>");
    let host = |hash: u32| {
        format!("<cpu host_hash=\"{hash}\"><pci class=\"0x030200\"><gpu dev=\"0\"/></pci></cpu>")
    };
    let shared =
        format!("<system version=\"2\">{}{}</system>", host(1).repeat(4), host(2).repeat(4));
    for (text, gpus) in [(&input, 8), (&shared, 4)] {
        let logs = logs(&[("topo.xml", text)]);
        assert_eq!(problems(&logs), Vec::<String>::new());
        assert_eq!(logs.shapes[0].gpus, gpus);
    }
}

/// The forms are from Slurm's own parser, `scontrol show topology` and topology.yaml(5).
#[test]
fn reads_every_form_of_a_slurm_topology() {
    let spaced = "SwitchName = leaf1  Nodes = \"gpu[001-004]\"\nSwitchName=leaf2 Nodes= gpu[005-008]\nSwitchName =spine Switches=\"leaf[1-2]\"\n";
    let shown = "SwitchName=spine Level=1 LinkSpeed=1 Nodes=gpu[001-008] Switches=leaf[1-2]\nSwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu[001-004]\nSwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gpu[005-008]\n";
    let yaml = "---\n- topology: other\n  flat: true\n- topology: tree\n  cluster_default: true\n  tree:\n    switches:\n    - switch: spine\n      children: leaf[1-2]\n    - {switch: leaf1, nodes: \"gpu[001-004]\"}\n    - {switch: leaf2, nodes: \"gpu[005-008]\"}\n";
    let late = format!("{}{TOPOLOGY}", "# a comment\n".repeat(7000));
    for text in [TOPOLOGY, spaced, shown, yaml, &late] {
        let logs = logs(&[("x", text)]);
        assert_eq!(problems(&logs), Vec::<String>::new());
        let switches = |host: &str| logs.hosts[host].switches.clone();
        assert_eq!(switches("gpu004"), ["leaf1", "spine"], "{}", logs.read[0].kind);
        assert_eq!(
            (logs.hosts.len(), switches("gpu005")),
            (8, vec!["leaf2".into(), "spine".into()])
        );
    }
    let blocks = "- topology: b\n  block: {block_sizes: [2], blocks: [{block: b1, nodes: \"a[1-2]\"}, {block: b2, nodes: \"a[3-4]\"}]}\n";
    assert_eq!(logs(&[("x", blocks)]).hosts["a3"].domain.as_deref(), Some("b2"));
}

/// Tests files as written by `lightloom export --to topograph` and `topograph-graph`, and a file
/// with a list of switches.
#[test]
fn reads_switches_and_domains_from_topograph_files() {
    let map = "switches:\n  s0: {switches: [t0, t1]}\n  t0: {}\n  t1: {}\nblocks:\n- switch: t0\n  nodes: [\"n[0-1]\", n2]\n  annotations: {accelerator.topology.test/domain: g0}\n- switch: t1\n  nodes: [\"n[3-5]\"]\n";
    let list = "switches:\n- {name: s0, switches: [t0, t1]}\n- {name: t0, capacity_blocks: [a]}\n- {name: t1, capacity_blocks: [b]}\ncapacity_blocks:\n- {name: a, nvlink: g0, nodes: [\"n[0-2]\"]}\n- {name: b, nodes: [\"n[3-5]\"]}\n";
    let host = |id: u32, leaf: u32, label: &str| {
        format!(
            "{{\"id\": \"n{id}\", \"network_layers\": [\"t{leaf}\", \"s0\"], \"labels\": {{{label}}}}}"
        )
    };
    let domain = "\"accelerator.topograph.run/domain\": \"g0\"";
    let hosts = (0..6).map(|id| host(id, id / 3, if id < 3 { domain } else { "" }));
    let graph = format!("{{\"instances\": [{}]}}", hosts.collect::<Vec<_>>().join(",\n"));
    for text in [map, list, &graph] {
        let logs = logs(&[("x", text)]);
        assert_eq!(problems(&logs), Vec::<String>::new());
        assert_eq!(logs.hosts["n4"].switches, ["t1", "s0"], "{}", logs.read[0].kind);
        assert_eq!((logs.hosts.len(), logs.hosts["n2"].domain.as_deref()), (6, Some("g0")));
    }
}

/// Tests typed and plain GPUs with sockets, as in slurm.conf(5) and `scontrol show node`.
#[test]
fn reads_gpus_from_slurm_nodes() {
    let conf = "NodeName=cpu1 CPUs=8\nNodeName=gpu[1-2] Gres=gpu:h100:8 CPUs=96 State=UNKNOWN\nPartitionName=a Nodes=ALL\n";
    let shown = "NodeName=gpu1 Arch=x86_64 \n   Gres=gpu:h100:4(S:0),gpu:h100:4(S:1)\n   CfgTRES=cpu=96,gres/gpu=8\n\nNodeName=gpu2\n   Gres=gpu:8(S:0-1)\n";
    for text in [conf, shown] {
        let logs = logs(&[("x", text)]);
        assert_eq!((problems(&logs), logs.hosts.len()), (Vec::new(), 2));
        assert_eq!(logs.hosts["gpu1"].product.as_deref(), Some("h100"));
        assert!(logs.hosts.values().all(|host| host.gpus == Some(8)), "{:?}", logs.hosts);
    }
}

/// Tests labels of GPU feature discovery, Kueue and AWS. A control plane node is not a host.
#[test]
fn locates_a_node_from_the_labels_of_every_scheduler() {
    let node = |name: &str, labels: &str, gpus: u32| {
        format!(
            "{{\"kind\": \"Node\", \"metadata\": {{\"name\": \"{name}\", \"labels\": {{{labels}}}}}, \"status\": {{\"capacity\": {{\"nvidia.com/gpu\": \"{gpus}\"}}}}}}"
        )
    };
    let text = [
        node("cp", "", 0),
        node("a", "\"cloud.provider.com/topology-block\": \"b1\", \"cloud.provider.com/topology-rack\": \"r1\"", 8),
        node("b", "\"topology.k8s.aws/network-node-layer-1\": \"top\", \"topology.k8s.aws/network-node-layer-3\": \"low\"", 8),
        node("c", "\"nvidia.com/gpu.clique\": \"uuid.7\"", 4),
    ]
    .join("\n");
    let logs = logs(&[("nodes", &text)]);
    assert_eq!(problems(&logs), Vec::<String>::new());
    assert_eq!(logs.hosts.len(), 3);
    assert_eq!(logs.hosts["a"].switches, ["r1", "b1"]);
    assert_eq!(logs.hosts["b"].switches, ["low", "top"]);
    assert_eq!(logs.hosts["c"].domain.as_deref(), Some("uuid.7"));
}

/// A Kueue `Topology` names the labels of a cluster's levels.
#[test]
fn locates_a_node_from_the_levels_of_a_kueue_topology() {
    let topology = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Topology\nmetadata: {name: default}\nspec:\n  levels:\n  - nodeLabel: \
                    acme.com/hall\n  - nodeLabel: \"acme.com/rack\"\n  - nodeLabel: kubernetes.io/hostname\n---\napiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nspec:\n  nodeLabels: \
                    {pool: a}\n  topologyName: default\n";
    let nodes = r#"{"kind": "Node", "metadata": {"name": "a", "labels": {"acme.com/hall": "h1", "acme.com/rack": "r7", "kubernetes.io/hostname": "a"}},
                    "status": {"capacity": {"nvidia.com/gpu": "8"}}}"#;
    let logs = logs(&[("nodes.json", nodes), ("topology.yaml", topology)]);
    assert_eq!(problems(&logs), Vec::<String>::new());
    assert_eq!(logs.hosts["a"].switches, ["r7", "h1"]);
}

/// Regression: files were recognised only by their first 64 KiB and only in UTF-8.
#[test]
fn position_and_encoding_do_not_hide_a_file() {
    let images = "x".repeat(90_000);
    let nodes = format!(
        "{{\"kind\": \"List\", \"items\": [{{\"kind\": \"Node\", \"metadata\": {{\"name\": \"cp\"}}, \"note\": \"{images}\"}},\n\
                         {{\"kind\": \"Node\", \"metadata\": {{\"name\": \"g\", \"labels\": {{\"fabric.topograph.run/tier-0\": \"l\"}}}}}}]}}"
    );
    assert_eq!(logs(&[("nodes", &nodes)]).hosts.len(), 1);
    let marked = |mark: [u8; 2], unit: fn(u16) -> [u8; 2]| {
        [mark.to_vec(), TOPOLOGY.encode_utf16().flat_map(unit).collect()].concat()
    };
    let little = marked([0xff, 0xfe], u16::to_le_bytes);
    let big = marked([0xfe, 0xff], u16::to_be_bytes);
    for bytes in [&*little, &big, &[b"\xef\xbb\xbf", TOPOLOGY.as_bytes()].concat()] {
        assert_eq!(read(&[LogFile { name: "t", bytes }]).hosts.len(), 8);
    }
}

/// GPU 0 fails at 10:00 and GPU 3 at 10:05; both are healthy again at 14:00.
#[test]
fn recovery_of_one_gpu_does_not_end_the_outage_of_another() {
    let event = |time: &str, state: &str, entities: &str| {
        format!(
            "{{\"nodeName\": \"n\", \"checkName\": \"GpuXidError\", \"componentClass\": \"GPU\", \"{state}\": true, \"entitiesImpacted\": [{entities}], \"generatedTimestamp\": \"2026-03-02T{time}:00Z\"}}\n"
        )
    };
    let gpu = |index: u32| format!("{{\"entityType\": \"GPU\", \"entityValue\": \"{index}\"}}");
    let named = |index: u32| {
        format!(
            "{}, {{\"entityType\": \"GPU_UUID\", \"entityValue\": \"GPU-{index}\"}}",
            gpu(index)
        )
    };
    let begin = event("10:00", "isFatal", &named(0)) + &event("10:05", "isFatal", &named(3));
    for end in [
        event("10:10", "isHealthy", &gpu(0)) + &event("14:00", "isHealthy", &gpu(3)),
        event("10:10", "isHealthy", &named(0)) + &event("14:00", "isHealthy", ""),
        event("14:00", "isHealthy", &format!("{}, {}", gpu(0), gpu(3))),
    ] {
        assert_eq!(hours_out(&logs(&[("health", &(begin.clone() + &end))]), "n"), [4.0]);
    }
    let stored = begin
        .replace("\"isFatal\": true", "\"isFatal\": true, \"processingStrategy\": \"STORE_ONLY\"");
    assert_eq!(logs(&[("health", &stored)]).outages.len(), 0);
}

/// 24 flaps of one minute, merged by the API server, in both API versions.
#[test]
fn merged_events_are_flaps_and_not_one_outage() {
    let core = |reason: &str, minute: u32| {
        format!(
            "{{\"involvedObject\": {{\"kind\": \"Node\", \"name\": \"n\"}}, \"reason\": \"{reason}\", \"count\": 24, \
                 \"firstTimestamp\": \"2026-03-01T00:0{minute}:00Z\", \"lastTimestamp\": \"2026-03-01T23:0{minute}:00Z\"}}\n"
        )
    };
    let newer = |reason: &str, minute: u32| {
        format!(
            "{{\"regarding\": {{\"kind\": \"Node\", \"name\": \"n\"}}, \"reason\": \"{reason}\", \"eventTime\": \"2026-03-01T00:0{minute}:00.5Z\", \
                 \"series\": {{\"count\": 24, \"lastObservedTime\": \"2026-03-01T23:0{minute}:00.5Z\"}}, \"firstTimestamp\": null}}\n"
        )
    };
    for text in [
        core("NodeNotReady", 0) + &core("NodeReady", 1),
        newer("NodeNotReady", 0) + &newer("NodeReady", 1),
    ] {
        let logs = logs(&[("events", &text)]);
        assert_eq!(hours_out(&logs, "n"), [1.0 / 60.0, 1.0 / 60.0]);
        assert_eq!(
            problems(&logs),
            [
                "events:1: seen 24 times, including 22 times between the first and the last occurrence; the others are omitted, because their times are not recorded"
            ]
        );
    }
}

/// Users put arbitrary characters into job names.
#[test]
fn reads_every_form_of_sacct() {
    let shifted = SACCT.replace("Pretrain 70B", "Pretrain|70B");
    let latin = SACCT.replace("Pretrain 70B", "Pr\u{e9}train 70B");
    let latin: Vec<u8> = latin.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    let plain = "JobID           JobName      State               Start                 End NNodes     NodeList  AllocTRES FailedNode\n\
                 ------------ ---------- ---------- ------------------- ------------------- ------ ------------ ---------- ----------\n\
                 101          Pretrain + NODE_FAIL  2026-03-01T00:00:00 2026-03-04T06:00:00      6 gpu[001-006] gres/gpu=+ gpu003\n\
                 103                eval  COMPLETED 2026-03-05T00:00:00 2026-03-05T02:00:00      1       gpu003 gres/gpu=8\n";
    let json = "{\"meta\": {}, \"jobs\": [{\"job_id\": 101, \"name\": \"Pretrain 70B\", \"nodes\": \"gpu[001-006]\", \"allocation_nodes\": 6, \"failed_node\": \"gpu003\",\n\
                \"time\": {\"start\": 1772323200, \"end\": {\"set\": true, \"number\": 1772604000}}, \"state\": {\"current\": [\"NODE_FAIL\"]},\n\
                \"tres\": {\"allocated\": [{\"type\": \"cpu\", \"name\": \"\", \"count\": 9}, {\"type\": \"gres\", \"name\": \"gpu\", \"count\": 48}, {\"type\": \"gres\", \"name\": \"gpu:h100\", \"count\": 48}]}},\n\
                {\"job_id\": 103, \"nodes\": \"gpu003\", \"allocation_nodes\": 1, \"time\": {\"start\": 1772668800, \"end\": 0}, \"state\": {\"current\": \"RUNNING\"}}]}";
    for bytes in [SACCT.as_bytes(), shifted.as_bytes(), &latin, plain.as_bytes(), json.as_bytes()] {
        let logs = read(&[LogFile { name: "jobs", bytes }]);
        let all = problems(&logs);
        assert!(all.iter().all(|problem| problem.contains("no time zone")), "{all:?}");
        assert_eq!((&*logs.jobs[0].id, logs.jobs[0].hosts.len()), ("101", 6));
        assert_eq!(hours_out(&logs, "gpu003"), [18.0], "{}", String::from_utf8_lossy(bytes));
    }
    let typed = SACCT.replace("gres/gpu=48,gres/gpu:h100=48", "gres/gpu:a100=8,gres/gpu:h100=40");
    assert_eq!(logs(&[("jobs", &typed)]).jobs[0].gpus, 48);
    let nameless =
        "JobID|State|Start|End\n1|a|COMPLETED|2026-03-01T00:00:00Z|2026-03-01T01:00:00Z\n";
    let said =
        "jobs:2: 5 fields for 4 columns, and no JobName that could contain a `|`; only this record";
    assert!(problems(&logs(&[("jobs", nameless)]))[0].starts_with(said));
}

/// Tests format 4.3 (separate header line), messages, and the numbers that C prints for a division
/// by zero.
#[test]
fn accepts_inspector_records_without_bandwidth_or_header() {
    let header = "\"header\": {\"id\": \"0x1\", \"rank\": 0, \"n_ranks\": 16, \"nnodes\": 2}, \"metadata\": {\"hostname\": \"h\"}";
    let collective = |kind: &str, rate: &str| {
        format!(
            "\"coll_perf\": {{\"coll\": \"{kind}\", \"coll_msg_size_bytes\": 1024, \"coll_busbw_gbs\": {rate}}}"
        )
    };
    let message =
        "\"p2p_perf\": {\"p2p\": \"Send\", \"p2p_peer\": 8, \"p2p_msg_size_bytes\": 4096}";
    let text = format!(
        "{{{header}, {}}}\n{{{header}, {}}}\n{{{header}, {message}}}\n{{{header}, \"dump_stats\": {{}}}}\n{{{}}}\n{{{}}}\n",
        collective("AllReduce", "inf"),
        collective("AllGather", "\"nan\""),
        collective("ReduceScatter", "-nan"),
        collective("AllReduce", "42.5"),
    );
    let logs = logs(&[("log", &text)]);
    assert_eq!(problems(&logs), Vec::<String>::new());
    let profile = &logs.profiles[0];
    assert_eq!((profile.world, profile.bandwidth[&16]), (Some(16), 42.5e9));
    assert_eq!((profile.exchanged[&16], profile.exchanged[&2]), (2 * 1024 + 2 * 16 * 1024, 4096));
}

#[test]
fn damaged_line_does_not_affect_later_records() {
    let event = |host: &str| {
        format!(
            "{{\"nodeName\": \"{host}\", \"checkName\": \"c\", \"isFatal\": true, \"generatedTimestamp\": 1772323200}}\n"
        )
    };
    let logs = logs(&[("health", &(event("a") + "{\"nodeName\": \"b\", \"che\n" + &event("c")))]);
    assert_eq!(logs.outages.len(), 2);
    assert!(problems(&logs)[0].starts_with("health:2: not JSON: "), "{:?}", problems(&logs));
}

/// In the all-gather, each of 8 ranks contributes 4 MiB.
#[test]
fn recorder_and_profile_agree_about_an_all_gather() {
    let entry = |name: &str, input: u64, output: u64| {
        format!(
            "{{\"process_group\": [\"0\", \"default_pg\"], \"profiling_name\": \"{name}\", \"collective_seq_id\": 1, \"input_sizes\": [[{input}]], \
                 \"input_dtypes\": [\"Float\"], \"output_sizes\": [[{output}]], \"output_dtypes\": \"Float\", \"state\": \"completed\"}}"
        )
    };
    let dump = |entry: &str| {
        format!(
            "{{\"pg_config\": {{\"0\": {{\"name\": \"0\", \"ranks\": \"[0, 1, 2, 3, 4, 5, 6, 7]\"}}}}, \"entries\": [{entry}]}}"
        )
    };
    let kernel = "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllGather\", \"tid\": 20, \"ts\": 1, \"dur\": 5, \"args\": {\"Collective name\": \"_allgather_base\", \
                  \"In msg nelems\": 1048576, \"Out msg nelems\": 8388608, \"dtype\": \"Float\", \"Process Group Ranks\": \"[0, 1, 2, 3, 4, 5, 6, 7]\"}}";
    let profile = format!(
        "{{\"schemaVersion\": 1, \"deviceProperties\": [{{\"name\": \"NVIDIA A100-SXM4-80GB\"}}, {{}}], \"traceEvents\": [{kernel}]}}"
    );
    let bytes = |text: &str| logs(&[("x", text)]).profiles[0].exchanged[&8];
    assert_eq!(bytes(&dump(&entry("nccl:_all_gather_base", 1 << 20, 1 << 23))), 1 << 25);
    assert_eq!(bytes(&dump(&entry("nccl:_reduce_scatter_base", 1 << 23, 1 << 20))), 1 << 25);
    assert_eq!(bytes(&profile), 1 << 25);
    let logs = logs(&[("x", &profile)]);
    assert_eq!(drafted(&logs, "workload.peak_tflops").0, "312");
    assert_eq!(drafted(&logs, "hbd.switch.gpus_per_node").0, "2");
    let sent = dump(&entry("nccl:send 0->1", 100, 100));
    assert_eq!(super::logs(&[("x", &sent)]).profiles[0].exchanged[&2], 400);
}

/// Tests a switch with ports and a central component `cpu`, as InfraGraph's package writes it, and
/// storage ports next to those of the GPUs.
#[test]
fn facts_in_a_known_form_are_neither_absent_nor_guessed() {
    let infra = "devices:\n- name: box\n  components: [{name: xpu, choice: xpu, count: 2, description: AMD INSTINCT MI300X}, {name: nic, choice: nic, count: 2}]\n\
                 - name: switch\n  components: [{name: asic, choice: cpu, count: 1}, {name: port, choice: port, count: 8}]\n\
                 links: [{name: eth, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 100}}}]\n\
                 instances: [{name: host, device: box, count: 2}, {name: leaf, device: switch, count: 1}]\n\
                 edges: [{ep1: {instance: host, component: nic}, ep2: {instance: leaf, component: 'port[0:4]'}, scheme: one2one, link: eth}]\n";
    let logs = logs(&[("infra.yaml", infra)]);
    assert_eq!(drafted(&logs, "dcn.fat_tree.nodes_per_tor").0, "2");
    assert_eq!(drafted(&logs, "dcn.fat_tree.link_rate").0, "100Gbps");
    let why = drafted(&logs, "workload.peak_tflops").1;
    assert!(why.contains("unknown product `xpu AMD INSTINCT MI300X`"), "{why}");

    let net =
        |speed: u32| format!("<pci class=\"0x020700\"><nic><net speed=\"{speed}\"/></nic></pci>");
    let gpu = "<pci class=\"0x030200\" device=\"0x20b0\"><gpu dev=\"0\" sm=\"80\"><nvlink count=\"12\"/></gpu></pci>";
    let topology = format!(
        "<system><cpu>{gpu}{}{}{}</cpu></system>",
        net(200_000),
        net(200_000),
        net(100_000)
    );
    let host = super::logs(&[("topo.xml", &topology)]);
    assert_eq!(drafted(&host, "dcn.fat_tree.link_rate").0, "200Gbps");
    let domain = super::logs(&[("topo.xml", &topology.replacen(gpu, &gpu.repeat(2), 1))]);
    assert_eq!(drafted(&domain, "hbd.switch.edge_rate").0, "2.4Tbps");
}

#[test]
fn fact_in_an_unknown_form_is_not_understood() {
    let notes = "wiring of the racks\nrack 7: leaf-3, 400 Gb/s per port, NVIDIA H100\n";
    let logs = logs(&[("jobs", SACCT), ("wiring.txt", notes)]);
    for (key, field) in [
        ("dcn.fat_tree.nodes_per_tor", "not understood: `leaf` in wiring.txt"),
        ("dcn.fat_tree.link_rate", "not understood: `Gb/s` in wiring.txt"),
        ("workload.peak_tflops", "not understood: `NVIDIA` in wiring.txt"),
    ] {
        let (_, why) = drafted(&logs, key);
        assert!(why.contains(field), "{key}: {why}");
    }
    let alone = super::logs(&[("topology.conf", TOPOLOGY)]);
    assert_eq!(
        drafted(&alone, "dcn.fat_tree.link_rate").1,
        "no log contains the rate of an interface"
    );
}

const MIB: u64 = 1 << 20;
/// Collectives to which each of 8 ranks contributes 1 MiB, as in ASTRA-sim's examples: name,
/// Chakra's `comm_type`, and a rank's size afterwards.
const STEP: [(&str, u8, u64); 4] = [
    ("AllGather", 2, 8 * MIB),
    ("ReduceScatter", 7, MIB / 8),
    ("AllReduce", 0, MIB),
    ("AllToAll", 6, MIB),
];

fn totals(graph: &TaskGraph) -> [u64; 2] {
    let one = |task: &Task| match &task.work {
        TaskWork::Across { kind, ranks, bytes } => {
            let rounds = if *kind == CollectiveKind::AllReduce { 2 } else { 1 };
            [bytes.0, rounds * (ranks.len() as u64 - 1) * bytes.0]
        }
        TaskWork::Transfer { bytes, .. } => [0, bytes.0],
        TaskWork::Compute { .. } => [0, 0],
        other => panic!("{other:?}"),
    };
    graph.tasks().iter().map(one).fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]])
}

fn chakra_stream() -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let mut stream = vec![0];
    for (place, (_, code, _)) in (1u8..).zip(STEP) {
        let [kind, size] =
            [("comm_type", &[code][..]), ("comm_size", b"\x80\x80\x40")].map(|(name, value)| {
                field(10, &[&field(1, name.as_bytes()), &[9 << 3][..], value].concat())
            });
        let node = [&[8, place, 24, 7][..], &kind, &size].concat();
        stream.extend([&[node.len() as u8], &node[..]].concat());
    }
    stream
}

fn goal_text() -> String {
    let rank = |rank: u64| {
        let mut lines = String::new();
        let mut exchange = |place: u64, [to, from]: [u64; 2], bytes: u64| {
            lines += &format!(
                "s{place}: send {bytes}b to {to} tag {place}\nr{place}: recv {bytes}b from {from} tag {place}\n"
            );
        };
        let ring = [(rank + 1) % 8, (rank + 7) % 8];
        for round in 0..7 {
            exchange(round, ring, MIB);
            for place in [7, 14, 21] {
                exchange(place + round, ring, MIB / 8);
            }
            exchange(28 + round, [(rank + round + 1) % 8, (rank + 7 - round) % 8], MIB / 8);
        }
        format!("rank {rank} {{\n{lines}}}\n")
    };
    "num_ranks 8\n".to_owned() + &(0..8).map(rank).collect::<String>()
}

#[test]
fn one_step_in_six_formats_has_one_byte_total() {
    let stream = chakra_stream();
    let chakra = chakra::import(&[&*stream; 8], &[]).unwrap();
    let profile = |rank: u64| {
        let kernel = |(name, _, output): (&str, u8, u64)| {
            format!(
                "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel\", \"ts\": 1.0, \"dur\": 1.0, \"args\": {{\"Collective name\": \"{name}\", \
                     \"In msg nelems\": {}, \"Out msg nelems\": {}, \"dtype\": \"BFloat16\", \"Process Group Ranks\": \"[0, 1, 2, 3, 4, 5, 6, 7]\"}}}}",
                MIB / 2,
                output / 2
            )
        };
        let events = STEP.map(kernel).join(", ");
        format!(
            "{{\"schemaVersion\": 1, \"distributedInfo\": {{\"rank\": {rank}}}, \"traceEvents\": [{events}]}}"
        )
    };
    let profiles: Vec<String> = (0..8).map(profile).collect();
    let files = profiles.iter().map(|text| RankProfile { name: "k", text: text.as_bytes() });
    let kineto = kineto::read(&files.collect::<Vec<_>>()).unwrap().recorded.graph;
    let row = |(name, _, output): (&str, u8, u64)| {
        let whole = output.max(MIB);
        format!("layer -1 1 {}_EP {whole} 1 NONE 0 1 NONE 0 1\n", name.to_ascii_uppercase())
    };
    let rows = STEP.map(row).concat();
    let simai = simai::read(&format!(
        "HYBRID model_parallel_NPU_group: 1 ep: 8 pp: 1 all_gpus: 8\n4\n{rows}"
    ));
    for graph in [&chakra, &kineto, &simai.unwrap().graph] {
        assert_eq!(totals(graph), [11 * MIB, 84 * MIB]);
    }
    assert_eq!(totals(&goal::read(&goal_text()).unwrap().graph)[1], 84 * MIB);
    let entry = |(name, _, output): (&str, u8, u64)| {
        format!(
            "{{\"profiling_name\": \"nccl:{name}\", \"process_group\": [\"0\"], \"input_sizes\": [[{}]], \"output_sizes\": [[{}]], \
                 \"input_dtypes\": [\"Half\"], \"output_dtypes\": [\"Half\"]}}",
            MIB / 2,
            output / 2
        )
    };
    let entries = STEP.map(entry).join(", ");
    let recorder = format!(
        "{{\"pg_config\": {{\"0\": {{\"ranks\": \"[0, 1, 2, 3, 4, 5, 6, 7]\"}}}}, \"entries\": [{entries}]}}"
    );
    let count = |(name, _, output): (&str, u8, u64)| {
        let bytes = if name == "AllToAll" { MIB / 8 } else { output.min(MIB) };
        format!(
            "{{\"header\": {{\"n_ranks\": 8}}, \"coll_perf\": {{\"coll\": \"{name}\", \"coll_msg_size_bytes\": {bytes}}}}}\n"
        )
    };
    for text in [recorder, STEP.map(count).concat()] {
        assert_eq!(logs(&[("x", &text)]).profiles[0].exchanged[&8], 11 * MIB);
    }
}
