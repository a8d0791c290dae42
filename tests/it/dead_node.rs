// SPDX-License-Identifier: Apache-2.0
//! Measures the time from a node's power loss until both bundles are bypassed, with the production
//! policy, emulated modules on ptys, and failures at random moments between two polls.
//!
//! `cargo test --test it dead_node:: -- --ignored --nocapture` kills 20 nodes of each kind;
//! `LIGHTLOOM_KILLS=200` kills more.

use crate::daemon_rig;
use std::time::{Duration, Instant};

use daemon_rig::times::{Times, state_folder};
use daemon_rig::{Modules, Rig, first_plan, installed, on_a_runtime};
use lightloom_control::change::Mode;
use lightloom_control::controller::{Answer, Apply, Request};
use lightloom_control::{desired, replan};
use lightloom_daemon::runtime::Runtime;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_units::id::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Polled,
    /// Modules report loss of light and are also polled every second.
    Pushed,
}

#[derive(Default)]
struct Took {
    detected: Times,
    /// Time to the first switching command, including the journal and, if needed, arming.
    begun: Times,
    /// Time until every switched module has been read back and the result is durable.
    moved: Times,
    all: Times,
    /// Processor time of the daemon's thread, without the emulated modules.
    processor: Times,
    changes: usize,
}

impl Took {
    fn show(&self, what: &str) {
        println!("{what}, {} changes of the daemon's own:", self.changes);
        self.detected.show("  detection, plan, check");
        self.begun.show("  journal, arming");
        self.moved.show("  light, read-back, journal");
        self.all.show("  dead to bypassed");
        self.processor.show("  CPU time of the daemon");
    }

    fn add(&mut self, more: Self) {
        self.detected.0.extend(more.detected.0);
        self.begun.0.extend(more.begun.0);
        self.moved.0.extend(more.moved.0);
        self.all.0.extend(more.all.0);
        self.processor.0.extend(more.processor.0);
        self.changes += more.changes;
    }
}

/// At most ten automatic changes are allowed per hour, so each daemon handles only nine.
const KILLS_EACH: u32 = 9;

fn kills() -> u32 {
    let asked = std::env::var("LIGHTLOOM_KILLS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(20)
}

fn deaths(nodes: u32, known: Known, kills: u32) -> Took {
    let mut took = Took::default();
    let mut left = kills;
    while left > 0 {
        took.add(life(nodes, known, left.min(KILLS_EACH), kills - left));
        left -= left.min(KILLS_EACH);
    }
    took
}

/// Sums of two daemon histograms in milliseconds: detected to fired, and fired to durable.
fn sums(rig: &Rig) -> [f64; 2] {
    let metrics = &rig.shared.metrics;
    [&metrics.event_to_fired_seconds, &metrics.transaction_seconds]
        .map(|histogram| histogram.get_sample_sum() * 1e3)
}

fn processor_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn modules(nodes: u32, known: Known, links: &std::path::Path) -> (Modules, String) {
    let (protocol, poll) = match known {
        Known::Polled => ("v1.1", "100ms"),
        Known::Pushed => ("v1.2", "1s"),
    };
    let last = nodes - 1;
    let list = format!(
        "fabric: ring.yaml\ntransceivers:\n  - {{names: \"n{{0..{last}}}/b{{0..1}}\", powered_for: 2s, \
         protocol: {protocol}}}\n"
    );
    let file = format!(
        "policies: {{on_fault: bypass, poll_every: {poll}}}\nmodules:\n- {{nodes: [0, {last}], bundles: 2, \
         serial: \"{}/n{{node}}-b{{bundle}}\"}}\n",
        links.display()
    );
    (Modules::of_list_in(nodes, &list, links).0, file)
}

fn life(nodes: u32, known: Known, kills: u32, first: u32) -> Took {
    let folder = state_folder();
    let links = folder.path().join("links");
    let (modules, file) = modules(nodes, known, &links);
    let mut took = Took::default();
    on_a_runtime(async {
        let installed = installed(nodes);
        let mut rig = Rig::of_devices(&file, folder.path(), Some(installed.clone())).await;
        rig.adopt_all().await;
        let plan = first_plan(&installed);
        rig.apply_plan(&plan).await;
        for kill in first..first + kills {
            let node = plan.circuits[kill as usize * 7 % plan.circuits.len()].a.bundle.node;
            tokio::time::sleep(Duration::from_millis(1_100 + u64::from(kill * 37 % 100))).await;
            let before = sums(&rig);
            let (died, processor) = (Instant::now(), processor_ms());
            modules.fault(&format!("{node} dead"));
            let broken = bypassed(&mut rig, node).await;
            let all = died.elapsed().as_secs_f64() * 1e3;
            took.processor.0.push(processor_ms() - processor);
            let after = sums(&rig);
            let [begun, moved] = [after[0] - before[0], after[1] - before[1]];
            took.detected.0.push(all - begun - moved);
            took.begun.0.push(begun);
            took.moved.0.push(moved);
            took.all.0.push(all);
            modules.fault(&format!("{node} clear"));
            as_before(&mut rig, &plan, &broken).await;
        }
        let own = |runtime: &Runtime| {
            let history = runtime.control.ledger().history.iter();
            history.filter(|past| past.actor == "policy:fault").count()
        };
        took.changes = rig.look(own).await;
        rig.show_journal();
    });
    took
}

async fn bypassed(rig: &mut Rig, node: NodeId) -> Vec<Part> {
    let both = move |runtime: &Runtime| {
        let faults =
            runtime.control.plan().into_iter().flat_map(|plan| plan.faults.iter().copied());
        let of_node = |part: &Part| matches!(part, Part::Bundle(bundle) if bundle.node == node);
        let found: Vec<Part> = faults.filter(of_node).collect();
        (found.len() == 2 && !runtime.control.transactions().is_busy()).then_some(found)
    };
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        rig.shared.changes.mark_unchanged();
        if let Some(found) = rig.look(both).await {
            return found;
        }
        assert!(Instant::now() < until, "{node} is not bypassed");
        rig.shared.changes.changed().await.unwrap();
    }
}

