// SPDX-License-Identifier: Apache-2.0
//! Measures the time of comparisons. Prints one line per case: name, processor seconds over all
//! threads, wall-clock seconds.
//!
//! `cargo bench -p lightloom-study --bench compare`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a bench reads files and the clock")]

use std::time::Instant;

use lightloom_fabric::trace::{FaultTrace, Observation, Synthesis};
use lightloom_study::architecture::{Architecture, Cluster, parse};
use lightloom_study::compare::{FaultSource, Study, compare};
use lightloom_units::seed::Seed;

const PUBLIC_TRACE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/fault_trace.json");

fn main() {
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global().expect("the first pool");
    let eight =
        ["khop:2", "khop:3", "big-switch", "nvl:36", "nvl:72", "nvl:576", "tpuv4", "sip-ring"];
    timed("8 designs x TP 8,16,32,64 x 100 samples x 348 days at 2,880 GPUs", 3.0, || {
        let cluster = Cluster { nodes: 720, gpus_per_node: 4 };
        run(&trace_of_a_year(), cluster, &eight, &[8, 16, 32, 64], 100)
    });
    let five = ["khop:2", "khop:3", "big-switch", "nvl:72", "tpuv4"];
    timed("5 designs x TP 32 x one year at 131,072 GPUs", 10.0, || {
        let cluster = Cluster { nodes: 32_768, gpus_per_node: 4 };
        let year = Synthesis { days: 365.25, ..Synthesis::published(Seed(1)) };
        let trace = year.with_servers(16_384).trace();
        println!("  {} faults of {} servers", trace.faults.len(), trace.servers);
        run(&FaultSource::Trace(trace), cluster, &five, &[32], 1)
    });
}

fn trace_of_a_year() -> FaultSource {
    let Ok(bytes) = std::fs::read(PUBLIC_TRACE) else {
        println!("  no ../shared/data: a synthetic trace of the same size");
        return FaultSource::Trace(Synthesis::published(Seed(1)).trace());
    };
    let trace = FaultTrace::read(&bytes, Observation::default());
    FaultSource::Trace(trace.expect("the public trace is well formed"))
}

fn run(source: &FaultSource, cluster: Cluster, designs: &[&str], tp: &[u32], samples: u64) {
    let architectures: Vec<Box<dyn Architecture>> =
        designs.iter().map(|name| parse(name).expect("a known design")).collect();
    let samples = source.samples(cluster, samples, Seed(1)).expect("the trace fits the cluster");
    let study = Study { cluster, architectures: &architectures, tp, jobs: &[], samples: &samples };
    let changes: usize = samples.iter().map(|sample| sample.changes().len()).sum();
    let rows = compare(&study, &|_| ());
    println!("  {changes} changes of nodes in {} samples; {} rows", samples.len(), rows.len());
}

fn timed(what: &str, most_seconds: f64, work: impl FnOnce()) {
    let (clock, processor) = (Instant::now(), cpu_seconds());
    work();
    let (clock, processor) = (clock.elapsed().as_secs_f64(), cpu_seconds() - processor);
    println!(
        "{what}: {processor:.2} s of processor time, {clock:.2} s on the clock (target {most_seconds} s)"
    );
}

/// Returns the processor time of this process so far, in seconds with a resolution of 0.01.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in brackets: state is field 3, user and system ticks are fields 14 and 15.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
