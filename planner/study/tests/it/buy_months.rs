// SPDX-License-Identifier: Apache-2.0
//! Checks months of jobs on a design against a closed form, conservation of GPU time, and a second
//! implementation (`months.py`).

use std::io::Write;
use std::process::{Command, Stdio};

use lightloom_fabric::trace::{Health, Timeline, TraceTime};
use lightloom_planner::goodput::{Answer, Cause, Policy};
use lightloom_study::architecture::{Cluster, FaultPolicy, parse};
use lightloom_study::buy::{Arrival, History, Rules, SlowExchange, SlowPart, Spent, run};
use lightloom_units::id::NodeId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;
use serde_json::{Value, json};

const MINUTE: u64 = 60_000;
const DAY: u64 = 1_440 * MINUTE;
const SECOND: i128 = 1_000_000_000_000;
const CLUSTER: Cluster = Cluster { nodes: 15, gpus_per_node: 4 };

fn rules(tp: u32) -> Rules {
    Rules {
        tp,
        policy: FaultPolicy::Regroup,
        spares: 1,
        stretch: 1.0,
        step: 10 * SECOND,
        job: Policy::restart(360, 600 * SECOND, 120 * SECOND),
        least: 0.5,
        outage: 0,
    }
}

/// With one job and plenty of spare nodes, Daly's renewal formula applies.
#[test]
fn exponential_faults_match_the_renewal_formula() {
    let (nodes, used) = (4_000_u32, 1_000_u32);
    let cluster = Cluster { nodes, gpus_per_node: 4 };
    let mut random = Seed(5).stream("renewal", 0);
    // A fault hits the job with probability used/healthy, so the cluster has nodes/used times as
    // many faults as the job. Nodes return immediately, which keeps this share constant.
    let job_mtbf = 6.0 * 60.0 * MINUTE as f64;
    let mean = job_mtbf * f64::from(used) / f64::from(nodes);
    let window = 40_000 * DAY / 10;
    let (mut at, mut intervals) = (0.0, Vec::new());
    while at < window as f64 {
        at += -(1.0 - random.random::<f64>()).ln() * mean;
        let start = at as u64;
        intervals.push((
            NodeId(random.random_range(0..nodes)),
            TraceTime(start),
            TraceTime(start + 1),
        ));
    }
    let faults = Timeline::from_intervals(nodes, TraceTime(window), intervals);
    let hits = faults.changes().iter().map(|_| random.random::<f64>()).collect();
    let arrivals = vec![Arrival { at_ms: 0, gpus: used * 4, work_ms: window * 2 }];
    let history = History { faults, hits, arrivals, slow: Vec::new() };
    let rules = rules(4);
    let spent = run(parse("big-switch").unwrap().as_ref(), cluster, &rules, &history).unwrap();
    let ours = spent.useful as f64 / spent.allocated as f64;
    let rate = 1.0 / job_mtbf;
    let [every, write, load] = [60, 2, 10].map(|minutes| (minutes * MINUTE) as f64);
    let expected = (rate * load).exp() / rate * ((rate * (every + write)).exp() - 1.0);
    let formula = every / expected;
    println!(
        "useful {ours:.5}, renewal formula {formula:.5}, {} interruptions",
        spent.interruptions
    );
    assert!((ours / formula - 1.0).abs() < 0.01, "{ours} {formula}");
}

fn drawn(seed: u64) -> History {
    let mut random = Seed(seed).stream("small", 0);
    let window = 3 * DAY;
    let intervals: Vec<_> = (0..random.random_range(0..25))
        .map(|_| {
            let start = random.random_range(0..window);
            let end = start + random.random_range(1..900 * MINUTE);
            (NodeId(random.random_range(0..CLUSTER.nodes)), TraceTime(start), TraceTime(end))
        })
        .collect();
    let faults = Timeline::from_intervals(CLUSTER.nodes, TraceTime(window), intervals);
    let hits = faults.changes().iter().map(|_| random.random::<f64>()).collect();
    let mut arrivals: Vec<Arrival> = (0..random.random_range(1..12))
        .map(|_| Arrival {
            at_ms: random.random_range(0..window),
            gpus: 8 * random.random_range(1..=5),
            work_ms: random.random_range(MINUTE..2_000 * MINUTE),
        })
        .collect();
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    let slow = (0..random.random_range(0..6))
        .map(|_| {
            let from_ms = random.random_range(0..window);
            let until_ms = from_ms + random.random_range(1..900 * MINUTE);
            let exchange =
                if random.random() { SlowExchange::Inside } else { SlowExchange::Between };
            SlowPart {
                from_ms,
                until_ms,
                place: random.random(),
                slower: random.random(),
                exchange,
            }
        })
        .collect();
    History { faults, hits, arrivals, slow }
}

