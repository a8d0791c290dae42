// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use super::{Culprit, Link, Loose, Symptom};
use crate::state::DeviceName;

const SEEN: i32 = 10;
const MISSING: i32 = -8;
const ALSO: i32 = 4;

#[derive(Clone, Debug)]
pub(super) struct Explanation {
    pub(super) culprit: Culprit,
    always: Vec<Symptom>,
    perhaps: Vec<Symptom>,
    prior: i32,
}

impl Explanation {
    fn new(culprit: Culprit, prior: i32) -> Self {
        Self { culprit, always: Vec::new(), perhaps: Vec::new(), prior }
    }

    fn always(mut self, symptoms: impl IntoIterator<Item = Symptom>) -> Self {
        self.always.extend(symptoms);
        self
    }

    fn perhaps(mut self, symptoms: impl IntoIterator<Item = Symptom>) -> Self {
        self.perhaps.extend(symptoms);
        self
    }

    pub(super) fn predicts(&self) -> impl Iterator<Item = &Symptom> {
        self.always.iter().chain(&self.perhaps)
    }

    pub(super) fn implies(&self, symptom: &Symptom) -> bool {
        let (Symptom::Weak(device, far)
        | Symptom::Tilted(device, far)
        | Symptom::LaneWeak(device, far, _)) = symptom
        else {
            return false;
        };
        let dark = Symptom::Dark(device.clone(), far.clone());
        self.always.contains(&dark) || self.perhaps.contains(&dark)
    }

    pub(super) fn score(
        &self,
        left: &BTreeSet<Symptom>,
        explained: &BTreeSet<Symptom>,
    ) -> Option<i32> {
        if !self.always.iter().any(|symptom| left.contains(symptom)) {
            return None;
        }
        let always = self.always.iter().map(|symptom| match symptom {
            _ if left.contains(symptom) => SEEN,
            _ if explained.contains(symptom) => 0,
            _ => MISSING,
        });
        let perhaps = self.perhaps.iter().filter(|symptom| left.contains(*symptom)).count();
        Some(self.prior + always.sum::<i32>() + ALSO * i32::try_from(perhaps).unwrap_or(0))
    }
}

struct Way<'a> {
    link: &'a Link,
    from: usize,
}

impl Way<'_> {
    fn sender(&self) -> &DeviceName {
        &self.link.ends[self.from].device
    }
    fn receiver(&self) -> &DeviceName {
        &self.link.ends[1 - self.from].device
    }
    fn is_read(&self) -> bool {
        let end = &self.link.ends[1 - self.from];
        end.now.reachable && end.now.tap.is_some()
    }
    fn dark(&self) -> Option<Symptom> {
        self.is_read().then(|| Symptom::Dark(self.receiver().clone(), self.sender().clone()))
    }
    fn weak(&self) -> Option<Symptom> {
        self.is_read().then(|| Symptom::Weak(self.receiver().clone(), self.sender().clone()))
    }
    fn tilted(&self) -> Option<Symptom> {
        self.is_read().then(|| Symptom::Tilted(self.receiver().clone(), self.sender().clone()))
    }
    fn missed(&self) -> Option<Symptom> {
        let over = self.link.over.as_ref()?;
        let port = &over.ports[self.from];
        port.arrives?;
        Some(Symptom::PortMisses(over.switch.clone(), port.slot))
    }
    fn lost(&self) -> Option<Symptom> {
        let over = self.link.over.as_ref()?;
        let port = &over.ports[1 - self.from];
        port.leaves?;
        Some(Symptom::PortLoses(over.switch.clone(), port.slot))
    }
}

pub(super) fn explanations(links: &[Link], loose: &[Loose]) -> Vec<Explanation> {
    let mut all = Vec::new();
    let mut nodes: BTreeMap<&str, BTreeSet<&DeviceName>> = BTreeMap::new();
    let mut sends: BTreeMap<&DeviceName, Vec<Symptom>> = BTreeMap::new();
    for link in links {
        for (from, end) in link.ends.iter().enumerate() {
            nodes.entry(&end.node).or_default().insert(&end.device);
            let way = Way { link, from };
            sends
                .entry(&end.device)
                .or_default()
                .extend(way.dark().into_iter().chain(way.missed()));
        }
        of_link(link, &mut all);
    }
    for Loose { node, device, .. } in loose {
        nodes.entry(node).or_default().insert(device);
        sends.entry(device).or_default();
    }
    for (node, devices) in nodes.into_iter().filter(|(_, devices)| devices.len() > 1) {
        let unreachable = devices.iter().map(|device| Symptom::Unreachable((*device).clone()));
        let dark = devices.iter().flat_map(|device| sends[*device].clone());
        let node = Explanation::new(Culprit::Node(node.to_owned()), 1);
        all.push(node.always(unreachable).always(dark));
    }
    for (device, dark) in sends {
        let part = Explanation::new(Culprit::Transceiver(device.clone()), 0);
        let [unreachable, sends_nothing, strayed] =
            [Symptom::Unreachable, Symptom::SendsNothing, Symptom::Strayed]
                .map(|symptom| part.clone().always([symptom(device.clone())]).always(dark.clone()));
        let deaf = [Symptom::Deaf(device.clone())];
        all.extend([unreachable, sends_nothing, part.always(deaf.clone()), strayed.perhaps(deaf)]);
    }
    all
}

