// SPDX-License-Identifier: Apache-2.0
//! Replays profiles of programs with a known graph.
//!
//! A small model of two hosts with devices runs a program and writes the profile that PyTorch would
//! write. At other network rates, the replay must give the same times as the model.

use std::collections::BTreeMap;

use lightloom_training::graph::TaskWork;
use lightloom_training::kineto;
use lightloom_training::longest_path::play;
use lightloom_units::Picoseconds;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng};
use serde_json::{Value, json};

/// Times are microseconds; stream 2 is for collectives.
#[derive(Clone, Copy)]
enum Call {
    Work(f64),
    Launch(usize, f64),
    Reduce(f64),
    Record(usize),
    /// The first stream waits for the latest record of the second.
    Wait(usize, usize),
    SyncStream(usize),
    SyncRecord(usize),
    SyncDevice,
}

const STREAMS: usize = 3;
const COLLECTIVES: usize = 2;
/// Duration of a call, and minimum time from a launch to the start.
const CALL: f64 = 2.0;
const LATENCY: f64 = 4.0;

fn program(seed: u64) -> Vec<Call> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut calls = vec![Call::Launch(0, 200.0)];
    for _ in 0..30 {
        let stream = random.random_range(0..STREAMS);
        let other = (stream + random.random_range(1..STREAMS)) % STREAMS;
        match random.random_range(0..8) {
            0 => calls.extend([Call::Record(0), Call::Wait(COLLECTIVES, 0)]),
            1 | 2 => calls.push(Call::Reduce(random.random_range(300.0..3000.0))),
            3 => calls.extend([Call::Record(COLLECTIVES), Call::Wait(0, COLLECTIVES)]),
            4 => calls.extend([Call::Record(other), Call::Wait(stream, other)]),
            5 => calls.push(match random.random_range(0..3) {
                0 => Call::SyncDevice,
                1 => Call::SyncStream(stream),
                _ => Call::SyncRecord(other),
            }),
            _ => {}
        }
        calls.push(Call::Launch(random.random_range(0..2), random.random_range(50.0..2000.0)));
        calls.push(Call::Work(random.random_range(1.0..400.0)));
    }
    calls
}

#[derive(Default)]
struct Rank {
    events: Vec<Value>,
    began: Vec<f64>,
    end: f64,
}