fn drawn_answer(random: &mut Stream) -> Answer {
    let mut seconds = |most: i128| random.random_range(1..most) * SECOND;
    let [load, takes, reform, rejoin] = [900, 300, 200, 100].map(&mut seconds);
    match random.random_range(0..4) {
        0 => Answer::Restart,
        1 => {
            let every = [3, 100, 500][random.random_range(0..3)];
            Answer::InMemory { every, load, write: SECOND / 10, copies: 2 }
        }
        2 => Answer::Migrate { takes },
        _ => Answer::Elastic { reform, start: 0, rejoin, least: 1 },
    }
}

fn drawn_case(random: &mut Stream) -> (&'static str, u32, FaultPolicy) {
    let cases = [
        ("big-switch", 60, FaultPolicy::Regroup),
        ("dgx", 8, FaultPolicy::Regroup),
        ("nvl:12", 12, FaultPolicy::Regroup),
        ("nvl:20", 20, FaultPolicy::Backup),
        ("nvl:30", 30, FaultPolicy::Backup),
        ("nvl:20", 20, FaultPolicy::ReducedTp),
    ];
    cases[random.random_range(0..cases.len())]
}

fn month(history: &History, rules: &Rules, island: u32) -> Value {
    let seconds = |ps: i128| ps as f64 / 1e12;
    let answer = match rules.job.answer {
        Answer::Restart => json!({"kind": "restart"}),
        Answer::InMemory { every, load, write, copies } => json!({
            "kind": "in_memory", "every": every, "load": seconds(load), "write": seconds(write), "copies": copies,
        }),
        Answer::Migrate { takes } => json!({"kind": "migrate", "takes": seconds(takes)}),
        Answer::Elastic { reform, rejoin, .. } => {
            json!({"kind": "elastic", "reform": seconds(reform), "rejoin": seconds(rejoin)})
        }
    };
    let of_ms = |ms: u64| ms as f64 / 1e3;
    let changes = history.faults.changes().iter().zip(&history.hits).map(|(change, hit)| {
        json!([of_ms(change.at.0), change.node.0, change.health == Health::Faulty, hit])
    });
    let arrivals = history.arrivals.iter().map(|job| {
        let work = (job.work_ms as f64 * rules.stretch).round() as u64;
        json!([of_ms(job.at_ms), job.gpus, of_ms(work)])
    });
    let slow = history.slow.iter().map(|part| {
        json!([
            of_ms(part.from_ms),
            of_ms(part.until_ms),
            part.place,
            part.slower,
            if part.exchange == SlowExchange::Inside { "inside" } else { "between" }
        ])
    });
    json!({
        "slow": slow.collect::<Vec<_>>(), "nodes": CLUSTER.nodes, "gpus_per_node": CLUSTER.gpus_per_node, "island": island, "tp": rules.tp,
        "policy": rules.policy, "spares": rules.spares, "window": of_ms(history.faults.window().0),
        "step": seconds((rules.step as f64 * rules.stretch).round() as i128), "every": rules.job.every,
        "write": seconds(rules.job.write), "load": seconds(rules.job.load), "outage": seconds(rules.outage),
        "least": rules.least, "answer": answer,
        "changes": changes.collect::<Vec<_>>(), "arrivals": arrivals.collect::<Vec<_>>(),
    })
}

fn accounts(spent: &Spent) -> Vec<(&'static str, f64)> {
    let of = |causes: &[Cause]| spent.lost_for(causes) as f64 / 1e12;
    vec![
        ("useful", spent.useful as f64 / 1e12),
        ("redone", of(&[Cause::DoneAgain])),
        (
            "restarting",
            of(&[
                Cause::Outage,
                Cause::CheckpointLoad,
                Cause::MemoryLoad,
                Cause::Migration,
                Cause::Reform,
                Cause::Rejoin,
            ]),
        ),
        ("checkpoint", of(&[Cause::CheckpointWrite, Cause::MemoryWrite])),
        ("slower", of(&[Cause::SlowerSteps])),
        ("waiting", of(&[Cause::WaitingForNodes])),
        ("idle", of(&[Cause::IdleSpares])),
        ("fragmented", of(&[Cause::InNoGroup])),
        ("faulty", of(&[Cause::UnderRepair])),
        ("finished", f64::from(spent.finished)),
        ("interruptions", spent.interruptions as f64),
        ("stops", spent.stops as f64),
    ]
}

