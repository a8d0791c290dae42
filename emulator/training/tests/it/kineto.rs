// SPDX-License-Identifier: Apache-2.0
//! Replays PyTorch profiles on slower networks and compares them with closed forms. Overlapping
//! operations must stay independent.

use lightloom_training::described::{self, StepGraphFile};
use lightloom_training::graph::TaskWork;
use lightloom_training::kineto::{self, ProfiledStep};
use lightloom_training::longest_path::play;
use lightloom_units::Picoseconds;
use serde_json::{Value, json};

/// Microseconds per step with collectives that take `slower` times as long.
fn step(profile: &ProfiledStep, slower: u64) -> f64 {
    let recorded = &profile.recorded;
    let took: Vec<Picoseconds> = recorded
        .graph
        .tasks()
        .iter()
        .zip(&recorded.took)
        .map(|(task, took)| match task.work {
            TaskWork::Across { .. } => *took * slower,
            _ => *took,
        })
        .collect();
    let spans = play(&recorded.graph, &took);
    spans.iter().map(|span| span.1.0).max().expect("tasks") as f64 / 1e6
}

fn event(
    cat: &str,
    name: &str,
    (pid, tid): (u32, u32),
    (ts, dur): (f64, f64),
    args: Value,
) -> Value {
    json!({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})
}

fn read(profiles: &[Value]) -> Result<ProfiledStep, kineto::KinetoError> {
    let texts: Vec<String> = profiles.iter().map(Value::to_string).collect();
    let file = |text: &String| kineto::RankProfile {
        name: "rank.json",
        text: text.clone().leak().as_bytes(),
    };
    kineto::read(&texts.iter().map(file).collect::<Vec<_>>())
}

fn profile(rank: u32, events: Vec<Value>) -> Value {
    json!({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}, "traceEvents": events})
}

fn all_reduce(seq: u64) -> Value {
    json!({"Collective name": "allreduce", "In msg nelems": 80_000_000, "Out msg nelems": 80_000_000, "dtype": "Float",
           "Process Group Ranks": "[0, 1]", "Seq": seq, "stream": 20, "correlation": 200})
}

/// Ten consecutive kernels of 1 ms, and an all-reduce of 1.5 ms on another stream that starts with
/// the second kernel.
fn overlapped() -> Vec<Value> {
    let mut events: Vec<Value> = (0..10)
        .map(|place| {
            let args = json!({"stream": 7, "correlation": 100 + place});
            event(
                "kernel",
                &format!("gemm{place}"),
                (0, 7),
                (1000.0 * f64::from(place), 1000.0),
                args,
            )
        })
        .collect();
    events.push(event(
        "kernel",
        "ncclDevKernel_AllReduce",
        (0, 20),
        (1000.0, 1500.0),
        all_reduce(4),
    ));
    events
}

#[test]
fn slower_network_delays_only_dependent_kernels() {
    let profile = read(&[profile(0, overlapped()), profile(1, overlapped())]).unwrap();
    for slower in [1, 2, 5, 6, 7, 20] {
        // The all-reduce starts when the first kernel ends, and no other kernel waits for it.
        let expected = f64::max(10_000.0, 1000.0 + 1500.0 * slower as f64);
        assert_eq!(step(&profile, slower), expected, "{slower} times slower");
    }
}

/// [`overlapped`] with host calls: the all-reduce waits for the first kernel, and the last kernel
/// waits for the all-reduce.
fn overlapped_with_waits() -> Vec<Value> {
    let mut events = overlapped();
    let call = |name: &str, at: f64, correlation: u32| {
        event("cuda_runtime", name, (9, 9), (at, 1.0), json!({"correlation": correlation}))
    };
    // The host is always ahead of the device.
    events.push(call("cudaLaunchKernel", -100.0, 100));
    events.push(call("cudaEventRecord", -98.0, 300));
    events.push(call("cudaStreamWaitEvent", -96.0, 301));
    events.push(call("cudaLaunchKernelExC", -94.0, 200));
    events.push(call("cudaEventRecord", -92.0, 302));
    events.extend(
        (1..9).map(|place| call("cudaLaunchKernel", -90.0 + f64::from(place), 100 + place)),
    );
    events.push(call("cudaStreamWaitEvent", -80.0, 303));
    events.push(call("cudaLaunchKernel", -78.0, 109));
    for (stream, other, correlation, record) in [(20, 7, 301, 300), (7, 20, 303, 302)] {
        let args = json!({"cuda_sync_kind": "Stream Wait Event", "stream": stream, "wait_on_stream": other,
                          "correlation": correlation, "wait_on_cuda_event_record_corr_id": record});
        events.push(event("cuda_sync", "Stream Wait Event", (0, stream), (-50.0, 0.0), args));
    }
    events
}

