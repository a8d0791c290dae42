// SPDX-License-Identifier: Apache-2.0
//! `buy` against closed forms, conservation, and a replay that shares no code with it.

use std::collections::BTreeSet;

use lightloom_fabric::trace::{Health, Timeline, TraceTime};
use lightloom_study::architecture::{Cluster, FaultPolicy, NicRate, Site, parse};
use lightloom_study::buy::{Arrival, History, Rules, Spent, buy, load_buy, run};
use lightloom_study::cost::{CostOutcome, PriceList, QuoteRecord, cost, read_prices};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;

const MINUTE: u64 = 60_000;
const DAY: u64 = 1_440 * MINUTE;

fn rules(tp: u32) -> Rules {
    Rules {
        tp,
        policy: FaultPolicy::Regroup,
        stretch: 1.0,
        restart_ms: 10 * MINUTE,
        checkpoint_every_ms: 60 * MINUTE,
        checkpoint_ms: 2 * MINUTE,
    }
}

fn prices() -> PriceList {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../topologies/prices.yaml");
    read_prices("prices.yaml", &std::fs::read(path).unwrap()).0.unwrap()
}

fn file(designs: &str, more: &str) -> String {
    format!(
        "name: t\ngpus: 256\ngpus_per_node: 4\ndays: 100\n{more}designs: [{designs}]\n\
         workload: {{tp: 32, peak_tflops: 1000, mfu: 0.5, step: {{at_gbytes_per_s: 800}}, jobs: [{{name: a, gpus: 256, \
         days: 10000, every_days: 10000}}]}}\n\
         checkpoint: {{every_minutes: 60, seconds: 0, restart_minutes: 0}}\n\
         faults: {{exponential: {{node_mtbf_days: 1000000000, repair_hours: 1}}}}\n\
         running: {{service_years: 4, gpu_watts: 1000, usd_per_kwh: 0.1, pue: 1.5}}\n"
    )
}

/// Without faults every GPU computes all the time: the price is cost ÷ (peak · MFU), by hand.
#[test]
fn without_faults_the_price_is_cost_over_peak() {
    let (question, mistakes) = load_buy("t.yaml", file("{design: khop:2}", "").as_bytes());
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let answer = buy(&question.unwrap(), &prices(), None, Seed(1)).unwrap();
    let row = &answer.rows[0];
    // 2,626.80 dollars and 48.10 W are the design's published figures; the GPU is in the price file.
    let capex = 44_962.0 + 2_626.8;
    let energy = (1_000.0 + 48.1) / 1e3 * 1.5 * 365.25 * 24.0 * 0.1;
    let by_hand = (capex / 4.0 + energy) / (1.0 * 0.5);
    let ours = row.usd_per_pflop_year.unwrap();
    assert!((ours / by_hand - 1.0).abs() < 1e-9, "{ours} {by_hand}");
    assert_eq!((row.shares.useful, row.is_pareto), (1.0, true));
}

/// One job, spares without end, repair that outlasts the window: T. Daly's renewal formula.
#[test]
fn exponential_faults_give_the_renewal_formula() {
    let (nodes, used) = (4_000_u32, 1_000_u32);
    let cluster = Cluster { nodes, gpus_per_node: 4 };
    let mut random = Seed(5).stream("renewal", 0);
    // A fault hits the job with probability used/healthy, so faults of the whole come nodes/used times as often
    // as those of the job; nodes come back at once, so that the share stays.
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
    let history = History { faults, hits, arrivals };
    let rules = rules(4);
    let spent = run(parse("big-switch").unwrap().as_ref(), cluster, &rules, &history).unwrap();
    let held = spent.useful + spent.redone + spent.restarting + spent.checkpoint;
    let ours = spent.useful as f64 / held as f64;
    let rate = 1.0 / job_mtbf;
    let cycle = (rules.checkpoint_every_ms + rules.checkpoint_ms) as f64;
    let expected = (rate * rules.restart_ms as f64).exp() / rate * ((rate * cycle).exp() - 1.0);
    let formula = rules.checkpoint_every_ms as f64 / expected;
    println!(
        "useful {ours:.5}, renewal formula {formula:.5}, {} interruptions",
        spent.interruptions
    );
    assert!((ours / formula - 1.0).abs() < 0.01, "{ours} {formula}");
}

