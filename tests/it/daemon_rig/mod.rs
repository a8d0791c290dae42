// SPDX-License-Identifier: Apache-2.0
//! The daemon and emulated devices in one process, connected by real ptys and sockets.

pub(crate) mod ring;
pub(crate) mod times;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lightloom_control::controller::{Answer, Apply, Request};
use lightloom_control::ledger::Past;
use lightloom_control::record::{Asked, TxnResult};
use lightloom_control::state::{DeviceName, Micros, Txn};
use lightloom_control::{desired, replan};
use lightloom_daemon::file_storage::FileStorage;
use lightloom_daemon::journal::{Storage, Stored};
use lightloom_daemon::runtime::{Call, NotStored, Runtime};
use lightloom_daemon::{api::Shared, config, start};
use lightloom_devices as device;
use lightloom_devices::serve::{Options, ServedAddress, Server};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_planner::khop::{Method, plan, to_document};
use lightloom_units::seed::Seed;
use tokio::sync::oneshot;

pub(crate) struct Modules {
    stopper: device::serve::Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
    control: PathBuf,
}

impl Modules {
    pub(crate) fn serve(nodes: u32, bundles: u8, links: &Path) -> Self {
        let (nodes, bundles) = (nodes - 1, bundles - 1);
        let names = format!("n{{0..{nodes}}}/b{{0..{bundles}}}");
        let list = format!("transceivers:\n  - {{names: \"{names}\", powered_for: 2s}}\n");
        Self::of_list(&list, links).0
    }

    /// A 320 × 320 switch that takes 20 ms for any number of circuits, and its address.
    pub(crate) fn switch(links: &Path) -> (Self, String) {
        let list = "switches:\n  - {name: ocs0, ingress: 320, egress: 320, scpi: '127.0.0.1:0', \
                    switching: 20ms}\n";
        let (serving, mut at) = Self::of_list(list, links);
        (serving, at.remove(0))
    }