#[test]
fn recorded_stream_waits_become_dependencies() {
    let events = overlapped_with_waits();
    let profile = read(&[profile(0, events.clone()), profile(1, events)]).unwrap();
    for slower in [1, 2, 5, 6, 7, 20] {
        let expected = f64::max(9000.0, 1000.0 + 1500.0 * slower as f64) + 1000.0;
        assert_eq!(step(&profile, slower), expected, "{slower} times slower");
    }
}

#[test]
fn launches_after_a_host_wait_depend_on_it() {
    let mut events = overlapped_with_waits();
    let call = |name: &str, (at, dur): (f64, f64), correlation: u32| {
        event("cuda_runtime", name, (9, 9), (at, dur), json!({"correlation": correlation}))
    };
    // The host waits for the communication stream, works for another 7 ms, and launches on a third
    // stream at 9.5 ms.
    events.push(call("cudaStreamSynchronize", (-70.0, 2570.0), 400));
    let args = json!({"cuda_sync_kind": "Stream Sync", "stream": 20, "correlation": 400});
    events.push(event("cuda_sync", "Stream Sync", (0, 20), (0.0, 2500.0), args));
    events.push(call("cudaLaunchKernel", (9500.0, 1.0), 401));
    events.push(event(
        "kernel",
        "third",
        (0, 30),
        (9500.0, 100.0),
        json!({"stream": 30, "correlation": 401}),
    ));
    let profile = read(&[profile(0, events.clone()), profile(1, events)]).unwrap();
    for slower in [1, 2, 20] {
        let exchanged = 1000.0 + 1500.0 * slower as f64;
        let expected = f64::max(f64::max(9000.0, exchanged) + 1000.0, exchanged + 7000.0 + 100.0);
        assert_eq!(step(&profile, slower), expected, "{slower} times slower");
    }
}