/// A small history with all times in whole minutes.
fn small(seed: u64, cluster: Cluster) -> History {
    let mut random = Seed(seed).stream("small", 0);
    let days = 3;
    let minutes = days * 1_440;
    let interval = |random: &mut lightloom_units::seed::Stream| {
        let start = random.random_range(0..minutes) * MINUTE;
        let end = start + random.random_range(1..900) * MINUTE;
        (NodeId(random.random_range(0..cluster.nodes)), TraceTime(start), TraceTime(end))
    };
    let intervals: Vec<_> =
        (0..random.random_range(0..25)).map(|_| interval(&mut random)).collect();
    let faults = Timeline::from_intervals(cluster.nodes, TraceTime(minutes * MINUTE), intervals);
    let hits = faults.changes().iter().map(|_| random.random::<f64>()).collect();
    let mut arrivals: Vec<Arrival> = (0..random.random_range(1..9))
        .map(|_| Arrival {
            at_ms: random.random_range(0..minutes) * MINUTE,
            gpus: 8 * random.random_range(1..=6),
            work_ms: random.random_range(1..2_000) * MINUTE,
        })
        .collect();
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    History { faults, hits, arrivals }
}

/// A job as the replay below keeps it: minutes, no events.
#[derive(Clone, Copy)]
struct Job {
    gpus: u64,
    left: u64,
    /// Minutes of restarting left, minutes of work since the last checkpoint, minutes of it left to write.
    phase: (u64, u64, u64),
    /// Work and checkpoint minutes that are not safe yet.
    unsafe_work: u64,
    unsafe_write: u64,
}

/// Minute by minute, from the definitions. `usable` counts full groups of the healthy GPUs of islands of `island` GPUs.
fn naive(history: &History, cluster: Cluster, rules: &Rules, island: u32) -> Spent {
    let (restart, every, write) = (
        rules.restart_ms / MINUTE,
        rules.checkpoint_every_ms / MINUTE,
        rules.checkpoint_ms / MINUTE,
    );
    let mut spent = Spent::default();
    let (mut dead, mut running, mut waiting) =
        (BTreeSet::new(), Vec::<(usize, Job)>::new(), Vec::<(usize, Job)>::new());
    let (mut change, mut arrival) = (0, 0);
    let fresh = |gpus: u64, left: u64| Job {
        gpus,
        left,
        phase: (restart, 0, 0),
        unsafe_work: 0,
        unsafe_write: 0,
    };
    let total = u64::from(cluster.gpus());
    let usable = |dead: &BTreeSet<u32>| -> u64 {
        (0..cluster.gpus().div_ceil(island))
            .map(|domain| {
                let gpus = (domain * island..((domain + 1) * island).min(cluster.gpus()))
                    .filter(|gpu| !dead.contains(&(gpu / cluster.gpus_per_node)))
                    .count() as u32;
                u64::from(gpus / rules.tp * rules.tp)
            })
            .sum()
    };
    let stop = |spent: &mut Spent, waiting: &mut Vec<(usize, Job)>, (id, job): (usize, Job)| {
        spent.redone += job.gpus * (job.unsafe_work + job.unsafe_write);
        spent.interruptions += 1;
        waiting.push((id, fresh(job.gpus, job.left + job.unsafe_work)));
        waiting.sort_by_key(|(id, _)| *id);
    };
    for minute in 0..history.faults.window().0 / MINUTE {
        let now = minute * MINUTE;
        let done: Vec<u64> = running
            .iter()
            .filter(|(_, job)| job.left == 0)
            .map(|(_, job)| job.gpus * job.unsafe_work)
            .collect();
        for (_, job) in running.iter().filter(|(_, job)| job.left == 0) {
            spent.checkpoint += job.gpus * job.unsafe_write;
        }
        spent.useful += done.iter().sum::<u64>();
        spent.finished += done.len() as u32;
        running.retain(|(_, job)| job.left > 0);
        let start = |running: &mut Vec<(usize, Job)>,
                     waiting: &mut Vec<(usize, Job)>,
                     dead: &BTreeSet<u32>| {
            while let Some((id, job)) = waiting.first().copied() {
                let held: u64 = running.iter().map(|(_, job)| job.gpus).sum();
                if held + job.gpus > usable(dead) {
                    break;
                }
                waiting.remove(0);
                running.push((id, job));
                running.sort_by_key(|(id, _)| *id);
            }
        };
        start(&mut running, &mut waiting, &dead);
        while let Some(next) = history.faults.changes().get(change).filter(|next| next.at.0 == now)
        {
            let hit = history.hits[change];
            change += 1;
            if next.health == Health::Healthy {
                dead.remove(&next.node.0);
            } else {
                let healthy = total - dead.len() as u64 * u64::from(cluster.gpus_per_node);
                let mut place = (hit * healthy as f64) as u64;
                let victim = running.iter().position(|(_, job)| {
                    let is_it = place < job.gpus;
                    place = place.wrapping_sub(if is_it { 0 } else { job.gpus });
                    is_it
                });
                if let Some(victim) = victim {
                    let job = running.remove(victim);
                    stop(&mut spent, &mut waiting, job);
                }
                dead.insert(next.node.0);
                while running.iter().map(|(_, job)| job.gpus).sum::<u64>() > usable(&dead) {
                    let job = running.pop().unwrap();
                    stop(&mut spent, &mut waiting, job);
                }
            }
            start(&mut running, &mut waiting, &dead);
        }
        while let Some(next) = history.arrivals.get(arrival).filter(|next| next.at_ms == now) {
            waiting.push((arrival, fresh(u64::from(next.gpus), next.work_ms / MINUTE)));
            arrival += 1;
            start(&mut running, &mut waiting, &dead);
        }
        let (healthy, usable) =
            (total - dead.len() as u64 * u64::from(cluster.gpus_per_node), usable(&dead));
        let held: u64 = running.iter().map(|(_, job)| job.gpus).sum();
        spent.faulty += total - healthy;
        spent.fragmented += healthy - usable;
        *(if waiting.is_empty() { &mut spent.idle } else { &mut spent.waiting }) += usable - held;
        for (_, job) in &mut running {
            let (starting, worked, writing) = &mut job.phase;
            if *starting > 0 {
                *starting -= 1;
                spent.restarting += job.gpus;
            } else if *writing > 0 {
                *writing -= 1;
                job.unsafe_write += 1;
                if *writing == 0 {
                    spent.useful += job.gpus * job.unsafe_work;
                    spent.checkpoint += job.gpus * job.unsafe_write;
                    (job.unsafe_work, job.unsafe_write) = (0, 0);
                }
            } else {
                (*worked, job.left, job.unsafe_work) =
                    (*worked + 1, job.left - 1, job.unsafe_work + 1);
                if *worked == every {
                    (*worked, *writing) = (0, write);
                }
            }
        }
    }
    for (_, job) in running {
        spent.useful += job.gpus * job.unsafe_work;
        spent.checkpoint += job.gpus * job.unsafe_write;
    }
    spent
}

