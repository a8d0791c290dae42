// SPDX-License-Identifier: Apache-2.0
//! Exchanges in profiles and traces: all are read, disagreements between ranks are reported with
//! both places, and the parts of a step scale separately.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use lightloom_collective::CollectiveKind;
use lightloom_training::chakra;
use lightloom_training::graph::TaskWork;
use lightloom_training::kineto::{self, ProfiledStep};
use lightloom_training::longest_path::play;
use lightloom_training::recorded::Scales;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use serde_json::{Value, json};

/// `elements` floats in a group of this size, on stream 20 from 100 µs.
fn exchange(name: &str, elements: [u64; 2], ranks: &str, more: Value) -> Value {
    let mut args = json!({"Collective name": name, "In msg nelems": elements[0], "Out msg nelems": elements[1], "dtype": "Float",
                          "Process Group Name": "7", "Process Group Ranks": ranks, "stream": 20});
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_X", "pid": 0, "tid": 20, "ts": 100.0, "dur": 50.0, "args": args})
}

fn profile(rank: u32, groups: Value, events: Vec<Value>) -> Value {
    json!({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 64, "pg_config": groups}, "traceEvents": events})
}

fn read(profiles: &[Value]) -> Result<ProfiledStep, kineto::KinetoError> {
    let texts: Vec<String> = profiles.iter().map(Value::to_string).collect();
    let files = texts.iter().map(|text| kineto::RankProfile { name: "r", text: text.as_bytes() });
    kineto::read(&files.collect::<Vec<_>>())
}

fn work(events: [Value; 2]) -> TaskWork {
    let [a, b] = events;
    let step = read(&[profile(0, json!([]), vec![a]), profile(1, json!([]), vec![b])]).unwrap();
    assert_eq!((step.collectives, step.unknown), (1, 0));
    let tasks = step.recorded.graph.tasks().iter().map(|task| task.work.clone());
    tasks.clone().find(|work| !matches!(work, TaskWork::Compute { .. })).expect("an exchange")
}

/// PyTorch truncates lists of ranks after 30 entries: the members are in `pg_config`, or follow
/// from the stride.
#[test]
fn group_of_more_than_30_ranks_keeps_its_members() {
    let listed = |ranks: &[u32]| {
        let shown: Vec<String> = ranks[..30].iter().map(u32::to_string).collect();
        format!("[{}, ...]", shown.join(", "))
    };
    let members = |groups: Value, ranks: &[u32], more: Value| {
        let event = exchange("allreduce", [4, 4], &listed(ranks), more);
        let step = read(&[profile(ranks[0], groups, vec![event])]).unwrap();
        step.recorded.graph.tasks().iter().find_map(|task| match &task.work {
            TaskWork::Across { ranks, .. } => Some(ranks.clone()),
            _ => None,
        })
    };
    let uneven: Vec<u32> = (0..40).map(|rank| rank * rank).collect();
    let config =
        |ranks: Value| json!([{"pg_name": "1", "ranks": [0, 1]}, {"pg_name": "7", "ranks": ranks}]);
    for ranks in [json!(uneven), json!(format!("{uneven:?}"))] {
        let found = members(config(ranks), &uneven, json!({"Group size": 40}));
        assert_eq!(found.as_ref(), Some(&uneven));
    }
    let even: Vec<u32> = (0..40).map(|rank| 8 * rank + 3).collect();
    assert_eq!(members(json!([]), &even, json!({"Group size": 40})).as_ref(), Some(&even));
    assert_eq!(members(json!([]), &uneven, json!({"Group size": 40})), None);
}

#[test]
fn every_operation_of_a_profile_is_an_exchange() {
    let both = |name: &str, elements: [u64; 2]| {
        [0, 1].map(|_| exchange(name, elements, "[0, 1]", json!({"Seq": 3})))
    };
    let across = |kind, bytes| TaskWork::Across { kind, ranks: vec![0, 1], bytes: Bytes(bytes) };
    assert_eq!(work(both("broadcast", [16, 16])), across(CollectiveKind::Broadcast, 64));
    assert_eq!(work(both("_allgather_base", [16, 32])), across(CollectiveKind::AllGather, 128));
    assert_eq!(work(both("reduce_scatter", [32, 16])), across(CollectiveKind::ReduceScatter, 128));
    assert_eq!(work(both("all_to_all", [32, 32])), across(CollectiveKind::AllToAll, 128));
    assert_eq!(work(both("barrier", [1, 1])), across(CollectiveKind::AllReduce, 1));
    let send = exchange("send", [10, 0], "[0, 1]", json!({"Dst Rank": 1, "Seq": 5}));
    let receive = exchange("recv", [0, 10], "[0, 1]", json!({"Src Rank": "0", "Seq": 9}));
    assert_eq!(work([send, receive]), TaskWork::Transfer { from: 0, to: 1, bytes: Bytes(40) });
}