/// Collective i ends at `ends[i]` if that is known. Rank 1 has slower host work than rank 0.
fn run(calls: &[Call], rank: u32, ends: &[f64]) -> Rank {
    let mut out = Rank::default();
    let (mut now, mut id) = (0.0, 0u32);
    let (mut free, mut held) = ([0.0f64; STREAMS], [0.0f64; STREAMS]);
    // Per stream, the end of the last recorded work and the number of the record.
    let mut records: BTreeMap<usize, (f64, u32)> = BTreeMap::new();
    for call in calls {
        id += 1;
        let event = |cat: &str, name: &str, tid: usize, (ts, end): (f64, f64), args: Value| {
            json!({"ph": "X", "cat": cat, "name": name, "pid": usize::from(tid < 100), "tid": tid, "ts": ts,
                   "dur": end - ts, "args": args})
        };
        let mut said = |name: &str, span, id: u32| {
            out.events.push(event("cuda_runtime", name, 100, span, json!({"correlation": id})));
        };
        let mut end = now + CALL;
        let mut sync = None;
        match *call {
            Call::Work(micros) => end = now + micros * (1.0 + 0.3 * f64::from(rank)),
            Call::Launch(stream, micros) => {
                said("cudaLaunchKernel", (now, end), id);
                let start = f64::max(now + LATENCY, f64::max(free[stream], held[stream]));
                free[stream] = start + micros;
                let args = json!({"stream": stream, "correlation": id});
                out.events.push(event("kernel", "gemm", stream, (start, free[stream]), args));
            }
            Call::Reduce(_) => {
                said("cudaLaunchKernelExC", (now, end), id);
                let stream = COLLECTIVES;
                let start = f64::max(now + LATENCY, f64::max(free[stream], held[stream]));
                let nth = out.began.len();
                out.began.push(start);
                free[stream] = ends.get(nth).copied().unwrap_or(start).max(start);
                let args = json!({"stream": stream, "correlation": id, "Collective name": "allreduce",
                    "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float",
                    "Process Group Ranks": "[0, 1]", "Seq": nth});
                let name = "ncclDevKernel_AllReduce";
                out.events.push(event("kernel", name, stream, (start, free[stream]), args));
            }
            Call::Record(stream) => {
                said("cudaEventRecord", (now, end), id);
                records.insert(stream, (free[stream], id));
            }
            Call::Wait(stream, other) => {
                let (until, record) = records[&other];
                said("cudaStreamWaitEvent", (now, end), id);
                held[stream] = held[stream].max(until);
                let args = json!({"cuda_sync_kind": "Stream Wait Event", "stream": stream, "wait_on_stream": other,
                    "correlation": id, "wait_on_cuda_event_record_corr_id": record});
                out.events.push(event("cuda_sync", "Stream Wait Event", stream, (now, now), args));
            }
            Call::SyncStream(stream) => {
                end = f64::max(end, free[stream] + CALL);
                said("cudaStreamSynchronize", (now, end), id);
                sync = Some(
                    json!({"cuda_sync_kind": "Stream Sync", "stream": stream, "correlation": id}),
                );
            }
            Call::SyncRecord(stream) => {
                let Some((until, record)) = records.get(&stream).copied() else { continue };
                end = f64::max(end, until + CALL);
                said("cudaEventSynchronize", (now, end), id);
                sync = Some(
                    json!({"cuda_sync_kind": "Event Sync", "stream": -1, "wait_on_stream": stream,
                    "correlation": id, "wait_on_cuda_event_record_corr_id": record}),
                );
            }
            Call::SyncDevice => {
                end = free.into_iter().fold(end, |end, free| end.max(free + CALL));
                said("cudaDeviceSynchronize", (now, end), id);
                sync = Some(
                    json!({"cuda_sync_kind": "Context Sync", "stream": -1, "correlation": id}),
                );
            }
        }
        if let Some(args) = sync {
            out.events.push(event("cuda_sync", "Sync", 99, (now, end), args));
        }
        now = end;
    }
    out.end = free.into_iter().fold(0.0, f64::max);
    out
}

fn truth(calls: &[Call], slower: f64) -> [Rank; 2] {
    let collectives = calls.iter().filter_map(|call| match call {
        Call::Reduce(micros) => Some(micros * slower),
        _ => None,
    });
    let took: Vec<f64> = collectives.collect();
    let mut ends = Vec::new();
    loop {
        let ranks = [run(calls, 0, &ends), run(calls, 1, &ends)];
        let both = ranks[0].began.iter().zip(&ranks[1].began).zip(&took);
        let next: Vec<f64> = both.map(|((a, b), took)| f64::max(*a, *b) + took).collect();
        if next == ends {
            return ranks;
        }
        ends = next;
    }
}

fn replayed(texts: &[String; 2], slower: f64) -> f64 {
    let profiles: Vec<kineto::RankProfile<'_>> =
        texts.iter().map(|text| kineto::RankProfile { name: "r", text: text.as_bytes() }).collect();
    let recorded = kineto::read(&profiles).expect("profiles").recorded;
    let tasks = recorded.graph.tasks().iter().zip(&recorded.took);
    let took: Vec<Picoseconds> = tasks
        .map(|(task, took)| match task.work {
            TaskWork::Across { .. } => Picoseconds((took.0 as f64 * slower) as u64),
            _ => *took,
        })
        .collect();
    let spans = play(&recorded.graph, &took);
    spans.iter().map(|span| span.1.0).max().expect("tasks") as f64 / 1e6
}

#[test]
fn replay_at_another_rate_is_within_one_percent() {
    let mut worst = 0.0f64;
    for seed in 0..40 {
        let calls = program(seed);
        let [a, b] = truth(&calls, 1.0).map(|rank| rank.events);
        let text = |rank: u32, events: Vec<Value>| {
            json!({"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events})
                .to_string()
        };
        let texts = [text(0, a), text(1, b)];
        for slower in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0] {
            let ranks = truth(&calls, slower);
            let expected = ranks[0].end.max(ranks[1].end) - LATENCY;
            let error = (replayed(&texts, slower) / expected - 1.0).abs();
            worst = worst.max(error);
        }
    }
    println!("the worst of 40 programs at 6 rates: {:.2} %", 100.0 * worst);
    assert!(worst < 0.01, "{worst}");
}