#[test]
fn a_replay_minute_by_minute_comes_to_the_same_accounts() {
    let cluster = Cluster { nodes: 15, gpus_per_node: 4 };
    let rules = Rules { checkpoint_every_ms: 45 * MINUTE, ..rules(8) };
    for (design, island) in [("big-switch", 60), ("nvl:12", 12), ("dgx", 8)] {
        for seed in 0..60 {
            let history = small(seed, cluster);
            let ours = run(parse(design).unwrap().as_ref(), cluster, &rules, &history).unwrap();
            let minutes = |gpu_ms: u64| gpu_ms / MINUTE;
            let ours = Spent {
                useful: minutes(ours.useful),
                redone: minutes(ours.redone),
                restarting: minutes(ours.restarting),
                checkpoint: minutes(ours.checkpoint),
                waiting: minutes(ours.waiting),
                idle: minutes(ours.idle),
                fragmented: minutes(ours.fragmented),
                faulty: minutes(ours.faulty),
                ..ours
            };
            assert_eq!(ours, naive(&history, cluster, &rules, island), "{design}, seed {seed}");
        }
    }
}

#[test]
fn every_gpu_millisecond_is_in_one_account() {
    let cluster = Cluster { nodes: 15, gpus_per_node: 4 };
    for design in ["khop:2", "khop:3", "khop:2:spare", "nvl:20", "sip-ring", "dgx"] {
        for seed in 0..40 {
            let design = parse(design).unwrap();
            for policy in design.fault_policies() {
                let history = small(seed, cluster);
                let rules = Rules { policy: *policy, stretch: 1.37, ..rules(8) };
                let spent = run(design.as_ref(), cluster, &rules, &history).unwrap();
                let all = u64::from(cluster.gpus()) * history.faults.window().0;
                assert_eq!(spent.total(), all, "{design:?}, seed {seed}");
            }
        }
    }
}

/// A price list in which the parts of `high` cost what is at the high end of their range, all others the low end.
fn corner(prices: &PriceList, high: &BTreeSet<&str>) -> PriceList {
    let figure = |at: f64| {
        format!(
            "{{low: {at}, mean: {at}, high: {at}, spread: assumed, date: \"2025-08\", source: t, \
             confidence: assumed}}"
        )
    };
    let mut text = "quotes:\n".to_owned();
    for (part, quote) in prices.iter() {
        let QuoteRecord { low, high: most, .. } = quote.usd;
        let usd = if high.contains(part) { most } else { low };
        text += &format!("- part: {part}\n  what: t\n  usd: {}\n", figure(usd));
        if let Some(watts) = &quote.watts {
            text += &format!("  watts: {}\n", figure(watts.mean));
        }
    }
    let (list, mistakes) = read_prices("corner.yaml", text.as_bytes());
    list.unwrap_or_else(|| panic!("{mistakes:?}"))
}