/// A mixture of experts without dropped tokens: each rank sends a different number.
#[test]
fn uneven_all_to_all_preserves_bytes_sent_by_each_rank() {
    let half = |elements, parts: &str| {
        exchange("all_to_allv", elements, "[0, 1]", json!({"Seq": 3, "In split size": parts}))
    };
    let pairs = work([half([10, 12], "[4, 6]"), half([12, 10], "[6, 6]")]);
    let expected = [16, 24, 24, 24];
    assert!(matches!(&pairs, TaskWork::Pairs { bytes, .. } if **bytes == expected), "{pairs:?}");
    let profiles = [[10, 12], [12, 11]].map(|elements| half(elements, "[1, ...]"));
    let [a, b] = profiles;
    let error = read(&[profile(0, json!([]), vec![a]), profile(1, json!([]), vec![b])]);
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "all-to-all 3 of ranks [0, 1]: the ranks send 88 B, but receive 92 B");
}

#[test]
fn disagreeing_ranks_are_rejected_with_both_locations() {
    let refused = |a: Value, b: Value| {
        let read = read(&[profile(0, json!([]), vec![a]), profile(1, json!([]), vec![b])]);
        read.unwrap_err().to_string()
    };
    let with =
        |name: &str, elements, seq: u64| exchange(name, elements, "[0, 1]", json!({"Seq": seq}));
    let error = refused(with("broadcast", [8, 8], 3), with("broadcast", [9, 9], 3));
    assert!(
        error.contains("traceEvents[0]: rank 1 has 36 B")
            && error.contains("r: traceEvents[0] has 32 B"),
        "{error}"
    );
    let error = refused(with("broadcast", [8, 8], 3), with("allreduce", [8, 8], 3));
    assert!(
        error.contains("recorded all-reduce instead")
            || error.contains("recorded broadcast instead"),
        "{error}"
    );
    let send = exchange("send", [8, 0], "[0, 1]", json!({}));
    let error = refused(send, with("allreduce", [8, 8], 3));
    assert!(error.contains("lack this collective"), "{error}");
}

/// Three steps of 1 ms: the host launches a kernel of 300 µs and a copy of 100 µs at the start of
/// each and waits for both.
fn marked() -> Vec<Value> {
    let mut events = Vec::new();
    let mut add = |cat: &str, name: String, ids: [u32; 2], at: f64, dur: f64, correlation: u32| {
        let args = json!({"correlation": correlation, "stream": ids[1]});
        events.push(json!({"ph": "X", "cat": cat, "name": name, "pid": ids[0], "tid": ids[1], "ts": at, "dur": dur, "args": args}));
    };
    for step in 0..5u32 {
        let at = 1000.0 * f64::from(step);
        if (1..4).contains(&step) {
            add("user_annotation", format!("ProfilerStep#{step}"), [9, 9], at, 1000.0, 0);
            add("gpu_user_annotation", format!("ProfilerStep#{step}"), [0, 7], at + 5.0, 400.0, 0);
        }
        add("cuda_runtime", "cudaLaunchKernel".into(), [9, 9], at + 1.0, 2.0, 10 * step + 1);
        add("cuda_runtime", "cudaMemcpyAsync".into(), [9, 9], at + 4.0, 2.0, 10 * step + 2);
        add("kernel", "gemm".into(), [0, 7], at + 5.0, 300.0, 10 * step + 1);
        add("gpu_memcpy", "Memcpy".into(), [0, 7], at + 305.0, 100.0, 10 * step + 2);
        add(
            "cuda_runtime",
            "cudaStreamSynchronize".into(),
            [9, 9],
            at + 10.0,
            396.0,
            10 * step + 3,
        );
    }
    events
}

fn seconds(step: &ProfiledStep, scales: Scales) -> f64 {
    let scaled = step.recorded.scaled(scales).unwrap();
    let spans = play(&scaled.graph, &scaled.took);
    let end = spans.iter().map(|span| span.1.since(SimTime::START)).max().expect("tasks");
    scaled.step_seconds(end)
}

/// Regression: the whole trace was one step, and a faster chip also halved the host's time.
#[test]
fn step_markers_limit_the_steps_and_parts_scale_separately() {
    let step = read(&[json!({"schemaVersion": 1, "traceEvents": marked()})]).unwrap();
    assert_eq!(step.recorded.steps, 3);
    let micros = |kernel, copy, host| 1e6 * seconds(&step, Scales { kernel, copy, host });
    let near =
        |found: f64, expected: f64| assert!((found - expected).abs() < 3.0, "{found} {expected}");
    near(micros(1.0, 1.0, 1.0), 1000.0);
    near(micros(0.5, 1.0, 1.0), 850.0);
    near(micros(1.0, 2.0, 1.0), 1100.0);
    near(micros(1.0, 1.0, 0.5), 700.0);
    assert_eq!(
        step.recorded.time_of(lightloom_training::recorded::TimedPart::Copy),
        Picoseconds::from_micros(300)
    );
}

