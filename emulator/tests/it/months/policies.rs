// SPDX-License-Identifier: Apache-2.0
//! Responses of jobs to a lost node under each policy, and policies that a fabric does not support.

use lightloom_emulator::months::{Answer, Cause, Month, Policy, Prepared, month};
use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::shipped::no_daemon;
use lightloom_units::Milliseconds;
use lightloom_units::seed::Seed;

use super::{PartChange, SECOND, SMALL, job, load, lost, node, table};

const CHECKPOINTS: Policy = Policy::restart(10, 30 * SECOND, 0);
const ONCE: [(Cause, i128); 2] = [(Cause::Outage, 2 * SECOND), (Cause::DoneAgain, 3 * SECOND)];

#[test]
fn migrating_job_moves_and_repeats_only_the_current_step() {
    let policy = Policy { answer: Answer::Migrate { takes: 40 * SECOND }, ..CHECKPOINTS };
    let table = table(vec![job("a", 8, policy)], 16, &ONCE, 0);
    let drawn = [node(204_000, 0, true), node(604_000, 0, false)];
    let month = month(&table, &drawn, Milliseconds(1_000_000), Seed(1));
    assert_eq!(lost(&month, Cause::Migration), 8.0 * 40.0);
    assert_eq!(lost(&month, Cause::DoneAgain), 8.0 * 3.0);
    assert_eq!(lost(&month, Cause::CheckpointLoad), 0.0);
}

#[test]
fn in_memory_copies_survive_one_fault_but_not_two() {
    let memory = Answer::InMemory { every: 2, load: 5 * SECOND, write: 0, copies: 2 };
    let table = table(vec![job("a", 8, Policy { answer: memory, ..CHECKPOINTS })], 16, &ONCE, 0);
    // 25.5 steps: one whole step since the last copy, five since the checkpoint.
    let one = [node(204_000, 0, true)];
    let month_of = |drawn: &[PartChange]| month(&table, drawn, Milliseconds(1_000_000), Seed(1));
    let once = month_of(&one);
    assert_eq!(lost(&once, Cause::MemoryLoad), 8.0 * 5.0);
    assert_eq!(lost(&once, Cause::DoneAgain), 8.0 * (3.0 + 8.0));
    // The second node fails while the copy is read, so four more steps are lost, once.
    let twice = month_of(&[node(204_000, 0, true), node(209_000, 1, true)]);
    assert_eq!(lost(&twice, Cause::CheckpointLoad), 8.0 * 30.0);
    assert_eq!(lost(&twice, Cause::DoneAgain), 8.0 * (3.0 + 5.0 * 8.0));
    // A second failure much later finds new copies.
    let later = month_of(&[node(204_000, 0, true), node(504_000, 1, true)]);
    assert_eq!(lost(&later, Cause::CheckpointLoad), 0.0);
    assert_eq!(lost(&later, Cause::MemoryLoad), 8.0 * 10.0);
}

const ELASTIC: Answer =
    Answer::Elastic { reform: 4 * SECOND, start: 50 * SECOND, rejoin: 6 * SECOND, least: 1 };

#[test]
fn elastic_job_runs_with_one_replica_fewer_until_repair() {
    let table = table(vec![job("a", 16, Policy { answer: ELASTIC, ..CHECKPOINTS })], 16, &ONCE, 0);
    let drawn = [node(200_000, 0, true), node(600_000, 0, false)];
    let month = month(&table, &drawn, Milliseconds(1_000_000), Seed(1));
    assert_eq!((month.hits, month.waits), (1, 0));
    // The other node of the replica waits until the repair, and while the replica starts with both.
    assert_eq!(lost(&month, Cause::LeftOut), 4.0 * 400.0 + 8.0 * 50.0);
    assert_eq!(lost(&month, Cause::UnderRepair), 4.0 * 400.0);
    assert_eq!(lost(&month, Cause::Reform), 8.0 * 4.0);
    assert_eq!(lost(&month, Cause::Rejoin), 16.0 * 6.0);
    assert_eq!(lost(&month, Cause::Outage), 8.0 * 2.0);
    assert_eq!(lost(&month, Cause::DoneAgain), 8.0 * 3.0);
    // 450 s minus 9 s of steps with half of the work, in seven eighths of the time.
    let useful = 16.0 * (200.0 + 350.0 - 6.0) + 8.0 * 441.0 * 8.0 / 7.0;
    let found = month.useful as f64 / SECOND as f64;
    assert!((found - useful).abs() < 1e-6, "{found} and {useful}");
}

