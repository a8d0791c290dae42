// SPDX-License-Identifier: Apache-2.0

use super::{SACCT, TOPOLOGY, logs, problems};
use crate::KINDS;
use crate::clock::time;

fn seconds(text: &str) -> i64 {
    time(text).unwrap().unwrap().seconds
}

#[test]
fn reads_host_switches_from_topology_conf() {
    let logs = logs(&[("x", TOPOLOGY)]);
    assert_eq!(problems(&logs), Vec::<String>::new());
    assert_eq!(logs.hosts.len(), 8);
    assert_eq!(logs.hosts["gpu004"].switches, ["leaf1", "spine"]);
    assert_eq!(logs.hosts["gpu005"].switches, ["leaf2", "spine"]);
    let blocks = super::logs(&[(
        "x",
        "BlockName=b1 Nodes=a[1-2]\nBlockName=b2 Nodes=a[3-4]\nBlockSizes=2\n",
    )]);
    assert_eq!(blocks.hosts["a3"].domain.as_deref(), Some("b2"));
}

#[test]
fn failed_host_is_out_until_its_next_job_starts() {
    let logs = logs(&[("x", SACCT)]);
    assert_eq!(logs.jobs.len(), 4, "steps are parts of jobs");
    assert_eq!(logs.jobs[0].gpus, 48);
    assert_eq!(logs.jobs[1].hosts, ["gpu001", "gpu002", "gpu004", "gpu005", "gpu006", "gpu007"]);
    assert!(logs.jobs[3].end.is_none());
    let [outage] = &logs.outages[..] else { panic!("one") };
    assert_eq!((&*outage.host, outage.start), ("gpu003", seconds("2026-03-04T06:00:00Z")));
    assert_eq!(outage.end, Some(seconds("2026-03-05T00:00:00Z")));
    assert_eq!(outage.place.to_string(), "x:2");
}

#[test]
fn reads_jobs_of_both_acme_clusters() {
    let seren = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
1,u1,2,16,256,Pretrain,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:10:00+08:00,2023-03-02 00:10:00+08:00,86400,600,1382400.0
2,u1,1,8,128,Other,NODE_FAIL,2023-03-01 00:00:00+08:00,2023-03-01 00:10:00+08:00,2023-03-01 00:20:00+08:00,600,600,4800.0
";
    let kalos = "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlc1,u2,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlc2,u2,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,,2023-05-17 11:30:04+00:00,,2023-05-17 11:30:04+00:00,82,12.0,5248.0
";
    let logs = logs(&[("seren.csv", seren), ("kalos.csv", kalos)]);
    assert!(logs.read.iter().all(|log| log.kind == "AcmeTrace job table"), "{:?}", logs.read);
    assert_eq!(logs.jobs.len(), 3, "a job that never began is none");
    assert_eq!((logs.jobs[0].gpus, logs.jobs[0].start), (16, seconds("2023-02-28T16:10:00Z")));
    assert_eq!(logs.jobs[2].place.to_string(), "kalos.csv:2");
    assert_eq!(logs.outages.len(), 1);
    assert_eq!(logs.outages[0].place.to_string(), "seren.csv:3");
}

/// The labels are from Topograph's docs/reference/node-labels.md.
#[test]
fn reads_topograph_labels_of_kubernetes_nodes() {
    let node = |name: &str, leaf: &str| {
        format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Node\",\n \"metadata\": {{\"name\": \"{name}\", \"labels\": {{\"fabric.topograph.run/tier-0\": \"{leaf}\", \
             \"fabric.topograph.run/tier-1\": \"s1\", \"accelerator.topograph.run/domain\": \"nvl1\", \
             \"nvidia.com/gpu.product\": \"NVIDIA-GB200\"}}}},\n \"status\": {{\"capacity\": {{\"cpu\": \"144\", \"nvidia.com/gpu\": \"4\"}}}}}}"
        )
    };
    let list = format!(
        "{{\"kind\": \"List\", \"items\": [\n{},\n{}\n]}}",
        node("w1", "l1"),
        node("w2", "l2")
    );
    let yaml = "apiVersion: v1\nkind: List\nitems:\n- kind: Node\n  metadata:\n    name: w1\n    labels:\n      fabric.topograph.run/tier-0: l1\n      \
                fabric.topograph.run/tier-1: s1\n      accelerator.topograph.run/domain: nvl1\n      nvidia.com/gpu.product: NVIDIA-GB200\n  \
                status: {capacity: {nvidia.com/gpu: \"4\"}}\n";
    for text in [&*list, yaml] {
        let logs = logs(&[("nodes", text)]);
        assert_eq!(problems(&logs), Vec::<String>::new());
        let host = &logs.hosts["w1"];
        assert_eq!(host.switches, ["l1", "s1"]);
        assert_eq!((host.domain.as_deref(), host.gpus), (Some("nvl1"), Some(4)));
        assert_eq!(host.product.as_deref(), Some("NVIDIA-GB200"));
    }
    assert_eq!(
        logs(&[("nodes", &list)]).hosts["w2"].place.as_ref().unwrap().to_string(),
        "nodes:5"
    );
}