async fn as_before(rig: &mut Rig, plan: &Plan, broken: &[Part]) {
    let up = |runtime: &Runtime| {
        let devices = runtime.control.sightings().devices();
        devices.values().all(|seen| seen.is_read()).then_some(())
    };
    rig.find("the node to answer again", up).await;
    let answer = rig.fault(&[], broken).await;
    rig.committed(&answer).await;
    let target = desired::paths(plan, &rig.config.bundles).unwrap();
    let (plan_sha256, mode) = (replan::sha256_of(plan), Mode::Update);
    let apply = Apply { target, plan_sha256, mode, ..Apply::default() };
    let answer = rig.ask(Request::Apply(apply), Some(plan.clone())).await;
    if let Answer::Accepted { .. } = answer {
        rig.committed(&answer).await;
    }
}

#[test]
fn bypasses_a_node_that_fails_between_polls_from_neighbour_reports() {
    let took = deaths(16, Known::Pushed, 2);
    took.show("32 modules that report loss of light, polled every second");
    assert_eq!(took.changes, 2, "one for each");
    // The next poll is half a second away on average.
    assert!(took.all.at(0.5) < 500.0);
}

#[test]
#[ignore = "measures time"]
fn bypasses_a_failed_node_within_300_ms_at_100_ms_polls() {
    let took = deaths(32, Known::Polled, kills());
    took.show("64 modules with protocol 1.1, polled every 100 ms");
    assert!(took.all.at(0.99) <= 300.0);
}

#[test]
#[ignore = "measures time"]
fn bypasses_a_failed_node_within_10_ms_of_reported_light_loss() {
    let took = deaths(32, Known::Pushed, kills());
    took.show("64 modules that report loss of light");
    assert!(took.all.at(0.99) <= 10.0);
}

#[test]
#[ignore = "measures time"]
fn bypasses_a_failed_node_among_128_modules() {
    deaths(64, Known::Pushed, kills()).show("128 modules that report loss of light");
}

#[test]
#[ignore = "takes 1,440 ptys and measures time"]
fn measures_an_idle_daemon_with_1440_modules() {
    for poll in ["1s", "10s"] {
        let folder = state_folder();
        let links = folder.path().join("links");
        let (_modules, file) = modules(720, Known::Pushed, &links);
        on_a_runtime(async {
            let file = file.replace("poll_every: 1s", &format!("poll_every: {poll}"));
            let mut rig = Rig::of_devices(&file, folder.path(), Some(installed(720))).await;
            rig.adopt_all().await;
            rig.apply_plan(&first_plan(&installed(720))).await;
            tokio::time::sleep(Duration::from_secs(12)).await;
            let (began, processor) = (Instant::now(), processor_ms());
            tokio::time::sleep(Duration::from_secs(20)).await;
            let share = (processor_ms() - processor) / (began.elapsed().as_secs_f64() * 1e3);
            println!("idle, 1,440 modules, polls of {poll}: {:.2} % of a core", share * 100.0);
        });
    }
}

#[test]
#[ignore = "takes 1,440 ptys and measures time"]
fn bypasses_a_failed_node_among_1440_modules() {
    let took = deaths(720, Known::Pushed, kills());
    took.show("1,440 modules that report loss of light");
    assert!(took.all.at(0.99) <= 10.0);
}
