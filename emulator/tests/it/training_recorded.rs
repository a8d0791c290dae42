// SPDX-License-Identifier: Apache-2.0
//! Recorded steps: a recorded run is read back and takes the same time, waiting is not work, and
//! errors have a location.
use lightloom_emulator::training::packets::{self, ExcerptRun};
use lightloom_emulator::training::replay::{RingReuse, replay};
use lightloom_training::architecture::architecture;
use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use lightloom_training::chrome::trace;
use lightloom_training::graph::TaskGraph;
use lightloom_training::longest_path::play;
use lightloom_training::mapping::{Batch, Mapping};
use lightloom_training::recorded::{Recorded, Scales, read};
use lightloom_training::step::Job;

use lightloom_units::{Picoseconds, SimTime};
use proptest::prelude::*;

fn ran() -> ExcerptRun {
    let mut model = cards::model("llama-3.1-8b").unwrap();
    model.layers = 4;
    let card = cards::accelerator("h100").unwrap();
    let mapping = Mapping { tensor: 4, pipeline: 2, data: 2, ..Mapping::ONE_GPU };
    let job = Job {
        model: &model,
        mapping,
        batch: Batch { sequences: 8, tokens: 512 },
        compute: &card.compute(),
        network: &architecture("khop:3").unwrap(),
        calibration: &card.calibration(),
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
    };
    packets::run(&job, &mut ()).unwrap()
}

fn end(recorded: &Recorded) -> SimTime {
    play(&recorded.graph, &recorded.took).into_iter().map(|span| span.1).max().unwrap()
}

#[test]
fn exported_run_replays_in_the_same_time() {
    let ran = ran();
    let text = trace(&ran.graph, &ran.machine, &ran.spans).to_string();
    let recorded = read(text.as_bytes(), 4).unwrap();
    assert_eq!(recorded.graph.tasks().len(), ran.graph.tasks().len());
    let before = ran.spans.iter().map(|span| span.1).max().unwrap();
    assert_eq!(recorded.recorded, before.since(SimTime::START));
    // All times are as recorded, except for the report of an end, which takes one cable delay and
    // is not in the trace.
    let longest = end(&recorded).0 as f64 / before.0 as f64;
    assert!((0.99..=1.0).contains(&longest), "{longest}");
    // Run the communication packet by packet as well. The end equals a run with full link rates, because a trace has no link shares.
    let bare = TaskGraph::new(ran.graph.tasks().to_vec()).unwrap();
    let [bare, again] = [&bare, &recorded.graph]
        .map(|graph| replay(graph, &ran.machine, RingReuse::IdleRings, &mut ()).unwrap().end);
    assert_eq!(again, bare);
}

/// Two ranks; the second computes longer, and the first waits in its all-reduce.
const STRAGGLER: &str = r#"{"traceEvents": [
  {"name": "process_name", "ph": "M", "pid": 0},
  {"name": "work", "ph": "X", "pid": 0, "tid": "gpu", "ts": 0, "dur": 100, "args": {"id": "a"}},
  {"name": "work", "ph": "X", "pid": 1, "tid": "gpu", "ts": 0, "dur": 150, "args": {"id": "a"}},
  {"name": "sum", "ph": "X", "pid": 0, "tid": "gpu", "ts": 100, "dur": 80,
   "args": {"collective": "all-reduce", "group": [0, 1], "bytes": 1048576}},
  {"name": "sum", "ph": "X", "pid": 1, "tid": "gpu", "ts": 150, "dur": 30,
   "args": {"collective": "all-reduce", "group": [0, 1], "bytes": 1048576}}
]}"#;

#[test]
fn waiting_for_a_straggler_is_not_communication() {
    let micros = Picoseconds::from_micros;
    let recorded = read(STRAGGLER.as_bytes(), 8).unwrap();
    assert_eq!((recorded.ranks, recorded.recorded), (2, micros(180)));
    assert_eq!(end(&recorded).since(SimTime::START), micros(180));
    let faster = recorded.scaled(Scales { kernel: 0.5, copy: 1.0, host: 1.0 }).unwrap();
    assert_eq!(end(&faster).since(SimTime::START), micros(75 + 30));
}

#[test]
fn locates_unreadable_parts_of_a_trace() {
    let replaced = |from: &str, to: &str| STRAGGLER.replacen(from, to, 1);
    for (text, expected) in [
        ("{\"traceEvents\": [".to_owned(), "line 1, column 17: the file ends"),
        (replaced("\"dur\": 100", "\"dur\": \"x\""), "line 3, column 73: expected a number"),
        ("{\"traceEvents\": []}".to_owned(), "the trace has no complete events"),
        (
            replaced("all-reduce", "all-sum"),
            "traceEvents[3] `sum` of rank 0: unknown `collective` all-sum",
        ),
        (replaced("[0, 1]", "[1, 2]"), "traceEvents[3] `sum` of rank 0: `group`"),
        (
            replaced(", \"bytes\": 1048576", ""),
            "traceEvents[3] `sum` of rank 0: communication needs",
        ),
        (
            replaced("\"pid\": 0, \"tid\"", "\"pid\": \"x\", \"tid\""),
            "traceEvents[1] `work` of rank \"x\": `pid` is not a rank",
        ),
        (
            replaced("\"id\": \"a\"", "\"after\": [\"b\"]"),
            "traceEvents[1] `work` of rank 0: it waits for `b`",
        ),
        (replaced("\"dur\": 100", "\"dur\": -1"), "traceEvents[1] `work` of rank 0: `dur` -1"),
    ] {
        let error = read(text.as_bytes(), 8).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
}

proptest! {
    #[test]
    fn trace_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes, 8);
    }
}
