//! How long a fabric file takes to read and check, and how much memory: 131,072 GPUs in both forms.
//!
//! `cargo bench -p lightloom-fabric --bench fabric_file` prints each figure beside its target and
//! fails when one is missed. Time is the median of several runs; memory is the peak of what the
//! allocator gave out during one run, the file's own bytes included.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench reads the clock and prints"
)]

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lightloom_fabric::{document, file};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const RUNS: usize = 9;

struct Target {
    what: &'static str,
    time: Duration,
    megabytes: f32,
}

fn main() -> ExitCode {
    let generator = b"name: bench\nhbd: {khop: {nodes: 16384, gpus_per_node: 8, k: 3}}\n";
    let mut met = measure(
        &Target {
            what: "generator form, 131,072 GPUs",
            time: Duration::from_millis(20),
            megabytes: 64.0,
        },
        generator,
        131_072,
    );
    let explicit = explicit_form(16_384, 3);
    let lines = explicit.lines().count();
    println!("explicit form: {lines} lines, {} bytes", explicit.len());
    met &= measure(
        &Target {
            what: "explicit form, 131,072 GPUs",
            time: Duration::from_secs(1),
            megabytes: 150.0,
        },
        explicit.as_bytes(),
        131_072,
    );
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every node and every fibre of a ring, one a line, in the deployment order of its generator form.
fn explicit_form(nodes: u32, k: u8) -> String {
    let header =
        format!("name: bench\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 8, k: {k}}}}}\n");
    let (fabric, _) = file::load("bench", header.as_bytes());
    let ring = fabric.expect("the generator form is good").hbd;
    let mut text = format!("name: bench\nhbd: {{khop: {{gpus_per_node: 8, k: {k}}}}}\nnodes:\n");
    for position in 0..nodes {
        let node = ring.node_at(lightloom_fabric::khop::Position(position));
        writeln!(text, "  {node}:").expect("writing to a string succeeds");
    }
    text.push_str("links:\n");
    for fibre in ring.fibres() {
        let (a, b) = ring.ports(fibre);
        let (a, b) = (file::Endpoint(a), file::Endpoint(b));
        writeln!(text, "  - endpoints: [\"{a}\", \"{b}\"]").expect("writing to a string succeeds");
    }
    text
}

fn measure(target: &Target, bytes: &[u8], gpus: u64) -> bool {
    let mut times = Vec::new();
    let mut peak: f32 = 0.0;
    for _ in 0..RUNS {
        ALLOCATOR.reset_peak_usage();
        let start = Instant::now();
        let (fabric, mistakes) = file::load("bench.yaml", bytes);
        times.push(start.elapsed());
        peak = peak.max(ALLOCATOR.peak_usage_as_mb());
        let shown = document::render(&mistakes, document::Style::Plain);
        assert_eq!(fabric.map(|fabric| fabric.hbd.gpus()), Some(gpus), "{shown}");
    }
    times.sort_unstable();
    let time = times[RUNS / 2];
    let met = time <= target.time && peak <= target.megabytes;
    println!(
        "{}: {:.2} ms (target {} ms), peak {peak:.1} MB (target {} MB): {}",
        target.what,
        time.as_secs_f64() * 1e3,
        target.time.as_millis(),
        target.megabytes,
        if met { "met" } else { "MISSED" },
    );
    met
}
