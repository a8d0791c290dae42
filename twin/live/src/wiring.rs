// SPDX-License-Identifier: Apache-2.0
//! Connects interfaces as the light of the emulated transceivers changes, and records the times.
//!
//! Redirections are updated first. Carriers follow only if the light has not changed again, so a
//! change that is shorter than the kernel's carrier update causes no loss of carrier.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use lightloom_devices::LightChange;
use lightloom_units::id::BundleId;
use serde::{Deserialize, Serialize};

use crate::netlink::{Kernel, RequestBatch};
use crate::nodes::port_index;
use crate::record::{Folder, Record};
use crate::{Error, link, unix_us};

struct LightMove {
    at: Instant,
    unix_us: u64,
    changes: Vec<LightChange>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rewired {
    /// Unix time in microseconds of the first reported change.
    pub light_unix_us: u64,
    pub done_unix_us: u64,
    /// Time in microseconds from the last reported change until the kernel used the new connections.
    pub paths_us: u64,
    /// Additional time in microseconds to update carriers; 0 if no carrier changed.
    pub carriers_us: u64,
    pub joined: Vec<(String, String)>,
    pub parted: Vec<String>,
}

pub(crate) const FILE: &str = "wiring.jsonl";

#[derive(Clone, Copy, Default, PartialEq)]
struct Port {
    to: Option<u32>,
    has_carrier: bool,
}

/// Changes passed to the returned function are processed in order.
pub(crate) fn start(
    folder: &Folder,
    record: &Record,
) -> Result<impl FnMut(Vec<LightChange>) + Send + use<>, Error> {
    let kernel = Kernel::open()?;
    let (sender, receiver): (Sender<LightMove>, _) = channel();
    let wiring =
        Wiring { kernel, folder: folder.clone(), nodes: record.nodes, ports: BTreeMap::new() };
    std::thread::spawn(move || wiring.run(&receiver));
    Ok(move |changes| {
        let heard = LightMove { at: Instant::now(), unix_us: unix_us(), changes };
        // The receiving thread ends only with the process.
        let _ended = sender.send(heard);
    })
}

struct Wiring {
    kernel: Kernel,
    folder: Folder,
    nodes: u32,
    ports: BTreeMap<u32, Port>,
}

impl Wiring {
    fn run(mut self, receiver: &Receiver<LightMove>) {
        while let Ok(first) = receiver.recv() {
            if let Err(error) = self.round(first, receiver) {
                let _receiver_is_gone =
                    self.folder.add_line(FILE, &serde_json::json!({ "error": error.to_string() }));
            }
        }
    }

    fn round(&mut self, first: LightMove, receiver: &Receiver<LightMove>) -> Result<(), Error> {
        let (light_unix_us, mut last) = (first.unix_us, first.at);
        let mut changed: BTreeMap<String, Option<String>> = BTreeMap::new();
        let mut next = Some(first);
        let (mut done, mut done_unix_us) = (Instant::now(), 0);
        while let Some(heard) = next.take() {
            let mut round = heard.changes;
            last = heard.at;
            while let Ok(more) = receiver.try_recv() {
                last = more.at;
                round.extend(more.changes);
            }
            self.paths(&round)?;
            (done, done_unix_us) = (Instant::now(), unix_us());
            changed.extend(round.into_iter().map(|change| (change.bundle, change.far)));
            next = receiver.try_recv().ok();
        }
        self.carriers()?;
        let carriers_us = done.elapsed().as_micros() as u64;
        let (mut joined, mut parted) = (Vec::new(), Vec::new());
        for (bundle, far) in changed {
            match far {
                Some(far) => joined.push((bundle, far)),
                None => parted.push(bundle),
            }
        }
        let paths_us = done.duration_since(last).as_micros() as u64;
        let rewired =
            Rewired { light_unix_us, done_unix_us, paths_us, carriers_us, joined, parted };
        self.folder.add_line(FILE, &rewired)
    }

    fn index(&self, bundle: &str) -> Option<u32> {
        let bundle: BundleId = bundle.parse().ok()?;
        (bundle.node.0 < self.nodes).then(|| port_index(bundle.node.0, bundle.bundle))
    }

    fn paths(&mut self, changes: &[LightChange]) -> Result<(), Error> {
        let mut wanted: BTreeMap<u32, Option<u32>> = BTreeMap::new();
        for change in changes {
            if let Some(index) = self.index(&change.bundle) {
                let far = change.far.as_deref().and_then(|far| self.index(far));
                wanted.insert(index, far);
            }
        }
        wanted.retain(|index, to| self.ports.entry(*index).or_default().to != *to);
        let mut batch = RequestBatch::default();
        for index in wanted.keys().filter(|index| self.ports[*index].to.is_some()) {
            link::part(&mut batch, *index);
        }
        for (index, to) in wanted.iter().filter_map(|(index, to)| Some((*index, (*to)?))) {
            link::redirect(&mut batch, index, to);
        }
        self.kernel.run(batch)?;
        for (index, to) in wanted {
            self.ports.entry(index).or_default().to = to;
        }
        Ok(())
    }

    fn carriers(&mut self) -> Result<(), Error> {
        let mut batch = RequestBatch::default();
        for (index, port) in &mut self.ports {
            if port.has_carrier != port.to.is_some() {
                port.has_carrier = port.to.is_some();
                link::set(&mut batch, *index, port.has_carrier, None);
            }
        }
        self.kernel.run(batch)
    }
}