    pub(crate) fn fault(&self, words: &str) {
        let mut socket = BufReader::new(UnixStream::connect(&self.control).unwrap());
        socket.get_mut().write_all(format!("{words}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_line(&mut answer).unwrap();
        assert_eq!(answer, "ok\n");
    }

    pub(crate) fn of_list(list: &str, links: &Path) -> (Self, Vec<String>) {
        Self::of_list_in(16, list, links)
    }

    pub(crate) fn of_list_in(nodes: u32, list: &str, links: &Path) -> (Self, Vec<String>) {
        let (serving, addresses) = Self::served(nodes, list, links);
        (serving, addresses.into_iter().map(|address| address.at).collect())
    }

    pub(crate) fn of_list_named(list: &str, links: &Path) -> (Self, Vec<ServedAddress>) {
        Self::served(16, list, links)
    }

    fn served(nodes: u32, list: &str, links: &Path) -> (Self, Vec<ServedAddress>) {
        std::fs::create_dir_all(links).unwrap();
        let file = format!("seed: 1\n{list}");
        let mut read = |_: &str| Ok(fabric_file(nodes));
        let (devices, mistakes) = device::load_beside("devices.yaml", file.as_bytes(), &mut read);
        let devices = devices.unwrap_or_else(|| panic!("{mistakes:?}"));
        let control = links.join("control");
        let options = Options {
            links: Some(links.to_owned()),
            control: Some(control.clone()),
            eeproms: None,
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server = Server::start(devices, &options).unwrap();
            let at = server.addresses().to_vec();
            sender.send((server.stopper(), at)).unwrap();
            server.run().unwrap();
        });
        let (stopper, at) = receiver.recv().unwrap();
        (Self { stopper, thread: Some(thread), control }, at)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        self.stopper.stop();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

pub(crate) fn said(answer: Result<Stored<Answer>, NotStored>) -> Answer {
    answer.map_or_else(|why| Answer::Refused { reasons: vec![why.to_string()] }, Stored::into_inner)
}

pub(crate) fn fabric_file(nodes: u32) -> String {
    let gpus = nodes * 3 / 16 * 16;
    format!(
        "kind: fabric\nversion: 2\nname: ring\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\n\
         jobs:\n  - {{name: pretrain, gpus: {gpus}, tp: 16}}\n"
    )
}

pub(crate) fn installed(nodes: u32) -> Fabric {
    lightloom_fabric::file::load("ring.yaml", fabric_file(nodes).as_bytes()).0.unwrap()
}

pub(crate) fn first_plan(installed: &Fabric) -> Plan {
    let none = FaultSet::none();
    let layout = plan(installed, &none, Method::Scan).unwrap();
    to_document(installed, &none, Seed(1), &layout)
}

pub(crate) struct Rig {
    pub(crate) shared: Shared,
    pub(crate) config: config::Config,
    /// Ids must not repeat those of an earlier process.
    pub(crate) requests: u32,
}

impl Rig {
    pub(crate) async fn start(nodes: u32, folder: &Path, installed: Fabric) -> Self {
        let modules = format!(
            "modules:\n- {{nodes: [0, {}], bundles: 2, serial: \"{}/n{{node}}-b{{bundle}}\"}}\n",
            nodes - 1,
            folder.join("links").display()
        );
        Self::of_devices(&modules, folder, Some(installed)).await
    }

    pub(crate) async fn of_devices(
        devices: &str,
        folder: &Path,
        installed: Option<Fabric>,
    ) -> Self {
        Self::on_disk(devices, folder, installed, |file| Ok(Box::new(FileStorage::open(file)?)))
            .await
    }

    pub(crate) async fn on_disk(
        devices: &str,
        folder: &Path,
        installed: Option<Fabric>,
        open: impl FnOnce(&Path) -> io::Result<Box<dyn Storage + Send>>,
    ) -> Self {
        let rig = Self::not_seen_yet(devices, folder, installed, open);
        let all =
            |runtime: &Runtime| runtime.control.sightings().devices().values().all(|d| d.is_read());
        let until = Instant::now() + Duration::from_secs(60);
        while !rig.look(all).await {
            assert!(Instant::now() < until, "not every module came up");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rig
    }

    pub(crate) fn not_seen_yet(
        devices: &str,
        folder: &Path,
        installed: Option<Fabric>,
        open: impl FnOnce(&Path) -> io::Result<Box<dyn Storage + Send>>,
    ) -> Self {
        let state = folder.join("state");
        // Polling would disturb measurements.
        let policies =
            if devices.contains("policies:") { "" } else { "policies: {poll_every: 60s}\n" };
        let file = format!("state_dir: {}\n{policies}{devices}", state.display());
        let (config, mistakes) = config::load("daemon.yaml", file.as_bytes());
        let config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
        let daemon = start::start_on(config.clone(), installed, open).unwrap();
        tokio::spawn(daemon.runtime.run(daemon.calls, daemon.events));
        Self { shared: daemon.shared, config, requests: 0 }
    }

    pub(crate) async fn find<T: Send + 'static>(
        &self,
        what: &str,
        look: impl Fn(&Runtime) -> Option<T> + Clone + Send + 'static,
    ) -> T {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = self.look(look.clone()).await {
                return found;
            }
            assert!(Instant::now() < until, "waited in vain for {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn bypass_of_its_own(&self) -> Past {
        let own = |runtime: &Runtime| {
            let mut history = runtime.control.ledger().history.iter().rev();
            // On a busy machine, a first bypass may abort and be retried.
            let ended = |past: &&Past| past.result != TxnResult::Aborted;
            history.find(|past| past.actor == "policy:fault" && ended(past)).cloned()
        };
        self.find("a bypass", own).await
    }

    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Runtime) -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = oneshot::channel();
        let look = Box::new(move |runtime: &Runtime| drop(sender.send(look(runtime))));
        self.shared.calls.send(Call::Look(look)).await.ok().unwrap();
        receiver.await.unwrap()
    }

    pub(crate) fn asked(&mut self) -> Asked {
        self.requests += 1;
        let request = format!("r{}", self.requests);
        Asked { actor: "test".into(), digest: request.clone(), request }
    }

    pub(crate) async fn ask(&mut self, request: Request, plan: Option<Plan>) -> Answer {
        let (answer, receiver) = oneshot::channel();
        let (asked, plan) = (self.asked(), plan.map(Box::new));
        self.shared.calls.send(Call::Ask { asked, request, plan, answer }).await.ok().unwrap();
        said(receiver.await.unwrap())
    }

    pub(crate) async fn fault(&mut self, broken: &[Part], repaired: &[Part]) -> Answer {
        let (answer, receiver) = oneshot::channel();
        let broken = broken.iter().map(|part| (*part, "reported by test".into())).collect();
        let (asked, repaired) = (self.asked(), repaired.to_vec());
        let call = Call::Fault { asked, broken, repaired, answer };
        self.shared.calls.send(call).await.ok().unwrap();
        said(receiver.await.unwrap())
    }

    pub(crate) async fn committed(&mut self, answer: &Answer) {
        let Answer::Accepted { txn } = *answer else { panic!("{answer:?}") };
        let past = self.over(txn).await;
        assert_eq!(past.result, TxnResult::Committed, "{:?}", past.ends);
    }

    async fn over(&mut self, txn: Txn) -> Past {
        loop {
            self.shared.changes.mark_unchanged();
            let find = move |runtime: &Runtime| {
                let history = &runtime.control.ledger().history;
                history.iter().find(|past| past.txn == txn).cloned()
            };
            if let Some(past) = self.look(find).await {
                return past;
            }
            self.shared.changes.changed().await.unwrap();
        }
    }

    pub(crate) async fn committed_or_done(&mut self, answer: &Answer) {
        if !matches!(answer, Answer::Done) {
            self.committed(answer).await;
        }
    }

    pub(crate) fn show_journal(&self) {
        let journal = &self.shared.metrics.journal_seconds;
        let (count, sum) = (journal.get_sample_count(), journal.get_sample_sum());
        println!("the journal: {count} syncs of {:.2} ms on average", sum * 1e3 / count as f64);
    }

    pub(crate) async fn adopt_all(&mut self) {
        let devices: Vec<DeviceName> = self.config.drivers.keys().cloned().collect();
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.ask(Request::Adopt(devices.clone().into()), None).await {
                Answer::Adopted { .. } => return,
                // Modules may be unreachable for a moment on a busy machine.
                answer => assert!(Instant::now() < until, "{answer:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Retries until the change is committed, because it may be refused or aborted on a busy machine.
    pub(crate) async fn commit(&mut self, request: Request, plan: Option<Plan>) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let why = match self.ask(request.clone(), plan.clone()).await {
                Answer::Accepted { txn } => match self.over(txn).await {
                    past if past.result == TxnResult::Committed => return,
                    past if past.result == TxnResult::Aborted => format!("{:?}", past.ends),
                    past => panic!("{:?}: {:?}", past.result, past.ends),
                },
                Answer::Done => return,
                answer => format!("{answer:?}"),
            };
            assert!(Instant::now() < until, "{why}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn apply_plan(&mut self, plan: &Plan) {
        self.apply_plan_until(plan, None).await;
    }

    pub(crate) async fn apply_plan_within(&mut self, plan: &Plan, within: Duration) {
        let micros = u64::try_from(within.as_micros()).unwrap();
        self.apply_plan_until(plan, Some(Micros(micros))).await;
    }

    async fn apply_plan_until(&mut self, plan: &Plan, confirm_within: Option<Micros>) {
        let target = desired::paths(plan, &self.config.bundles).unwrap();
        let plan_sha256 = replan::sha256_of(plan);
        let apply = Apply { target, plan_sha256, confirm_within, ..Apply::default() };
        self.commit(Request::Apply(apply), Some(plan.clone())).await;
    }
}

pub(crate) fn on_a_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}
