//! The daemon against emulated transceivers on real ptys, both in this process: a plan is adopted and
//! applied, nodes die, bypasses are fired. Prints what it measured. Not part of the ordinary run, for it
//! takes a thousand ptys: `cargo test --test daemon_with_modules -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::Path;
use std::time::{Duration, Instant};

use lightloom_daemon::controller::{Answer, Apply, Request};
use lightloom_daemon::record::{Asked, TxnResult};
use lightloom_daemon::runtime::{Call, Runtime};
use lightloom_daemon::state::{DeviceName, Fabric, Position, Slot};
use lightloom_daemon::{api::Shared, bypass, config, desired, start};
use lightloom_emulator::device;
use lightloom_emulator::device::serve::{Options, Server};
use lightloom_fabric::fabric::Fabric as Installed;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::id::NodeId;
use lightloom_fabric::plan::Plan;
use lightloom_fabric::seed::Seed;
use lightloom_planner::khop::{Method, plan, to_document};
use tokio::sync::oneshot;

/// Emulated modules on ptys, served by a thread until dropped.
struct Modules(lightloom_emulator::device::serve::Stopper, Option<std::thread::JoinHandle<()>>);

impl Modules {
    fn serve(nodes: u32, bundles: u8, links: &Path) -> Self {
        std::fs::create_dir_all(links).unwrap();
        let (nodes, bundles) = (nodes - 1, bundles - 1);
        let file = format!(
            "seed: 1\ntransceivers:\n  - {{names: \"n{{0..{nodes}}}/b{{0..{bundles}}}\", powered_for: 2s}}\n"
        );
        let (devices, mistakes) = device::load("devices.yaml", file.as_bytes());
        let devices = devices.unwrap_or_else(|| panic!("{mistakes:?}"));
        let options = Options { links: Some(links.to_owned()), control: None };
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server = Server::start(devices, &options).unwrap();
            sender.send(server.stopper()).unwrap();
            server.run().unwrap();
        });
        Self(receiver.recv().unwrap(), Some(thread))
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        self.0.stop();
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

fn installed(nodes: u32) -> Installed {
    let file = format!("name: ring\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\n");
    lightloom_fabric::file::load("ring.yaml", file.as_bytes()).0.unwrap()
}

fn first_plan(installed: &Installed) -> Plan {
    let none = FaultSet::none();
    let layout = plan(installed, &none, Method::Scan).unwrap();
    to_document(installed, &none, Seed(1), &layout)
}

struct Rig {
    shared: Shared,
    config: config::Config,
    requests: u32,
}