/// Two ranks over gloo in the format of PyTorch's CPU profiler: forward on one thread, backward on
/// another, an all-reduce in parallel, and the optimizer after both.
fn gloo(rank: u32) -> Value {
    let mut events = vec![
        event("user_annotation", "ProfilerStep#2", (5, 1), (0.0, 460.0), json!({})),
        event("cpu_op", "aten::linear", (5, 1), (0.0, 100.0), json!({"External id": 1})),
        event("cpu_op", "aten::addmm", (5, 1), (10.0, 80.0), json!({"External id": 2})),
        event("user_annotation", "Optimizer.step#SGD.step", (5, 1), (400.0, 50.0), json!({})),
        event("cpu_op", "aten::_foreach_add_", (5, 1), (400.0, 50.0), json!({"External id": 9})),
    ];
    events.extend((1..4).map(|place| {
        let at = (100.0 * f64::from(place), 100.0);
        event(
            "cpu_op",
            "autograd::engine::evaluate_function: AddmmBackward0",
            (5, 2),
            at,
            json!({}),
        )
    }));
    let args = json!({"External id": 7, "Input Dims": [[1024, 256]], "Input type": ["float"]});
    events.push(event("user_annotation", "gloo:all_reduce", (5, 3), (200.0, 150.0), args));
    json!({"schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}, "traceEvents": events})
}

#[test]
fn replays_a_cpu_profile_over_gloo() {
    let profile = read(&[gloo(0), gloo(1)]).unwrap();
    assert_eq!((profile.collectives, profile.unknown, profile.missing.len()), (1, 0, 0));
    let tasks = profile.recorded.graph.tasks();
    let bytes = tasks.iter().find_map(|task| match task.work {
        TaskWork::Across { bytes, .. } => Some(bytes.0),
        _ => None,
    });
    assert_eq!(bytes, Some(4 * 1024 * 256));
    assert_eq!(profile.recorded.recorded, Picoseconds::from_micros(450));
    for slower in [1, 2, 3] {
        let expected = f64::max(400.0, 200.0 + 150.0 * slower as f64) + 50.0;
        assert_eq!(step(&profile, slower), expected, "{slower} times slower");
    }
}

#[test]
fn gloo_call_with_details_represents_its_collective() {
    let mut args = all_reduce(4);
    args["External id"] = 7.into();
    let events = vec![
        event("cpu_op", "aten::linear", (5, 1), (0.0, 100.0), json!({})),
        event("cpu_op", "c10d::allreduce_", (5, 1), (100.0, 55.0), json!({})),
        event("cpu_op", "record_param_comms", (5, 1), (102.0, 50.0), args),
        event("cpu_op", "aten::add", (5, 1), (160.0, 40.0), json!({})),
    ];
    let profile = read(&[profile(0, events.clone()), profile(1, events)]).unwrap();
    assert_eq!((profile.collectives, profile.unknown), (1, 0));
    assert_eq!(step(&profile, 1), 200.0);
    assert_eq!(step(&profile, 3), 300.0);
}

/// The host marks steps of 1 ms after a first one of 0.2 ms; the device needs 1 ms for each.
#[test]
fn step_of_a_lagging_device_is_its_period() {
    let mut events = Vec::new();
    for nth in 0..4u32 {
        let begin = if nth == 0 { 0.0 } else { f64::from(nth) * 1000.0 - 800.0 };
        let marked = if nth == 0 { 200.0 } else { 1000.0 };
        let correlated = json!({"correlation": nth + 1});
        let mark = format!("ProfilerStep#{nth}");
        events.extend([
            event("user_annotation", &mark, (5, 1), (begin, marked), json!({})),
            event(
                "cuda_runtime",
                "cudaLaunchKernel",
                (5, 1),
                (begin + 1.0, 4.0),
                correlated.clone(),
            ),
            event("kernel", "gemm", (0, 7), (10.0 + 1000.0 * f64::from(nth), 1000.0), correlated),
        ]);
    }
    let step = read(&[json!({"schemaVersion": 1, "traceEvents": events})]).unwrap().recorded;
    assert_eq!(step.steps, 4);
    assert!(
        (step.step_seconds(step.recorded) - 1e-3).abs() < 1e-9,
        "{}",
        step.step_seconds(step.recorded)
    );
}

#[test]
fn reads_categories_of_older_profiles() {
    let mut events = overlapped();
    for event in &mut events {
        event["cat"] = "Kernel".into();
    }
    let profile = read(&[profile(0, events.clone()), profile(1, events)]).unwrap();
    assert_eq!(step(&profile, 1), 10_000.0);
}

#[test]
fn rejects_collectives_numbered_differently_between_ranks() {
    let with = |rank: u32, seq: u64| {
        let args = all_reduce(seq);
        profile(rank, vec![event("kernel", "ncclDevKernel_AllReduce", (0, 20), (0.0, 9.0), args)])
    };
    assert!(read(&[with(0, 4), with(1, 4)]).is_ok());
    let error = read(&[with(0, 4), with(1, 5)]).unwrap_err().to_string();
    assert!(
        error.contains("all-reduce 4 of ranks [0, 1]: the files of ranks [1] lack this"),
        "{error}"
    );
}

#[test]
fn explains_a_collective_missing_on_one_rank() {
    let with = |rank: u32, key: &str, value: Value| {
        let mut args = all_reduce(4);
        args[key] = value;
        profile(rank, vec![event("kernel", "ncclDevKernel_AllReduce", (0, 20), (0.0, 9.0), args)])
    };
    for (key, value, expected) in [
        (
            "Process Group Ranks",
            json!("[1, 2]"),
            "rank 1 recorded it with ranks [1, 2]: `Process Group",
        ),
        (
            "Process Group Ranks",
            json!("[1, 4294967295]"),
            "traceEvents[0] of rank 1 is a collective",
        ),
        ("In msg nelems", json!(i64::MAX), "traceEvents[0] of rank 1 is a collective whose size,"),
        (
            "In msg nelems",
            json!(-4),
            "traceEvents[0] of rank 1 is a collective whose size, type or",
        ),
        ("Seq", json!(5), "lack this collective; record the same steps on all ranks"),
    ] {
        let error = read(&[with(0, "Seq", json!(4)), with(1, key, value)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn rejects_excessive_times_and_ranks_with_their_location() {
    let long = |dur: f64| vec![event("kernel", "gemm", (0, 7), (0.0, dur), json!({}))];
    for (profile, expected) in [
        (profile(0, long(1e30)), "traceEvents[0] `gemm`: `dur` 1000000000000000000000000000000 is"),
        (profile(0, long(-5.0)), "traceEvents[0] `gemm`: `dur` -5 is not a time in microseconds"),
        (profile(u32::MAX, long(1.0)), "has rank or size 4294967295, but at most 1000000 ranks"),
    ] {
        let error = read(&[profile]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn rejected_profile_error_lists_its_contents() {
    let python = event("python_function", "train.py(7): step", (5, 1), (0.0, 9.0), json!({}));
    let error = read(&[profile(0, vec![python])]).unwrap_err().to_string();
    assert!(error.contains("the file has 1 of `python_function`; record with"), "{error}");
    let inspector = "{\"header\": {\"rank\": 0}, \"metadata\": {}, \"coll_perf\": {\"coll\": \"AllReduce\"}}\n{}\n";
    let file = StepGraphFile { name: "nccl.log", bytes: inspector.as_bytes() };
    let error = described::read_recorded(&[file], None).unwrap_err().to_string();
    assert!(error.contains("the key `traceEvents` is missing"), "{error}");
}

#[test]
fn matches_gloo_collectives_to_calls_in_any_start_order() {
    let with = |rank: u32, starts: [f64; 2]| {
        let mut profile = gloo(rank);
        let events = profile["traceEvents"].as_array_mut().unwrap();
        events.pop();
        for (place, (size, start)) in [1024u64, 2048].into_iter().zip(starts).enumerate() {
            let args = json!({"Input Dims": [[[size]], []], "Input type": ["TensorList", ""]});
            let at = 190.0 + 5.0 * place as f64;
            events.push(event("cpu_op", "c10d::allreduce_", (5, 1), (at, 1.0), args));
            let args = json!({"Input Dims": [[size]], "Input type": ["float"]});
            let at = (start, 100.0);
            events.push(event("user_annotation", "gloo:all_reduce", (5, 3), at, args));
        }
        profile
    };
    let profile = read(&[with(0, [200.0, 201.0]), with(1, [201.0, 200.0])]).unwrap();
    assert_eq!((profile.collectives, profile.unknown), (2, 0));
}

/// The profiler stopped before the last collective, which has neither shapes nor an end.
#[test]
fn truncated_collective_takes_the_size_of_its_call() {
    let cut = |rank: u32| {
        let mut profile = gloo(rank);
        let events = profile["traceEvents"].as_array_mut().unwrap();
        let last = events.last_mut().unwrap();
        last["dur"] = 0.into();
        last["args"] = json!({"External id": 7});
        let args =
            json!({"Input Dims": [[[1024, 256]], [], []], "Input type": ["TensorList", "", ""]});
        events.push(event("cpu_op", "c10d::allreduce_", (5, 1), (190.0, 5.0), args));
        events.push(event("cpu_op", "aten::detach", (5, 1), (210.0, 1.0), json!({})));
        profile
    };
    let profile = read(&[cut(0), gloo(1)]).unwrap();
    assert_eq!((profile.collectives, profile.unknown), (1, 0));
    assert_eq!((step(&profile, 1), step(&profile, 3)), (450.0, 700.0));
}

#[test]
fn streamed_and_in_memory_profiles_are_equal() {
    let text = profile(0, overlapped_with_waits()).to_string();
    let mut profiles = kineto::Profiles::default();
    profiles.read("rank.json", std::io::Cursor::new(text.as_bytes()), 1).unwrap();
    let streamed = profiles.finish().unwrap().recorded;
    let held = read(&[profile(0, overlapped_with_waits())]).unwrap().recorded;
    assert_eq!((streamed.graph, streamed.took), (held.graph, held.took));
}