/// The API server merges repeated events, but keeps the first and last time.
#[test]
fn node_is_out_from_not_ready_to_ready() {
    let event = |reason: &str, first: &str, last: &str| {
        format!(
            "{{\"involvedObject\": {{\"kind\": \"Node\", \"name\": \"w1\"}}, \"reason\": \"{reason}\", \"message\": \"m\", \
             \"firstTimestamp\": \"{first}\", \"lastTimestamp\": \"{last}\"}}"
        )
    };
    let text = format!(
        "{{\"kind\": \"List\", \"items\": [\n{},\n{},\n{}]}}",
        event("NodeNotReady", "2026-03-01T10:00:00Z", "2026-03-01T10:30:00Z"),
        event("NodeReady", "2026-03-01T09:00:00Z", "2026-03-01T12:00:00Z"),
        event("NodeHasDiskPressure", "2026-03-01T09:00:00Z", "2026-03-01T12:00:00Z"),
    );
    let logs = logs(&[("events.json", &text)]);
    let [outage] = &logs.outages[..] else { panic!("one: {:?}", logs.outages) };
    assert_eq!(outage.start, seconds("2026-03-01T10:00:00Z"));
    assert_eq!(outage.end, Some(seconds("2026-03-01T12:00:00Z")));
    assert_eq!(outage.place.to_string(), "events.json:2");
}