impl Rig {
    /// Starts the daemon on this thread's runtime and waits until every module is seen.
    async fn start(nodes: u32, folder: &Path, installed: Installed) -> Self {
        let (state, links) = (folder.join("state"), folder.join("links"));
        let file = format!(
            "state_dir: {}\npolicies: {{poll_every: 60s}}\nmodules:\n\
             - {{nodes: [0, {}], bundles: 2, serial: \"{}/n{{node}}-b{{bundle}}\"}}\n",
            state.display(),
            nodes - 1,
            links.display()
        );
        let (config, mistakes) = config::load("daemon.yaml", file.as_bytes());
        let config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
        let daemon = start::start(config.clone(), Some(installed)).unwrap();
        tokio::spawn(daemon.runtime.run(daemon.calls, daemon.events));
        let rig = Self { shared: daemon.shared, config, requests: 0 };
        let all = |runtime: &Runtime| {
            runtime.controller.devices().values().all(|d| d.up && d.observed.is_some())
        };
        let until = Instant::now() + Duration::from_secs(60);
        while !rig.look(all).await {
            assert!(Instant::now() < until, "not every module came up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rig
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Runtime) -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = oneshot::channel();
        let look = Box::new(move |runtime: &Runtime| drop(sender.send(look(runtime))));
        self.shared.calls.send(Call::Look(look)).await.ok().unwrap();
        receiver.await.unwrap()
    }

    fn asked(&mut self) -> Asked {
        self.requests += 1;
        let request = format!("r{}", self.requests);
        Asked { actor: "test".into(), digest: request.clone(), request }
    }

    async fn ask(&mut self, request: Request, plan: Option<Plan>) -> Answer {
        let (answer, receiver) = oneshot::channel();
        let (asked, plan) = (self.asked(), plan.map(Box::new));
        self.shared.calls.send(Call::Ask { asked, request, plan, answer }).await.ok().unwrap();
        receiver.await.unwrap()
    }

    /// Waits for the transaction and demands that it is committed.
    async fn committed(&mut self, answer: &Answer) {
        let Answer::Accepted { txn } = *answer else { panic!("{answer:?}") };
        loop {
            self.shared.changes.mark_unchanged();
            let find = move |runtime: &Runtime| {
                let history = &runtime.controller.ledger().history;
                history.iter().find(|past| past.txn == txn).cloned()
            };
            if let Some(past) = self.look(find).await {
                assert_eq!(past.result, TxnResult::Committed, "{:?}", past.parts);
                return;
            }
            self.shared.changes.changed().await.unwrap();
        }
    }

    async fn adopt_all(&mut self) {
        let devices: Vec<DeviceName> = self.config.drivers.keys().cloned().collect();
        assert_eq!(self.ask(Request::Adopt(devices), None).await, Answer::Done);
    }

    async fn apply_plan(&mut self, plan: &Plan) {
        let target = desired::paths(plan, &self.config).unwrap();
        let plan_sha256 = bypass::sha256_of(plan);
        let apply = Apply { target, plan_sha256, ..Apply::default() };
        let answer = self.ask(Request::Apply(apply), Some(plan.clone())).await;
        self.committed(&answer).await;
    }
}

fn on_a_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
#[ignore = "takes a thousand ptys and measures time"]
fn nodes_die_and_their_bypass_is_fired() {
    let nodes = 32;
    let folder = tempfile::tempdir().unwrap();
    let _modules = Modules::serve(nodes, 2, &folder.path().join("links"));
    on_a_runtime(async {
        let installed = installed(nodes);
        let mut rig = Rig::start(nodes, folder.path(), installed.clone()).await;
        rig.adopt_all().await;
        let plan = first_plan(&installed);
        rig.apply_plan(&plan).await;
        let mut fired_ms = Vec::new();
        for round in 0..60_u32 {
            let node = NodeId(2 + round * 7 % 28);
            let part = lightloom_fabric::fault::Part::Node(node);
            for repaired in [false, true] {
                let before = rig.shared.metrics.event_to_fired_seconds.get_sample_sum();
                let (answer, receiver) = oneshot::channel();
                let parts = vec![part];
                let (broken, repaired) = if repaired { (vec![], parts) } else { (parts, vec![]) };
                let asked = rig.asked();
                let call = Call::Fault { asked, broken, repaired, answer };
                rig.shared.calls.send(call).await.ok().unwrap();
                let answer = receiver.await.unwrap();
                if answer == Answer::Done {
                    continue;
                }
                rig.committed(&answer).await;
                let after = rig.shared.metrics.event_to_fired_seconds.get_sample_sum();
                fired_ms.push((after - before) * 1e3);
            }
        }
        fired_ms.sort_by(f64::total_cmp);
        let at = |share: f64| fired_ms[((fired_ms.len() - 1) as f64 * share) as usize];
        println!(
            "fault known to bypass fired, {} of them on {nodes} nodes: median {:.2} ms, p99 {:.2} ms",
            fired_ms.len(),
            at(0.5),
            at(0.99)
        );
        assert!(fired_ms.len() >= 60);
    });
}

#[test]
#[ignore = "takes a thousand ptys and measures time"]
fn a_thousand_modules_change_at_once() {
    let nodes = 500;
    let folder = tempfile::tempdir().unwrap();
    let _modules = Modules::serve(nodes, 2, &folder.path().join("links"));
    on_a_runtime(async {
        let mut rig = Rig::start(nodes, folder.path(), installed(nodes)).await;
        rig.adopt_all().await;
        for path in [1, 2, 1] {
            let target: Fabric = rig
                .config
                .drivers
                .keys()
                .map(|device| (device.clone(), [(Slot(0), Position(path))].into()))
                .collect();
            assert_eq!(target.len(), 1000);
            let started = Instant::now();
            let apply = Apply { target, plan_sha256: "none".into(), ..Apply::default() };
            let answer = rig.ask(Request::Apply(apply), None).await;
            rig.committed(&answer).await;
            println!("1,000 modules, one change each, over real ptys: {:?}", started.elapsed());
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        println!("this process, with emulated devices and daemon: {memory}");
    });
}