/// Everything is asked again with every price at one of its two ends, in all ways: the extremes are those stated.
#[test]
fn what_price_ranges_leave_open_is_what_all_their_ends_come_to() {
    let prices = prices();
    let designs: Vec<_> = ["khop:2", "nvl:72"].map(|name| parse(name).unwrap()).into();
    let site = Site { gpus: 256, gpus_per_node: 4, nic: NicRate::G400 };
    let mut parts = BTreeSet::from(["gpu".to_owned()]);
    for row in cost(&designs, &site, &prices).unwrap() {
        let CostOutcome::Priced(figures) = row.outcome else { panic!("{row:?}") };
        parts.extend(figures.bill.iter().map(|line| line.part.clone()));
    }
    let ask = |prices: &PriceList| {
        let text = file("{design: khop:2}, {design: nvl:72}", "");
        let text = text.replace("gpus: 256, ", "gpus: 128, ");
        buy(&load_buy("t.yaml", text.as_bytes()).0.unwrap(), prices, None, Seed(1)).unwrap()
    };
    let stated = ask(&prices).verdict;
    let winner = stated.winner.clone().unwrap();
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    assert!((4..=9).contains(&parts.len()), "{parts:?}");
    for ends in 0..1_u32 << parts.len() {
        let high = (0..parts.len()).filter(|at| ends >> at & 1 == 1).map(|at| parts[at]);
        let rows = ask(&corner(&prices, &high.collect())).rows;
        let of = |is_winner: bool| {
            let row = rows.iter().find(|row| winner.starts_with(&row.design) == is_winner);
            row.unwrap().usd_per_pflop_year.unwrap()
        };
        let more = of(false) - of(true);
        (least, most) = (least.min(more), most.max(more));
    }
    let rival = &stated.within_prices[0];
    println!("{winner}: {} costs {least:.0} to {most:.0} dollars more", rival.design);
    let near = |ours: f64, naive: f64| (ours - naive).abs() < 1e-6 * most.abs();
    assert!(near(rival.least_more_usd, least) && near(rival.most_more_usd, most), "{rival:?}");
    assert!(least > 0.0, "{}", stated.sentence);
    assert!(stated.sentence.contains("no prices within their ranges change that"));
    assert!(stated.sentence.contains("4 of 4 other draws of faults and arrivals agree"));
}

#[test]
fn what_cannot_be_bought_is_named() {
    let said = |designs: &str, more: &str| -> String {
        let (question, mistakes) = load_buy("t.yaml", file(designs, more).as_bytes());
        let Some(question) = question else {
            return mistakes
                .iter()
                .map(|mistake| format!("{} {:?}", mistake.message, mistake))
                .collect();
        };
        match buy(&question, &prices(), None, Seed(1)) {
            Err(error) => error.to_string(),
            Ok(answer) => answer.left_out.iter().map(|left| left.why.clone()).collect(),
        }
    };
    let policy = said("{design: nvl:72, policy: bypass}", "");
    assert!(policy.contains("`nvl:72` cannot have the policy `bypass`"), "{policy}");
    assert!(policy.contains("regroup, backup, reduced-tp"), "{policy}");
    let small = said("{design: dgx}", "");
    assert!(small.contains("no parts list of dgx is known"), "{small}");
    let network = said("{design: khop:2}", "network: \"fat-tree:8\"\n");
    assert!(network.contains("ends at 128 end points; 256 are wanted"), "{network}");
    let poor = said("{design: khop:2}", "budget_usd: 5000000\n");
    assert!(poor.contains("job `a` wants 256"), "{poor}");
    let (question, _) = load_buy("t.yaml", file("{design: khop:2}", "").as_bytes());
    let none =
        buy(&question.unwrap(), &PriceList::default(), None, Seed(1)).unwrap_err().to_string();
    assert!(none.contains("has no part `gpu`"), "{none}");
}

#[test]
fn a_ring_wins_the_dense_workload_and_loses_the_one_of_experts() {
    let answer = |name: &str| {
        let path = format!("{}/../../topologies/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap().replace("gpus: 131072", "gpus: 98304");
        let (question, mistakes) = load_buy(name, text.as_bytes());
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let mut question = question.unwrap();
        question.window_ms /= 8;
        buy(&question, &prices(), None, Seed(1)).unwrap()
    };
    let experts = answer("buy-experts.yaml");
    println!("{}", experts.verdict.sentence);
    assert!(!experts.verdict.sentence.contains(" 0.0 % below"), "{}", experts.verdict.sentence);
    assert!(!experts.verdict.winner.unwrap().starts_with("khop"));
    let dense = answer("buy-pretraining.yaml");
    println!("{}", dense.verdict.sentence);
    assert!(dense.verdict.winner.unwrap().starts_with("khop"));
}