fn of_link(link: &Link, all: &mut Vec<Explanation>) {
    let ways = [0, 1].map(|from| Way { link, from });
    for (index, way) in ways.iter().enumerate() {
        of_lanes(way, all);
        of_end(index, &ways, all);
    }
    match &link.over {
        None => of_fibre(
            Culprit::Fibre(ways[0].sender().clone(), ways[1].sender().clone()),
            [ways[0].dark(), ways[1].dark()],
            [ways[0].tilted(), ways[1].tilted()],
            all,
        ),
        Some(over) => {
            for index in [0, 1] {
                let fibre = Culprit::Fibre(ways[index].sender().clone(), over.switch.clone());
                let (out, back) = (&ways[index], &ways[1 - index]);
                let loses = Explanation::new(fibre, 0).always(out.missed());
                all.push(loses.clone().always(out.dark()).always(back.dark()));
                all.push(loses.always(out.tilted()).always(back.tilted()));
                let port = Culprit::SwitchPort(over.switch.clone(), over.ports[index].slot);
                let strayed = Symptom::PortStrayed(over.switch.clone(), over.ports[index].slot);
                let strayed = Explanation::new(port.clone(), 2).always([strayed]);
                let lost = [ways[0].lost(), ways[1].lost()].into_iter().flatten();
                let light = ways.iter().flat_map(|way| way.dark().into_iter().chain(way.weak()));
                all.push(strayed.always(lost.clone()).perhaps(light.clone()));
                // If both ports are in position, either one may cause the loss of light.
                all.push(Explanation::new(port, -2).always(lost).perhaps(light));
            }
        }
    }
}

fn of_fibre(
    fibre: Culprit,
    dark: [Option<Symptom>; 2],
    tilted: [Option<Symptom>; 2],
    all: &mut Vec<Explanation>,
) {
    let cut = Explanation::new(fibre.clone(), 2).always(dark.clone().into_iter().flatten());
    all.push(cut);
    for one in dark.into_iter().flatten() {
        all.push(Explanation::new(fibre.clone(), -1).always([one]));
    }
    all.push(Explanation::new(fibre, 0).always(tilted.into_iter().flatten()));
}

fn of_lanes(way: &Way<'_>, all: &mut Vec<Explanation>) {
    let (sender, receiver) = (way.sender(), way.receiver());
    let lanes = way.link.ends[way.from].usual.sent.len();
    for lane in 0..lanes.max(way.link.ends[1 - way.from].usual.received.len()) {
        let weak = way.is_read().then(|| Symptom::LaneWeak(receiver.clone(), sender.clone(), lane));
        let noisy = Symptom::LaneErrors(receiver.clone(), lane);
        let says = Symptom::LaneSendsNothing(sender.clone(), lane);
        let sends = Culprit::Lane(sender.clone(), lane);
        let receives = Culprit::Lane(receiver.clone(), lane);
        all.push(Explanation::new(sends.clone(), 0).always([says]).always(weak.clone()));
        let receiver = Explanation::new(receives, 0);
        all.push(receiver.clone().always(weak.clone()).perhaps([noisy.clone()]));
        all.push(receiver.always([noisy.clone()]));
        // The transmitter of the lane is defective although it reports good values.
        let hidden = Explanation::new(sends, -4);
        all.push(hidden.clone().always(weak).perhaps([noisy.clone()]));
        all.push(hidden.always([noisy]));
    }
}

/// A dirty connector attenuates both directions and reflects light into the module's receiver.
fn of_end(index: usize, ways: &[Way<'_>; 2], all: &mut Vec<Explanation>) {
    let (out, back) = (&ways[index], &ways[1 - index]);
    let connector = Culprit::Connector(out.sender().clone());
    let now = &out.link.ends[index].now;
    let reflects =
        (now.reachable && !now.errors.is_empty()).then(|| Symptom::Errors(out.sender().clone()));
    let dirty = Explanation::new(connector.clone(), 0);
    let dirty = dirty.always(out.missed()).always(out.weak()).always(back.weak());
    all.push(dirty.always(reflects.clone()));
    let partly = Explanation::new(connector.clone(), -2);
    all.push(partly.clone().always(back.weak()).always(reflects.clone()));
    all.push(partly.always(out.missed()).always(out.weak()));
    all.push(Explanation::new(connector, -1).always(reflects));
}
