// SPDX-License-Identifier: Apache-2.0
//! Measures time and memory of reading and checking fabric files: 131,072 GPUs in both forms, and
//! malicious files, which must be rejected within 0.5 s and 64 MB.
//!
//! `cargo bench -p lightloom-fabric --bench fabric_file` prints each figure next to its target and
//! fails if one is missed. Time is the median processor time of several runs, so that other load
//! does not affect it. Memory is the peak of all allocations during one run, including the contents
//! of the file.

#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use cpu_time::ProcessTime;
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
    let generator = b"kind: fabric\nversion: 2\nname: bench\nhbd: {khop: {nodes: 16384, gpus_per_node: 8, k: 3}}\n";
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
    for (what, bytes) in nasty() {
        met &= refuse(what, &bytes);
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn explicit_form(nodes: u32, k: u8) -> String {
    let header = format!(
        "kind: fabric\nversion: 2\nname: bench\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 8, k: {k}}}}}\n"
    );
    let (fabric, _) = file::load("bench", header.as_bytes());
    let ring = fabric.expect("the generator form is good").hbd;
    let mut text = format!(
        "kind: fabric\nversion: 2\nname: bench\nhbd: {{khop: {{gpus_per_node: 8, k: {k}}}}}\nnodes:\n"
    );
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
        let start = ProcessTime::now();
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

/// Returns files up to the size limit that maximise the load on each part of the reader.
fn nasty() -> Vec<(&'static str, Vec<u8>)> {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let items = [below.as_str(); 9].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{items}]").expect("writing to a string succeeds");
    }
    let numbered = |count: usize, line: fn(usize) -> String| -> Vec<u8> {
        (0..count).flat_map(|index| line(index).into_bytes()).collect()
    };
    let repeated = |text: &str| text.repeat((16 << 20) / text.len()).into_bytes();
    vec![
        ("alias bomb", bomb.into_bytes()),
        ("100,000 nested lists", "[".repeat(100_000).into_bytes()),
        ("100,000 nested mappings", "{a: ".repeat(100_000).into_bytes()),
        ("16 MiB of items", repeated("- a\n")),
        ("16 MiB of escapes", [b"[".to_vec(), repeated("\"\\n\",")].concat()),
        ("a million unknown keys", numbered(490_000, |index| format!("k{index}: 1\n"))),
        ("the same key again and again", numbered(490_000, |_| "a: 1\n".to_owned())),
        ("a million anchors", numbered(1_000_000, |index| format!("- &a{index} x\n"))),
        ("16 MiB of comments", repeated("#\n")),
        ("a number of 16 MiB", [b"name: ".to_vec(), repeated("9")[6..].to_vec()].concat()),
        ("text without its end", [b"\"".to_vec(), repeated("a\n")[2..].to_vec()].concat()),
        (
            "100,000 jobs too many",
            numbered(100_000, |index| {
                match index {
                0 => "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 4, gpus_per_node: 4, k: 2}}\njobs:\n".to_owned(),
                index => format!("- {{name: j{index}, gpus: 8, tp: 8}}\n"),
            }
            }),
        ),
        ("1 GB", Vec::new()),
    ]
}

fn refuse(what: &str, bytes: &[u8]) -> bool {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage_as_mb() - bytes.len() as f32 / 1e6;
    let start = ProcessTime::now();
    let mistakes = if bytes.is_empty() {
        let gigabyte = std::io::Read::take(std::io::repeat(b'a'), 1 << 30);
        let refused = document::take("bench.yaml", None, gigabyte);
        vec![*refused.expect_err("a gigabyte is too much")]
    } else {
        let (fabric, mistakes) = file::load("bench.yaml", bytes);
        assert!(fabric.is_none(), "{what} is taken for good");
        mistakes
    };
    let shown = document::render(&mistakes, document::Style::Plain);
    let time = start.elapsed();
    let peak = ALLOCATOR.peak_usage_as_mb() - before;
    let met = time <= Duration::from_millis(500) && peak <= 64.0;
    let first = shown.lines().next().unwrap_or_default();
    println!(
        "{what}: refused in {:.0} ms, peak {peak:.1} MB (targets 500 ms, 64 MB): {} ({first:.60})",
        time.as_secs_f64() * 1e3,
        if met { "met" } else { "MISSED" },
    );
    met
}