fn replayed(months: &[Value]) -> Option<Vec<Value>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/months.py");
    let python =
        Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut python) = python else {
        println!("skipped: no python3");
        return None;
    };
    let text = serde_json::to_string(months).unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn two_hundred_months_match_a_python_replay() {
    let cases: Vec<(Value, Spent)> = (0..200)
        .map(|seed| {
            let mut random = Seed(seed).stream("rules", 0);
            let (design, island, policy) = drawn_case(&mut random);
            let rules = Rules {
                policy,
                spares: random.random_range(1..=2),
                stretch: 1.0 + random.random::<f64>(),
                job: Policy { every: 270, answer: drawn_answer(&mut random), ..rules(8).job },
                outage: random.random_range(0..60) * SECOND,
                ..rules(8)
            };
            let history = drawn(seed);
            let spent = run(parse(design).unwrap().as_ref(), CLUSTER, &rules, &history).unwrap();
            (month(&history, &rules, island), spent)
        })
        .collect();
    let (months, ours): (Vec<Value>, Vec<Spent>) = cases.into_iter().unzip();
    let Some(theirs) = replayed(&months) else { return };
    let mut worst = 0.0_f64;
    for (seed, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let all = ours.total() as f64 / 1e12;
        for (name, figure) in accounts(ours) {
            let other = theirs[name].as_f64().unwrap();
            let apart = (figure - other).abs() / all;
            worst = worst.max(apart);
            assert!(apart <= 1e-9, "seed {seed}, {name}: {figure} {other}\n{}", months[seed]);
        }
    }
    println!("200 months, at most {worst:.1e} of all GPU-seconds apart");
}