/// Tests events of health_event.proto as JSON, as exported by the database, and as wrapped by the
/// exporter.
#[test]
fn fatal_health_event_ends_with_a_healthy_one_of_its_check() {
    let own = "[
{\"nodeName\": \"n1\", \"checkName\": \"GpuXidError\", \"componentClass\": \"GPU\", \"isFatal\": true, \"generatedTimestamp\": \"2026-03-01T10:00:00.5Z\", \"message\": \"XID 79\"},
{\"nodeName\": \"n1\", \"checkName\": \"GpuXidError\", \"componentClass\": \"GPU\", \"isFatal\": true, \"generatedTimestamp\": \"2026-03-01T10:05:00Z\"},
{\"nodeName\": \"n1\", \"checkName\": \"GpuThermal\", \"componentClass\": \"GPU\", \"isHealthy\": true, \"generatedTimestamp\": \"2026-03-01T10:30:00Z\"},
{\"nodeName\": \"n1\", \"checkName\": \"GpuXidError\", \"componentClass\": \"GPU\", \"isHealthy\": true, \"generatedTimestamp\": \"2026-03-01T11:00:00Z\"}]";
    let database = "{\"_id\": 1, \"healthevent\": {\"nodename\": \"n1\", \"checkname\": \"GpuXidError\", \"componentclass\": \"GPU\", \"isfatal\": true, \"generatedtimestamp\": {\"seconds\": {\"$numberLong\": \"1772359200\"}, \"nanos\": 5}}}
{\"_id\": 2, \"healthevent\": {\"nodename\": \"n1\", \"checkname\": \"GpuXidError\", \"componentclass\": \"GPU\", \"ishealthy\": true, \"generatedtimestamp\": {\"seconds\": 1772362800}}}";
    let exported = "{\"type\": \"x\", \"data\": {\"healthEvent\": {\"nodeName\": \"n1\", \"checkName\": \"GpuXidError\", \"componentClass\": \"GPU\", \"isFatal\": true, \"generatedTimestamp\": \"2026-03-01T10:00:00Z\"}}}
{\"type\": \"x\", \"data\": {\"healthEvent\": {\"nodeName\": \"n1\", \"checkName\": \"GpuXidError\", \"componentClass\": \"GPU\", \"isHealthy\": true, \"generatedTimestamp\": \"2026-03-01T11:00:00Z\"}}}";
    for text in [own, database, exported] {
        let logs = logs(&[("health", text)]);
        let [outage] = &logs.outages[..] else { panic!("one: {logs:?}") };
        assert_eq!((&*outage.host, &*outage.class), ("n1", "GPU/GpuXidError"));
        assert_eq!(outage.start, seconds("2026-03-01T10:00:00Z"));
        assert_eq!(outage.end, Some(seconds("2026-03-01T11:00:00Z")));
    }
}

#[test]
fn reads_groups_sizes_and_hangs_from_a_flight_recorder() {
    let text = "{\"version\": \"2.10\", \"pg_config\": {\"0\": {\"name\": \"0\", \"desc\": \"default_pg\", \"ranks\": \"[0, 1, 2, 3]\"}, \"1\": {\"name\": \"1\", \"desc\": \"mesh_tp\", \"ranks\": \"[0, 1]\"}},
 \"entries\": [{\"process_group\": [\"1\", \"mesh_tp\"], \"profiling_name\": \"nccl:all_reduce\", \"collective_seq_id\": 1, \"input_sizes\": [[3, 4]], \"input_dtypes\": [\"BFloat16\"], \"state\": \"completed\"},
  {\"process_group\": [\"0\", \"default_pg\"], \"profiling_name\": \"nccl:all_reduce\", \"collective_seq_id\": 7, \"input_sizes\": [[5]], \"input_dtypes\": [\"Float\"], \"state\": \"started\"}]}";
    let logs = logs(&[("dump.json", text)]);
    let profile = &logs.profiles[0];
    assert_eq!((profile.world, profile.groups["mesh_tp"]), (Some(4), 2));
    assert_eq!((profile.exchanged[&2], profile.exchanged[&4]), (24, 20));
    assert_eq!(
        problems(&logs),
        [
            "dump.json: nccl:all_reduce number 7 in a group of 4 ranks did not complete; sizes and groups are still used"
        ]
    );
}

#[test]
fn reads_ranks_hosts_and_rates_from_nccl_inspector() {
    let record = |rank: u32, sn: u32| {
        format!(
            "{{\"header\": {{\"id\": \"0x1\", \"rank\": {rank}, \"n_ranks\": 16, \"nnodes\": 2}}, \"metadata\": {{\"hostname\": \"h{}\"}}, \"coll_perf\": {{\"coll\": \"AllReduce\", \
             \"coll_sn\": {sn}, \"coll_msg_size_bytes\": 1024, \"coll_exec_time_us\": 10, \"coll_busbw_gbs\": 42.5}}}}\n",
            rank / 8
        )
    };
    let logs = logs(&[("log", &(record(0, 1) + &record(8, 1)))]);
    let profile = &logs.profiles[0];
    assert_eq!((profile.world, profile.ranks_per_host), (Some(16), Some(8)));
    assert_eq!(profile.bandwidth[&16], 42.5e9);
    assert_eq!(logs.hosts.len(), 2);
}

#[test]
fn reads_the_middle_step_and_exchanges_of_a_profile() {
    let step = |number: u32, micros: f64, cat: &str| {
        format!(
            "{{\"ph\": \"X\", \"cat\": \"{cat}\", \"name\": \"ProfilerStep#{number}\", \"ts\": 0, \"dur\": {micros}}}"
        )
    };
    let kernel = "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllReduce\", \"tid\": 20, \"ts\": 1, \"dur\": 5, \"args\": {\"Collective name\": \"allreduce\", \
                  \"In msg nelems\": 300, \"Out msg nelems\": 300, \"dtype\": \"Float\", \"Process Group Ranks\": \"[0, 1]\", \"Seq\": 4}}";
    let text = format!(
        "{{\"schemaVersion\": 1, \"distributedInfo\": {{\"rank\": 0, \"world_size\": 2, \"pg_config\": [{{\"pg_name\": \"0\", \"pg_desc\": \"default_pg\", \"pg_size\": 2}}]}}, \
         \"traceEvents\": [{}, {}, {}, {}, {kernel}]}}",
        step(1, 900.0, "user_annotation"),
        step(2, 2000.0, "user_annotation"),
        step(3, 1000.0, "user_annotation"),
        step(3, 5.0, "gpu_user_annotation"),
    );
    let logs = logs(&[("rank0.json", &text)]);
    let profile = &logs.profiles[0];
    assert_eq!(profile.step_seconds, Some(0.001));
    assert_eq!((profile.world, profile.groups["default_pg"]), (Some(2), 2));
    assert_eq!(profile.exchanged[&2], 400, "1,200 bytes in three steps");
}

/// The detected kind does not depend on the file name.
#[test]
fn detects_the_kind_of_a_file_from_its_content() {
    let logs = logs(&[("a", TOPOLOGY), ("b", SACCT), ("c", "hello"), ("d", "{}")]);
    let kinds: Vec<&str> = logs.read.iter().map(|log| log.kind).collect();
    assert_eq!(kinds, ["Slurm topology.conf", "sacct"]);
    let unknown: Vec<String> =
        problems(&logs).into_iter().filter(|line| line.contains("not recognised")).collect();
    assert_eq!(unknown.len(), 2, "{unknown:?}");
    assert!(KINDS.iter().all(|kind| unknown[0].contains(kind.name)));
}

/// Tests two racks with two hosts each, as in `infragraph.proto`, with slices and a nested device.
const INFRAGRAPH: &str = "
name: two racks
devices:
- name: dgx
  components: [{name: h100, choice: xpu, count: 8, description: Nvidia H100}, {name: cx7, choice: device, count: 8}]
- name: cx7
  components: [{name: port, choice: port, count: 1}]
- name: tor
  components: [{name: asic, choice: switch, count: 1}, {name: port, choice: port, count: 64}]
links: [{name: eth, physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 200}}}]
instances: [{name: host, device: dgx, count: 4}, {name: leaf, device: tor, count: 2}, {name: spine, device: tor, count: 1}]
edges:
- {ep1: {instance: 'host[:2]', component: 'cx7.port[0]'}, ep2: {instance: 'leaf[0]', component: 'port[0:16]'}, scheme: one2one, link: eth}
- {ep1: {instance: 'leaf[1]', component: 'port[0:16]'}, ep2: {instance: 'host[-2:]', component: 'cx7[0:8].port'}, scheme: one2one, link: eth}
- {ep1: {instance: leaf, component: 'port[32]'}, ep2: {instance: spine, component: 'port[0:2]'}, scheme: many2many, link: eth}
";

#[test]
fn reads_infragraph_hosts_with_their_leaves() {
    let logs = logs(&[("infra.yaml", INFRAGRAPH)]);
    assert_eq!(problems(&logs), Vec::<String>::new());
    assert_eq!(logs.read[0].kind, "InfraGraph");
    assert_eq!(logs.hosts.len(), 4);
    assert_eq!(logs.hosts["host.1"].switches, ["leaf.0", "spine.0"]);
    assert_eq!(logs.hosts["host.2"].switches, ["leaf.1", "spine.0"]);
    assert_eq!(logs.hosts["host.0"].gpus, Some(8));
    let drafted = crate::draft(&logs, &|file| file.to_owned());
    let fabric = &drafted.files.iter().find(|file| file.name == "fabric.yaml").unwrap().text;
    let hbd = "switch: {nodes: 4, gpus_per_node: 8";
    let dcn = "nodes_per_tor: 2, tors_per_domain: 2, oversubscription: 1, link_rate: 200Gbps";
    assert!(fabric.contains(hbd) && fabric.contains(dcn), "{fabric}");
}

#[test]
fn reports_mistakes_of_an_infragraph() {
    for (from, to, error) in [
        ("leaf[0]", "leaf[2]", "`leaf[2]` is not a slice of 2"),
        ("cx7.port[0]", "cx8.port[0]", "device `dgx` has no component `cx8`"),
        (
            "scheme: many2many",
            "scheme: ring",
            "scheme `ring`: only one2one and many2many are supported",
        ),
        ("leaf[1]", "leave[1]", "no instance `leave`"),
    ] {
        let logs = logs(&[("infra.yaml", &INFRAGRAPH.replacen(from, to, 1))]);
        let problems = problems(&logs);
        assert!(problems[0].contains(error), "{problems:?}");
    }
}

#[test]
fn reads_gpus_and_interfaces_from_an_nccl_topology() {
    let text = "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\">
  <pci busid=\"0000:0f:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\"><gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\"><nvlink target=\"0000:07:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>
  <pci busid=\"0000:10:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\"><gpu dev=\"1\" sm=\"90\" rank=\"1\" gdr=\"1\"/></pci>
  <pci busid=\"0000:18:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" port=\"1\"/></nic></pci>
</cpu></system>";
    let found = logs(&[("topo.xml", text)]);
    assert_eq!(problems(&found), Vec::<String>::new());
    let shape = &found.shapes[0];
    assert_eq!((shape.gpus, shape.bits_per_second), (2, Some(400_000_000_000)));
    assert_eq!(shape.product.as_deref(), Some("H100 SXM5 80GB"));
    let empty = logs(&[("topo.xml", "<system version=\"1\"><cpu numaid=\"0\"/></system>")]);
    assert!(problems(&empty)[0].contains("neither <gpu> nor") && empty.say_nothing());
    // Regression: contradictory hosts in two files were accepted silently.
    let both = logs(&[("infra.yaml", INFRAGRAPH), ("topo.xml", text)]);
    let said = "topo.xml: the host has 2 GPUs, but hosts in infra.yaml have 8; 8 is used";
    assert_eq!(problems(&both), [said]);
}