#[test]
fn elastic_job_takes_a_spare_immediately_and_waits_without_replicas() {
    let jobs = vec![job("a", 16, Policy { answer: ELASTIC, ..CHECKPOINTS })];
    let spare = table(jobs.clone(), 20, &ONCE, 0);
    let drawn = [node(200_000, 0, true), node(600_000, 0, false)];
    let with_spare = month(&spare, &drawn, Milliseconds(1_000_000), Seed(1));
    assert_eq!(lost(&with_spare, Cause::LeftOut), 8.0 * 50.0);
    // Node 4 has replaced node 0, so its failure hits the job and a failure of node 0 does not.
    let again = [node(200_000, 0, true), node(300_000, 0, false), node(500_000, 0, true)];
    assert_eq!(month(&spare, &again, Milliseconds(1_000_000), Seed(1)).hits, 1);
    let again = [node(200_000, 0, true), node(300_000, 0, false), node(500_000, 4, true)];
    assert_eq!(month(&spare, &again, Milliseconds(1_000_000), Seed(1)).hits, 2);
    let none = table(jobs, 16, &ONCE, 0);
    let both = [node(200_000, 0, true), node(300_000, 3, true), node(700_000, 3, false)];
    let month = month(&none, &both, Milliseconds(1_000_000), Seed(1));
    assert_eq!((month.hits, month.waits), (2, 1));
    assert_eq!(lost(&month, Cause::WaitingForNodes), 8.0 * 400.0);
    assert_eq!(lost(&month, Cause::CheckpointLoad), 8.0 * 30.0);
}

fn full(pp: u32) -> String {
    SMALL.replace("nodes: 8", "nodes: 4").replace("dp: 2", &format!("pp: {pp}"))
}

const SAVED: &str = "checkpoint: {every: 10, load: 60s}";
const MIGRATE: &str = "migrate: {takes: 40s, checkpoint: {every: 10, load: 60s}}";
const ELASTIC_KEYS: &str =
    "elastic: {reform: 5s, start: 30s, rejoin: 5s, checkpoint: {every: 10, load: 60s}}";

fn under(restart: &str) -> String {
    format!(
        "name: months\non: {{fabric: f.yaml}}\nspan: 90d\nsamples: 2\nfailures: {{node: {{mtbf: 1000h, repair: 6h}}}}\n\
         train: [{{job: job, restart: {{{restart}}}}}]\n"
    )
}

#[test]
fn rejects_policies_the_fabric_cannot_support() {
    let refused = |fabric: &str, text: &str| {
        let read = &mut |name: &str| {
            Ok(NamedFile { name: name.to_owned(), bytes: fabric.as_bytes().to_vec() })
        };
        let (_, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), read);
        assert!(mistakes.iter().all(|mistake| mistake.place.is_some()), "{mistakes:?}");
        mistakes.iter().map(ToString::to_string).collect::<String>()
    };
    let least = ELASTIC_KEYS.replace("rejoin: 5s", "rejoin: 5s, least: 2");
    let no_span = "name: s\non: {fabric: f.yaml}\ntrain: [{job: job, restart: {RESTART}}]\n";
    for (fabric, text, wanted) in [
        (full(1), under(MIGRATE), "no spare node for job `job`"),
        (full(2), under(MIGRATE), "only one replica"),
        (full(2), under(ELASTIC_KEYS), "only one replica"),
        (full(1), under(&least), "its minimum is 2"),
        (full(1), no_span.replace("RESTART", ELASTIC_KEYS), "this requires `span`"),
        (full(1), under("migrate: {takes: 40s}"), "checkpoint"),
    ] {
        let found = refused(&fabric, &text);
        assert!(found.contains(wanted), "{text}{found}");
    }
    for restart in [SAVED, ELASTIC_KEYS] {
        assert_eq!(refused(&full(1), &under(restart)), "");
    }
    assert_eq!(refused(SMALL, &under(MIGRATE)), "");
}

fn months_under(fabric: &str, restart: &str) -> Vec<Month> {
    let prepared = Prepared::of(&load(fabric, &under(restart)), &no_daemon).unwrap().unwrap();
    let mut table = prepared.table();
    for case in prepared.cases() {
        let run = prepared.run(&case, &no_daemon).unwrap();
        table.add(&case, run.run.place, run.sample);
    }
    let drawn = |seed| prepared.changes(Seed(seed)).unwrap();
    (0..3).map(|seed| month(&table, &drawn(seed), prepared.span().length, Seed(seed))).collect()
}

#[test]
fn each_policy_adds_its_own_causes_to_the_bill() {
    let memory = "in_memory: {every: 2, load: 5s, write: 10ms, checkpoint: {every: 10, load: 60s}}";
    let sum = |months: &[Month], cause: Cause| months.iter().map(|m| lost(m, cause)).sum::<f64>();
    for (restart, own) in [(memory, Cause::MemoryLoad), (MIGRATE, Cause::Migration)] {
        let months = months_under(SMALL, restart);
        assert!(sum(&months, own) > 0.0 && sum(&months, Cause::DoneAgain) > 0.0, "{restart}");
    }
    // Without spares, a job that continues with one replica fewer loses less than one that waits
    // for the repair.
    let (elastic, waits) = (months_under(&full(1), ELASTIC_KEYS), months_under(&full(1), SAVED));
    assert!(sum(&elastic, Cause::LeftOut) > 0.0 && sum(&elastic, Cause::Rejoin) > 0.0);
    let all = |months: &[Month]| months.iter().map(Month::lost_time).sum::<i128>() as f64;
    assert!(all(&elastic) < 0.8 * all(&waits), "{} and {}", all(&elastic), all(&waits));
}