/// With attributes of kinds 9 (int64) and 29 (text), in the form of `et_def.proto`.
fn node(id: u64, kind: u64, attributes: &[(&str, u64)], group: &str) -> Vec<u8> {
    fn varint(mut value: u64, out: &mut Vec<u8>) {
        while value >= 128 {
            out.push(value as u8 | 128);
            value >>= 7;
        }
        out.push(value as u8);
    }
    fn field(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
        varint(number << 3 | 2, out);
        varint(bytes.len() as u64, out);
        out.extend(bytes);
    }
    let mut message = vec![8];
    varint(id, &mut message);
    message.push(24);
    varint(kind, &mut message);
    let mut attribute = |name: &str, fill: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        field(1, name.as_bytes(), &mut bytes);
        fill(&mut bytes);
        field(10, &bytes, &mut message);
    };
    for (name, value) in attributes {
        attribute(name, &|out| {
            varint(9 << 3, out);
            varint(*value, out);
        });
    }
    attribute("pg_name", &|out| field(29, group.as_bytes(), out));
    let mut out = Vec::new();
    varint(message.len() as u64, &mut out);
    out.extend(message);
    out
}

fn stream(nodes: &[Vec<u8>]) -> Vec<u8> {
    [vec![0], nodes.concat()].concat()
}

fn collective(id: u64, code: u64, size: u64, group: &str) -> Vec<u8> {
    node(id, 7, &[("comm_type", code), ("comm_size", size)], group)
}

fn import(streams: &[Vec<u8>]) -> Result<Vec<TaskWork>, String> {
    let streams: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
    let graph = chakra::import(&streams, &[]).map_err(|error| error.to_string())?;
    Ok(graph.tasks().iter().map(|task| task.work.clone()).collect())
}

/// `comm_size` is a rank's input: the shard of an all-gather.
#[test]
fn chakra_sizes_are_inputs() {
    let of = |code: u64| {
        let all = import(&[1, 2].map(|_| stream(&[collective(1, code, 600, "g")]))).unwrap();
        all[0].clone()
    };
    let across = |kind, bytes| TaskWork::Across { kind, ranks: vec![0, 1], bytes: Bytes(bytes) };
    assert_eq!(of(0), across(CollectiveKind::AllReduce, 600));
    assert_eq!(of(2), across(CollectiveKind::AllGather, 1200));
    assert_eq!(of(5), across(CollectiveKind::Broadcast, 600));
    assert_eq!(of(6), across(CollectiveKind::AllToAll, 600));
    assert_eq!(of(7), across(CollectiveKind::ReduceScatter, 600));
    let uneven = import(&[800, 400].map(|size| stream(&[collective(1, 6, size, "g")]))).unwrap();
    assert!(matches!(&uneven[0], TaskWork::Pairs { bytes, .. } if **bytes == [400, 400, 200, 200]));
}

#[test]
fn disagreeing_chakra_ranks_are_rejected_with_both_nodes() {
    let refused = |a: &[Vec<u8>], b: &[Vec<u8>]| import(&[stream(a), stream(b)]).unwrap_err();
    let reduce = |id, size| collective(id, 0, size, "g");
    let message =
        |kind, size| node(3, kind, &[("comm_src", 0), ("comm_dst", 1), ("comm_size", size)], "");
    for (a, b, expected) in [
        (
            &[reduce(1, 8), reduce(2, 8)][..],
            &[reduce(1, 8)][..],
            "all-reduce number 2 of group `g`: recorded by rank 0 as node 2, but the file of rank 1 has \
             no such node",
        ),
        (
            &[reduce(1, 8)],
            &[reduce(4, 9)],
            "all-reduce number 1 of group `g`: 8 B on rank 0, node 1, but 9 B on rank 1, node 4",
        ),
        (
            &[reduce(1, 8)],
            &[collective(1, 2, 8, "g")],
            "recorded by rank 0 as node 1, but the file of rank 1 has no such node",
        ),
        (&[collective(1, 0, 8, "")], &[], "all-reduce number 1 of all ranks: recorded by rank 0"),
        (
            &[message(5, 8)],
            &[],
            "message number 1 from rank 0 to rank 1 with tag 0: recorded by rank 0",
        ),
        (&[message(5, 8)], &[message(6, 9)], "8 B on rank 0, node 3, but 9 B on rank 1, node 3"),
    ] {
        let error = refused(a, b);
        assert!(error.contains(expected), "{error}");
    }
}
