// SPDX-License-Identifier: Apache-2.0
//! Recorded steps: what was run is read back and takes as long, waiting is not work, and mistakes have a place.
use lightloom_emulator::training::packets::{self, ExcerptRun, Prove};
use lightloom_emulator::training::replay::{RingReuse, replay};
use lightloom_training::architecture::architecture;
use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use lightloom_training::chrome::trace;
use lightloom_training::longest_path::play;
use lightloom_training::mapping::{Batch, Mapping};
use lightloom_training::recorded::{Recorded, read};
use lightloom_training::step::Job;
use lightloom_units::{Picoseconds, SimTime};
use proptest::prelude::*;

/// A small step with TP, PP and DP, packet by packet.
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
    packets::run(&job, Prove::Nothing, &mut ()).unwrap()
}

fn end(recorded: &Recorded) -> SimTime {
    play(&recorded.graph, &recorded.took).into_iter().map(|span| span.1).max().unwrap()
}

#[test]
fn a_step_that_was_run_is_read_back_and_takes_as_long() {
    let ran = ran();
    let text = trace(&ran.graph, &ran.machine, &ran.spans).to_string();
    let recorded = read(text.as_bytes(), 4).unwrap();
    assert_eq!(recorded.graph.tasks().len(), ran.graph.tasks().len());
    let before = ran.spans.iter().map(|span| span.1).max().unwrap();
    assert_eq!(recorded.recorded, before.since(SimTime::START));
    // Every time as recorded: only the news of an end, one cable long, is not in the trace.
    let longest = end(&recorded).0 as f64 / before.0 as f64;
    assert!((0.99..=1.0).contains(&longest), "{longest}");
    // Communication packet by packet again: the same instant.
    let again = replay(&recorded.graph, &ran.machine, RingReuse::IdleRings, &mut ()).unwrap();
    assert_eq!(again.end, before);
}

/// Two ranks of which the second computes longer; the first waits inside its all-reduce.
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
    let faster = recorded.with_compute(0.5).unwrap();
    assert_eq!(end(&faster).since(SimTime::START), micros(75 + 30));
}

#[test]
fn another_size_of_groups_divides_the_work_and_keeps_the_rest() {
    let ran = ran();
    let text = trace(&ran.graph, &ran.machine, &ran.spans).to_string();
    let recorded = read(text.as_bytes(), 4).unwrap();
    let same = recorded.with_tensor(4, 4).unwrap();
    assert_eq!(same.graph, recorded.graph);
    let network = architecture("khop:3").unwrap();
    let links = cards::accelerator("h100").unwrap().calibration().network;
    let step = |tensor: u32| {
        let other = recorded.with_tensor(4, tensor).unwrap();
        let machine = packets::machine(&network, &links, other.ranks, tensor).unwrap();
        replay(&other.graph, &machine, RingReuse::Never, &mut ()).unwrap().end.0 as f64
    };
    let (four, eight, two) = (step(4), step(8), step(2));
    assert!(eight < four && four < two, "{two} {four} {eight}");
    assert!(eight > four / 2.0, "exchange does not shrink with the group");
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let replaced = |from: &str, to: &str| STRAGGLER.replacen(from, to, 1);
    for (text, expected) in [
        ("{\"traceEvents\": [".to_owned(), "line 1, column 17: EOF"),
        (replaced("\"dur\": 100", "\"dur\": \"x\""), "line 3, column 73: invalid type"),
        ("{\"traceEvents\": []}".to_owned(), "the trace has no complete events"),
        (replaced("all-reduce", "all-sum"), "traceEvents[3] `sum` of rank 0: `collective` all-sum"),
        (replaced("[0, 1]", "[1, 2]"), "traceEvents[3] `sum` of rank 0: `group`"),
        (
            replaced(", \"bytes\": 1048576", ""),
            "traceEvents[3] `sum` of rank 0: communication needs",
        ),
        (
            replaced("\"pid\": 0, \"tid\"", "\"pid\": \"x\", \"tid\""),
            "traceEvents[1] `work` of rank \"x\": `pid` is no rank",
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
    fn no_text_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes, 8);
    }
}