#[test]
fn every_gpu_picosecond_is_in_one_account() {
    for design in ["khop:2", "khop:3", "khop:2:spare", "nvl:20", "sip-ring", "dgx"] {
        for seed in 0..40 {
            let design = parse(design).unwrap();
            let mut random = Seed(seed).stream("answers", 0);
            for policy in design.fault_policies() {
                let history = drawn(seed);
                let job = Policy { answer: drawn_answer(&mut random), ..rules(8).job };
                let rules = Rules { policy: *policy, stretch: 1.37, job, ..rules(8) };
                let spent = run(design.as_ref(), CLUSTER, &rules, &history).unwrap();
                let all = i128::from(CLUSTER.gpus()) * i128::from(history.faults.window().0);
                assert_eq!(spent.total(), all * 1_000_000_000, "{design:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn no_job_waits_when_the_load_fits() {
    let window = 30 * DAY;
    let arrivals = (0..60)
        .map(|number| Arrival {
            at_ms: number * 12 * 60 * MINUTE,
            gpus: 8 * (1 + number as u32 % 3),
            work_ms: 20 * 60 * MINUTE,
        })
        .collect();
    let faults = Timeline::from_intervals(CLUSTER.nodes, TraceTime(window), []);
    let history = History { faults, hits: Vec::new(), arrivals, slow: Vec::new() };
    let spent = run(parse("big-switch").unwrap().as_ref(), CLUSTER, &rules(8), &history).unwrap();
    assert_eq!((spent.lost_for(&[Cause::WaitingForNodes]), spent.stops), (0, 0));
    assert!(spent.finished > 55);
}

/// One job uses 40 of 60 GPUs for a day, and a job of 48 GPUs waits. A job of 16 GPUs may run only
/// if it ends within the day; otherwise it would delay the large job.
#[test]
fn backfills_short_jobs_without_delaying_a_large_one() {
    let finished_in = |work_ms: u64, window: u64| {
        let arrivals = [(0, 40, DAY), (1, 48, DAY), (2, 16, work_ms)]
            .map(|(at_ms, gpus, work_ms)| Arrival { at_ms, gpus, work_ms });
        let faults = Timeline::from_intervals(CLUSTER.nodes, TraceTime(window), []);
        let arrivals = arrivals.to_vec();
        let history = History { faults, hits: Vec::new(), arrivals, slow: Vec::new() };
        let design = parse("big-switch").unwrap();
        run(design.as_ref(), CLUSTER, &rules(8), &history).unwrap().finished
    };
    assert_eq!([finished_in(DAY / 2, DAY), finished_in(DAY / 2, 2 * DAY + DAY / 4)], [1, 3]);
    assert_eq!([finished_in(2 * DAY, 2 * DAY + DAY / 4), finished_in(2 * DAY, 5 * DAY)], [2, 3]);
}

/// The domain's only spare is in use when a second node fails. The job continues elsewhere from its
/// in-memory copies.
#[test]
fn in_memory_copies_work_without_a_spare_in_the_domain() {
    let fault = |node, at| (NodeId(node), TraceTime(at), TraceTime(3 * DAY));
    let faults = [fault(0, DAY), fault(1, DAY + DAY / 2)];
    let faults = Timeline::from_intervals(CLUSTER.nodes, TraceTime(3 * DAY), faults);
    let hits = vec![0.1; faults.changes().len()];
    let arrivals = vec![Arrival { at_ms: 7, gpus: 16, work_ms: 9 * DAY }];
    let history = History { faults, hits, arrivals, slow: Vec::new() };
    let answer = Answer::InMemory { every: 2, load: 60 * SECOND, write: 0, copies: 2 };
    let useful = |policy| {
        let rules = Rules { policy, job: Policy { answer, ..rules(8).job }, ..rules(8) };
        let spent = run(parse("nvl:20").unwrap().as_ref(), CLUSTER, &rules, &history).unwrap();
        assert_eq!((spent.interruptions, spent.stops), (2, 0));
        spent.useful
    };
    assert_eq!(useful(FaultPolicy::Backup), useful(FaultPolicy::Regroup));
}

#[test]
fn policies_differ_whenever_a_fault_hits_a_job() {
    let fault = |node| (NodeId(node), TraceTime(DAY), TraceTime(2 * DAY));
    let faults = Timeline::from_intervals(CLUSTER.nodes, TraceTime(3 * DAY), [fault(0)]);
    let hits = vec![0.1; faults.changes().len()];
    let arrivals = vec![Arrival { at_ms: 7, gpus: 32, work_ms: 9 * DAY }];
    let hit = History { faults, hits, arrivals: arrivals.clone(), slow: Vec::new() };
    let faults = Timeline::from_intervals(CLUSTER.nodes, TraceTime(3 * DAY), []);
    let calm = History { faults, hits: Vec::new(), arrivals, slow: Vec::new() };
    let useful = |history: &History, design: &str, policy, spares, answer| {
        let job = Policy { answer, ..rules(8).job };
        let rules = Rules { policy, spares, job, ..rules(8) };
        run(parse(design).unwrap().as_ref(), CLUSTER, &rules, history).unwrap().useful
    };
    let elastic = |reform: i128| Answer::Elastic {
        reform: reform * SECOND,
        start: 0,
        rejoin: 60 * SECOND,
        least: 1,
    };
    let migrate = |takes: i128| Answer::Migrate { takes: takes * SECOND };
    let copies = Answer::InMemory { every: 2, load: 60 * SECOND, write: SECOND / 100, copies: 2 };
    // A domain of NVL-20 holds two groups of 8; after the fault, 16 GPUs remain.
    let cases = [
        ("regroup", FaultPolicy::Regroup, 1, Answer::Restart),
        ("regroup, in memory", FaultPolicy::Regroup, 1, copies),
        ("regroup, elastic", FaultPolicy::Regroup, 1, elastic(45)),
        ("backup", FaultPolicy::Backup, 1, migrate(60)),
        ("reduced-tp", FaultPolicy::ReducedTp, 1, elastic(30)),
    ];
    for (at, (name, policy, spares, answer)) in cases.iter().enumerate() {
        for (other, policy_2, spares_2, answer_2) in &cases[at + 1..] {
            let one = useful(&hit, "nvl:20", *policy, *spares, *answer);
            let two = useful(&hit, "nvl:20", *policy_2, *spares_2, *answer_2);
            assert_ne!(one, two, "{name} and {other} under a fault");
        }
    }
    // Without reserved spares, a job cannot migrate.
    let regroup = |answer| useful(&hit, "nvl:20", FaultPolicy::Regroup, 1, answer);
    assert_eq!(regroup(migrate(120)), regroup(Answer::Restart));
    let restart = useful(&calm, "nvl:20", FaultPolicy::Regroup, 1, Answer::Restart);
    for (name, policy, spares, answer) in &cases {
        let writes_copies = matches!(answer, Answer::InMemory { .. });
        let same = useful(&calm, "nvl:20", *policy, *spares, *answer) == restart;
        assert_eq!(same, !writes_copies, "{name} without a fault");
    }
    let mut two = hit.clone();
    let faults = [fault(0), (NodeId(1), TraceTime(DAY + 9_999), TraceTime(2 * DAY))];
    two.faults = Timeline::from_intervals(CLUSTER.nodes, TraceTime(3 * DAY), faults);
    two.hits = vec![0.1; two.faults.changes().len()];
    let [one, two] =
        [1, 2].map(|spares| useful(&two, "nvl:30", FaultPolicy::Backup, spares, migrate(60)));
    assert!(one < two, "{one} {two}");
    let usable = |spares| {
        let design = parse("nvl:28").unwrap();
        let state = design.usable_under(FaultPolicy::Backup, spares, CLUSTER, 8).unwrap();
        state.usable_gpus()
    };
    assert_eq!([usable(1), usable(2), usable(4)], [48, 32, 16]);
}
