// SPDX-License-Identifier: Apache-2.0
//! Jobs train, hosts send and nodes fail in one run under the shipped daemon.

use std::path::Path;

use lightloom_emulator::outcome::{Outcome, StageName};
use lightloom_emulator::scenario::file::{NamedFile, load};

use crate::scenes::run_read;

fn trained(faults: &str, control: &str) -> Outcome {
    let what = "train:\n  - {job: pretrain, steps: 1}\n  - {job: finetune, steps: 2}\ntraffic:\n  \
                - {name: storage, run: permutation, hosts: [n14, n15], bytes: 64MiB}\n";
    emulated("job-64.yaml", what, faults, control)
}

fn emulated(fabric: &str, what: &str, faults: &str, control: &str) -> Outcome {
    let text = format!(
        "kind: scenario\nversion: 2\nname: twin\non: {{fabric: {fabric}}}\nseed: 1\n{what}faults: [{faults}]\n\
         control: {control}\n"
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies");
    #[expect(clippy::disallowed_methods, reason = "a test reads shipped files")]
    let mut neighbour = |name: &str| -> Result<NamedFile, String> {
        let bytes = std::fs::read(folder.join(name)).map_err(|error| error.to_string())?;
        Ok(NamedFile { name: name.to_owned(), bytes })
    };
    let (scenario, mistakes) = load("twin.yaml", text.as_bytes(), &mut neighbour);
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    run_read(&scenario, 1).1
}

#[test]
fn training_job_continues_after_a_bypass_by_the_real_daemon() {
    let shipped = trained("{part: n1, at: 100ms}", "lightloomd");
    let daemon = shipped.lightloomd.as_ref().unwrap();
    assert!(daemon.violations.is_empty(), "{:?}", daemon.violations);
    assert_eq!((daemon.bypasses, daemon.false_bypasses), (1, 0));
    let fault = &shipped.faults[0];
    let stages: Vec<StageName> = fault.timeline.iter().map(|one| one.stage).collect();
    assert_eq!(stages, StageName::ALL);
    assert!(shipped.steps.of_jobs().iter().all(|step| step.end.is_some()));
    let [first, ..] = shipped.steps.of_jobs() else { panic!("no step") };
    let why = first.why.as_ref().unwrap();
    let waited = fault.restored.unwrap().since(fault.at.unwrap());
    assert!(why.fault.get().abs_diff(waited.get()) <= 1, "{} is not {waited}", why.fault);

    // Before the fault, and for groups that share nothing with it, the two control planes give the
    // same result.
    let assumed = trained("{part: n1, at: 100ms}", "{assumed: {detection_delay: 1ms}}");
    let ends = |outcome: &Outcome, job: &str| {
        let steps = outcome.steps.of_jobs().iter().filter(|step| step.job == job);
        steps.map(|step| (step.end, step.end_without_faults)).collect::<Vec<_>>()
    };
    assert_eq!(ends(&shipped, "finetune"), ends(&assumed, "finetune"));
    assert_ne!(ends(&shipped, "pretrain"), ends(&assumed, "pretrain"));
    assert!(ends(&shipped, "finetune").iter().all(|(end, calm)| end == calm));
}

#[test]
fn both_control_planes_show_equal_steps_without_faults() {
    let [shipped, assumed] = ["lightloomd", "{assumed: {}}"].map(|control| trained("", control));
    assert_eq!(shipped.steps, assumed.steps);
}

#[test]
fn ring_is_bypassed_while_an_optical_switch_is_unreachable() {
    let faults =
        "{part: ocs0, at: 100ms}, {part: n1, at: 120ms}, {part: control, at: 125ms, lasts: 50ms}";
    let what = "train: [{job: pretrain, steps: 1}]\n";
    let outcome = emulated("job-64-circuits.yaml", what, faults, "lightloomd");
    let daemon = outcome.lightloomd.as_ref().unwrap();
    assert!(daemon.violations.is_empty(), "{:?}", daemon.violations);
    assert_eq!((daemon.bypasses, daemon.committed), (1, 1), "{daemon:?}");
    assert!(outcome.steps.of_jobs().iter().all(|step| step.end.is_some()));
}
