// SPDX-License-Identifier: Apache-2.0
//! Reuses losses from an earlier result: without new runs for the same months, and as an
//! approximation for other months.

use lightloom_emulator::months::{MonthsResult, Prepared, months};
use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::shipped::no_daemon;
use serde_json::{Value, json};

use super::SMALL;

const SCENARIO: &str = "name: months\non: {fabric: f.yaml}\nspan: 90d\nLOSSES\n\
    failures: {node: {mtbf: 1000h, repair: 6h}}\ntrain: [{job: job, restart: RESTART}]\n";
const SAVED: &str = "{checkpoint: {every: 100, load: 30s}}";

fn scenario(losses: &str, restart: &str) -> String {
    SCENARIO.replace("LOSSES", losses).replace("RESTART", restart)
}

fn read(fabric: &str, text: &str, known: &Value) -> Result<scenario::Scenario, String> {
    let read = &mut |name: &str| {
        let text = if name == "f.yaml" { fabric.to_owned() } else { known.to_string() };
        Ok(NamedFile { name: name.to_owned(), bytes: text.into_bytes() })
    };
    let (scenario, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), read);
    scenario.ok_or_else(|| mistakes.iter().map(ToString::to_string).collect())
}

fn bill(scenario: &scenario::Scenario) -> (MonthsResult, usize) {
    let prepared = Prepared::of(scenario, &no_daemon).unwrap().unwrap();
    let made = std::cell::Cell::new(0);
    let run_cases = |prepared: &Prepared| {
        let cases = prepared.cases();
        made.set(made.get() + cases.len());
        cases.iter().map(|case| prepared.run(case, &no_daemon)).collect()
    };
    let result = months(&prepared, "0..3".parse().unwrap(), &no_daemon, &run_cases).unwrap();
    (result, made.get())
}

#[test]
fn known_losses_give_the_same_bill_without_a_run() {
    let (first, made) = bill(&read(SMALL, &scenario("samples: 3", SAVED), &Value::Null).unwrap());
    assert!(made > 0);
    let known = serde_json::to_value(&first).unwrap();
    let losses = "losses: known.json";
    let (again, made) = bill(&read(SMALL, &scenario(losses, SAVED), &known).unwrap());
    assert_eq!(made, 0);
    assert_eq!((&again.bill, &again.months), (&first.bill, &first.months));
    assert!(!again.losses_from.as_ref().unwrap().stand_in);

    // With twice the replicas on twice the nodes, steps are scaled with their closed forms, and the
    // result records that.
    let larger = SMALL.replace("nodes: 8", "nodes: 16").replace("gpus: 16,", "gpus: 32,");
    let larger = larger.replace("dp: 2", "dp: 4");
    let (stands_in, made) = bill(&read(&larger, &scenario(losses, SAVED), &known).unwrap());
    let from = stands_in.losses_from.as_ref().unwrap();
    assert!(from.stand_in && made == 0, "{from:?}");
    assert_eq!((from.gpus[0], stands_in.jobs[0].gpus), (16, 32));
    let ratio = stands_in.jobs[0].closed_form_seconds / first.jobs[0].closed_form_seconds;
    let steps = stands_in.jobs[0].step_seconds / first.jobs[0].step_seconds;
    assert!((steps / ratio - 1.0).abs() < 1e-9, "{steps} and {ratio}");
}

#[test]
fn bills_a_year_of_16384_gpus_from_known_losses() {
    let (first, _) = bill(&read(SMALL, &scenario("samples: 2", SAVED), &Value::Null).unwrap());
    let known = serde_json::to_value(&first).unwrap();
    let large =
        SMALL.replace("nodes: 8", "nodes: 4160").replace("nodes_per_tor: 4", "nodes_per_tor: 32");
    let large = large.replace("gpus: 16,", "gpus: 16384,").replace("dp: 2", "dp: 2048");
    let year = scenario("losses: known.json", SAVED).replace("span: 90d", "span: 365d");
    let year = year.replace("mtbf: 1000h", "mtbf: 7400h");
    let (result, made) = bill(&read(&large, &year, &known).unwrap());
    assert_eq!((made, result.gpus), (0, 16_640));
    // One of 4,160 nodes fails every 1.8 h.
    let failures = result.months[0].failures as f64;
    assert!((failures / (8760.0 / 1.78) - 1.0).abs() < 0.05, "{failures}");
}

#[test]
fn rejects_losses_that_lack_the_job_or_part() {
    let (first, _) = bill(&read(SMALL, &scenario("samples: 2", SAVED), &Value::Null).unwrap());
    let known = serde_json::to_value(&first).unwrap();
    let refused = |text: &str, known: &Value| read(SMALL, text, known).unwrap_err();
    let of = "losses: known.json";
    let elastic =
        "{elastic: {reform: 1s, start: 1s, rejoin: 1s, checkpoint: {every: 9, load: 1s}}}";
    let mut other = known.clone();
    other["jobs"][0]["job"] = json!("another");
    let mut no_runs = known.clone();
    no_runs["runs"] = json!([]);
    for (text, known, wanted) in [
        (scenario(of, SAVED), &other, "does not contain job `job`"),
        (scenario(of, SAVED), &no_runs, "does not contain a run in which any node fails"),
        (scenario(of, SAVED), &json!({"runs": 7}), "losses cannot be read from"),
        (scenario(of, elastic), &known, "with a different policy"),
        (scenario("losses: known.json\nsamples: 4", SAVED), &known, "no runs are executed"),
    ] {
        let found = refused(&text, known);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
}
