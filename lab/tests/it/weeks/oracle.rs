// SPDX-License-Identifier: Apache-2.0
//! Compares the light in the plant with responses and status pages. It uses only the controller's
//! plan in force and history, which the API also serves.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::controller::Answer;
use lightloom_control::record::{Cause, TxnResult};
use lightloom_control::state::{DeviceName, FibreEnd, Micros, Position, Slot, Txn};
use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::{Path, Port};
use lightloom_fabric::plan::Plan;
use lightloom_units::id::NodeId;

use super::world::World;

/// Minimum rest, followed by up to [`RESTS_WITHIN`] extensions of 5 s until the world is quiet.
const RESTS_AFTER: Micros = Micros::from_secs(22);
const RESTS_WITHIN: u32 = 40;
const TYPED_MAX: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Property {
    Ends,
    /// A bypass or repair cuts more healthy rings than necessary.
    LeastCut,
    /// A bypass or repair cuts more closed rings than necessary.
    LeastCutOfClosed,
    Acknowledged,
    /// A failed sync loses an acknowledged change.
    AcknowledgedOnBadDisk,
    Refused,
    /// Only one end of a circuit is at the plan's position.
    BothEnds,
    /// The page shows `ALL IS WELL` despite a problem.
    WrongWell,
    WrongAlarm,
    /// The commands on the page do not restore normal operation.
    Hints,
}

#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) property: Property,
    pub(super) what: String,
}

impl Finding {
    pub(super) fn kind(&self) -> (Property, String) {
        let is_alarm = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
        (self.property, self.what.split_whitespace().filter(is_alarm).collect())
    }
}

fn finding(property: Property, what: String) -> Option<Finding> {
    Some(Finding { property, what })
}

#[derive(Clone, Default)]
pub(super) struct Rest {
    lit: BTreeSet<(FibreEnd, FibreEnd)>,
    rings: Vec<BTreeSet<NodeId>>,
    planned: Vec<BTreeSet<NodeId>>,
    avoided: BTreeSet<Part>,
    last: Txn,
}

pub(super) fn end_of_port(port: Port) -> FibreEnd {
    let device = DeviceName::from(port.bundle.to_string().as_str());
    (device, Slot(0), Position(u32::from(port.path)))
}

fn node_of(device: &DeviceName) -> Option<NodeId> {
    device.as_str().split('/').next()?.parse().ok()
}

fn rings_of(plan: &Plan) -> Vec<BTreeSet<NodeId>> {
    let groups = plan.groups.iter().filter(|group| group.job.is_some());
    groups.map(|group| group.nodes.iter().copied().collect()).collect()
}

fn position(path: Path) -> Position {
    match path {
        Path::External1 => Position(1),
        Path::External2 => Position(2),
        Path::Loopback => Position::LOOPBACK,
    }
}

impl World {
    pub(super) fn rest(&mut self, before: &mut Rest, window: &[String]) -> Option<Finding> {
        self.comes_to_rest();
        if self.is_busy() {
            let open = self.ledger().and_then(|ledger| ledger.open.as_ref());
            let why =
                self.runtime.as_ref().and_then(|r| r.control.journal_failure().map(str::to_owned));
            // A later event repairs a disk that still fails.
            if why.is_some() {
                return None;
            }
            return finding(Property::Ends, format!("busy after minutes: {open:?}"));
        }
        let all = self.judge(before, window);
        *before = self.resting();
        all.into_iter().next()
    }

    pub(super) fn comes_to_rest(&mut self) {
        self.run_for(RESTS_AFTER);
        for _ in 0..RESTS_WITHIN {
            if !self.is_busy() && self.is_idle() {
                return;
            }
            self.run_for(Micros::from_secs(5));
        }
    }

    fn judge(&self, before: &Rest, window: &[String]) -> Vec<Finding> {
        let of_light = [
            self.least_cut(before, window, &before.planned, Property::LeastCut),
            self.least_cut(before, window, &before.rings, Property::LeastCutOfClosed),
            self.both_ends(),
        ];
        let of_words = [self.said(), self.refused()];
        of_words.into_iter().chain(of_light).flatten().chain(self.well()).collect()
    }

    fn plan_in_force(&self) -> Option<&Plan> {
        self.runtime.as_ref()?.control.plan()
    }

    fn resting(&self) -> Rest {
        let ports = self.installed.hbd.fibres().map(|fibre| self.installed.hbd.ports(fibre));
        let ends = ports.map(|(a, b)| (end_of_port(a), end_of_port(b)));
        let lit = ends.filter(|(a, b)| self.plant.stands(a, b)).collect();
        let plan = self.plan_in_force();
        let rings = plan.map(|plan| self.closed_rings(plan)).unwrap_or_default();
        let last = self.ledger().map(|ledger| ledger.last_txn).unwrap_or_default();
        let avoided = plan.into_iter().flat_map(|plan| plan.faults.iter().copied()).collect();
        let planned = plan.map(rings_of).unwrap_or_default();
        Rest { lit, rings, planned, avoided, last }
    }

    fn amiss(&self, plan: &Plan) -> Vec<String> {
        let wrong = plan.transceivers.iter().filter_map(|transceiver| {
            let name = DeviceName::from(transceiver.bundle.to_string().as_str());
            let (stands, wants) = (self.plant.modules[&name].position, position(transceiver.path));
            if stands != wants {
                return Some(format!("{name} is at {stands}, the plan has {wants}"));
            }
            let is_used = plan.circuits.iter().any(|circuit| {
                [circuit.a, circuit.b].iter().any(|port| port.bundle == transceiver.bundle)
            }) || wants == Position::LOOPBACK;
            (is_used && !self.plant.is_lit(&name)).then(|| format!("{name} sees no light"))
        });
        wrong.collect()
    }

    /// Returns the rings whose modules all match the plan and receive light.
    fn closed_rings(&self, plan: &Plan) -> Vec<BTreeSet<NodeId>> {
        let open: BTreeSet<NodeId> = plan
            .transceivers
            .iter()
            .filter(|transceiver| {
                let name = DeviceName::from(transceiver.bundle.to_string().as_str());
                let (module, wants) = (&self.plant.modules[&name], position(transceiver.path));
                let is_hidden = module.is_off && wants == Position::LOOPBACK;
                module.position != wants || !(is_hidden || self.plant.is_lit(&name))
            })
            .map(|transceiver| transceiver.bundle.node)
            .collect();
        rings_of(plan).into_iter().filter(|ring| ring.is_disjoint(&open)).collect()
    }

    // ---- answers -------------------------------------------------------------------------------

    fn said(&self) -> Option<Finding> {
        let ledger = self.ledger()?;
        if self.runtime.as_ref()?.control.journal_failure().is_some() {
            return None;
        }
        let property = match self.disk.has_failed() {
            true => Property::AcknowledgedOnBadDisk,
            false => Property::Acknowledged,
        };
        let oldest = ledger.history.front().map_or(Txn(0), |past| past.txn);
        for (txn, (cause, result)) in self.ended.iter().filter(|(txn, _)| **txn >= oldest) {
            let now = ledger.history.iter().find(|past| past.txn == *txn);
            if now.map(|past| (&past.cause, past.result)) != Some((cause, *result)) {
                let now = now.map(|past| (past.cause.clone(), past.result));
                let what = format!("transaction {txn} {cause:?} was {result:?} and is {now:?}");
                return finding(property, what);
            }
        }
        for asked in &self.asked {
            let kept = ledger.requests.get(&asked.id).map(|(_, txn)| *txn);
            let is_kept = match &asked.answer {
                Some(Answer::Accepted { txn }) => kept == Some(Some(*txn)),
                Some(Answer::Done | Answer::Adopted { .. }) => kept.is_some(),
                _ => true,
            };
            if !is_kept {
                let what =
                    format!("{}: {:?}, and the journal has {kept:?}", asked.what, asked.answer);
                return finding(property, what);
            }
            let confirmed = asked.what.strip_prefix("type confirm ").and_then(|t| t.parse().ok());
            let confirmed = confirmed.map(Txn).filter(|_| asked.answer == Some(Answer::Done));
            let undone = |past: &&lightloom_control::ledger::Past| {
                confirmed.is_some_and(|txn| past.cause == Cause::ConfirmTimeout(txn))
            };
            if let Some(past) = ledger.history.iter().find(undone) {
                let what = format!("{}: done, and {} undid it", asked.what, past.txn);
                return finding(property, what);
            }
        }
        None
    }

    fn refused(&self) -> Option<Finding> {
        let ledger = self.ledger()?;
        for asked in &self.asked {
            let said = match &asked.answer {
                Some(Answer::Refused { reasons } | Answer::NothingToDo { reasons }) => {
                    reasons.join("; ")
                }
                Some(Answer::Conflict { reason }) => reason.clone(),
                _ => continue,
            };
            if let Some((_, txn)) = ledger.requests.get(&asked.id)
                && !said.contains("recorded as failed")
            {
                let what = format!("{} was refused ({said}), and is kept as {txn:?}", asked.what);
                return finding(Property::Refused, what);
            }
        }
        None
    }

    // ---- light ---------------------------------------------------------------------------------

    /// Ignores circuits with an end that was moved manually, cannot move, or is in the status.
    fn both_ends(&self) -> Option<Finding> {
        let (plan, status) = (self.plan_in_force()?, self.status()?);
        let drifted = status.devices.iter().filter(|device| !device.drift.is_empty());
        let named = drifted.map(|device| &device.name).chain(status.attention.keys());
        let named = named.chain(status.owed.keys()).map(|name| DeviceName::from(name.as_str()));
        let mut named: BTreeSet<DeviceName> = named.collect();
        // A rollback returns an adopted module to the adopted position, outside the plan.
        let adopts = |asked: &super::world::Asked| asked.what.starts_with("type adopt");
        if self.asked.iter().any(adopts) {
            let ends = status.dark_circuits.iter().flat_map(|dark| &dark.ends);
            let modules = ends.filter_map(|end| end.split('.').next());
            named.extend(modules.map(DeviceName::from));
        }
        for circuit in &plan.circuits {
            let ends = [end_of_port(circuit.a), end_of_port(circuit.b)];
            let modules = || ends.iter().map(|end| &self.plant.modules[&end.0]);
            let excused =
                modules().any(|m| m.is_touched || m.is_off || m.is_silent || m.is_stuck || m.lies);
            let looks = ends.iter().filter(|end| self.plant.modules[&end.0].position == end.2);
            if looks.count() == 1 && !excused && !ends.iter().any(|end| named.contains(&end.0)) {
                let at = modules().map(|module| module.position.to_string()).collect::<Vec<_>>();
                let what =
                    format!("{}-{} of the plan: its ends are at {at:?}", circuit.a, circuit.b);
                return finding(Property::BothEnds, what);
            }
        }
        None
    }

    fn least_cut(
        &self,
        before: &Rest,
        window: &[String],
        rings: &[BTreeSet<NodeId>],
        property: Property,
    ) -> Option<Finding> {
        // Consider both cases, because a ring may have been opened before or after the decision.
        let without = |opened| self.least_cut_without(&opened, before, window, rings, property);
        without(opened(window)).and_then(|_| without(BTreeSet::new()))
    }

    fn least_cut_without(
        &self,
        opened: &BTreeSet<NodeId>,
        before: &Rest,
        window: &[String],
        rings: &[BTreeSet<NodeId>],
        property: Property,
    ) -> Option<Finding> {
        let (ledger, plan) = (self.ledger()?, self.plan_in_force()?);
        let news = || ledger.history.iter().filter(|past| past.txn > before.last);
        let own = |cause: &Cause| matches!(cause, Cause::Bypass | Cause::Repair);
        let committed = news().filter(|past| past.result == TxnResult::Committed).count();
        if committed != 1 || !news().all(|past| own(&past.cause)) {
            return None;
        }
        let now = self.resting();
        // A fibre that was dark before the change was not part of a ring.
        let carried = |port: Port| {
            let end = end_of_port(port);
            before.lit.iter().any(|(a, b)| *a == end || *b == end)
        };
        let added = now.avoided.difference(&before.avoided);
        let added = added.filter(|part| !matches!(part, Part::Fibre(port) if !carried(*port)));
        let lost: BTreeSet<NodeId> = added.filter_map(|part| part.node()).collect();
        let mut hit = self.unusable(window)?;
        hit.extend(&lost);
        let is_healthy =
            |ring: &&BTreeSet<NodeId>| ring.is_disjoint(&lost) && ring.is_disjoint(opened);
        let healthy: Vec<&BTreeSet<NodeId>> = rings.iter().filter(is_healthy).collect();
        let of = |ring: &BTreeSet<NodeId>, (a, b): &(FibreEnd, FibreEnd)| {
            [a, b].iter().all(|end| node_of(&end.0).is_some_and(|node| ring.contains(&node)))
        };
        let planned: BTreeSet<(FibreEnd, FibreEnd)> = plan
            .circuits
            .iter()
            .map(|circuit| (end_of_port(circuit.a), end_of_port(circuit.b)))
            .flat_map(|(a, b)| [(a.clone(), b.clone()), (b, a)])
            .collect();
        let gone = |ring: &&&BTreeSet<NodeId>| {
            let ring: &BTreeSet<NodeId> = ring;
            let mut dark = before.lit.difference(&now.lit).filter(|circuit| of(ring, circuit));
            dark.any(|circuit| !planned.contains(circuit))
        };
        let cut = healthy.iter().filter(gone).count();
        let size = rings.first().map_or(0, BTreeSet::len);
        // Count all rings of the daemon's plan, even those that have failed since.
        let served = rings_of(plan).len();
        if cut == 0 || size == 0 {
            return None;
        }
        let chains = self.chains(&hit, size);
        let least = (0..=healthy.len()).find(|moved| {
            subsets(healthy.len(), *moved).into_iter().any(|set| {
                let stays = healthy.iter().enumerate().filter(|(index, _)| set & (1 << index) == 0);
                let held: BTreeSet<NodeId> = stays.flat_map(|(_, ring)| (*ring).clone()).collect();
                let free = chains.iter().filter(|chain| chain.is_disjoint(&held));
                let wanted = served - (healthy.len() - moved).min(served);
                packs(&free.collect::<Vec<_>>(), wanted)
            })
        });
        if least.is_some_and(|least| cut > least) {
            let what = format!(
                "{cut} of {} healthy rings cut for {served} in service, {least:?} had to be: {:?}",
                healthy.len(),
                news().map(|past| (past.txn, past.cause.clone())).collect::<Vec<_>>()
            );
            return finding(property, what);
        }
        None
    }

    /// Returns all nodes with a fault, whether known or not, and the nodes in `window`.
    fn unusable(&self, window: &[String]) -> Option<BTreeSet<NodeId>> {
        let unsound = self.plant.modules.iter().filter(|(_, module)| {
            module.is_off || module.is_silent || module.is_stuck || module.lies
        });
        let mut hit: BTreeSet<NodeId> = unsound.filter_map(|(name, _)| node_of(name)).collect();
        hit.extend(self.plant.cut.iter().filter_map(|end| node_of(&end.0)));
        let crossed = self.plant.crossed.iter().flat_map(|(one, other)| [one, other]);
        let crossed = crossed.flat_map(|end| [end, &self.plant.fibres[end]]);
        hit.extend(crossed.filter_map(|end| node_of(&end.0)));
        let status = self.status()?;
        let broken = status.broken_parts.iter().map(|part| part.part.as_str());
        let words = window.iter().flat_map(|line| line.split_whitespace());
        let named = words.chain(broken).map(|word| word.split('/').next().unwrap_or(word));
        hit.extend(named.filter_map(|word| word.parse::<NodeId>().ok()));
        Some(hit)
    }

    /// Returns chains of nodes. A chain enters each node by one bundle and leaves it by the other.
    fn chains(&self, hit: &BTreeSet<NodeId>, size: usize) -> Vec<BTreeSet<NodeId>> {
        let mut joined: BTreeMap<(NodeId, u8), Vec<(NodeId, u8)>> = BTreeMap::new();
        for (a, b) in self.installed.hbd.fibres().map(|fibre| self.installed.hbd.ports(fibre)) {
            let side = |port: Port| (port.bundle.node, port.bundle.bundle);
            joined.entry(side(a)).or_default().push(side(b));
            joined.entry(side(b)).or_default().push(side(a));
        }
        let mut found = BTreeSet::new();
        let mut paths: Vec<(Vec<NodeId>, u8)> = joined
            .keys()
            .filter(|(node, _)| !hit.contains(node))
            .map(|(node, bundle)| (vec![*node], *bundle))
            .collect();
        while let Some((path, leaves)) = paths.pop() {
            if path.len() == size {
                found.insert(path.into_iter().collect());
                continue;
            }
            let last = path[path.len() - 1];
            for (node, enters) in joined.get(&(last, leaves)).into_iter().flatten() {
                if !hit.contains(node) && !path.contains(node) {
                    let longer = path.iter().copied().chain([*node]).collect();
                    paths.push((longer, 1 - *enters));
                }
            }
        }
        found.into_iter().collect()
    }

    // ---- the page ------------------------------------------------------------------------------

    pub(super) fn page(&self) -> Option<String> {
        Some(crate::ctl::status_page(&self.status()?))
    }

    fn well(&self) -> Vec<Finding> {
        let plan = self.plan_in_force();
        let Some(page) = self.page() else { return Vec::new() };
        let amiss = plan.map(|plan| self.amiss(plan)).unwrap_or_default();
        if page.starts_with("ALL IS WELL") {
            let silent = self.plant.modules.iter().find(|(name, _)| !self.plant.answers(name));
            let why = amiss.first().cloned();
            let why = why.or_else(|| silent.map(|(name, _)| format!("{name} does not answer")));
            return why.and_then(|why| finding(Property::WrongWell, why)).into_iter().collect();
        }
        let is_left = |name: &DeviceName| self.plant.modules[name].is_touched;
        let touched = self.plant.modules.keys().any(is_left);
        if !self.plant.is_sound() || touched || !amiss.is_empty() || plan.is_none() {
            return Vec::new();
        }
        let expected = ["DEGRADED", "NOT BYPASSED", "NO BYPASS LEFT", "FEWER CIRCUITS", "JOURNAL"];
        let alarms = headers(&page).into_iter().filter(|header| {
            !expected.iter().any(|word| header.starts_with(word))
                && !header.contains("AWAITS CONFIRMATION")
                && !header.contains("(when it was bypassed")
        });
        alarms.filter_map(|alarm| finding(Property::WrongAlarm, alarm)).collect()
    }

    pub(super) fn follow_hints(&mut self) -> Option<Finding> {
        self.perform("mend");
        self.comes_to_rest();
        let mut tried: BTreeSet<String> = BTreeSet::new();
        let mut last = Vec::new();
        for _ in 0..TYPED_MAX {
            let page = self.page()?;
            if page.starts_with("ALL IS WELL") {
                return self.well().into_iter().chain(self.all_serve()).next();
            }
            let shown = headers(&page);
            if shown != last {
                (tried, last) = (BTreeSet::new(), shown);
            }
            let next = commands(&page).into_iter().find(|command| !tried.contains(command));
            let Some(command) = next else {
                let what = format!("nothing left to type: {}", last.join(" | "));
                return finding(Property::Hints, what);
            };
            self.note(format!("--- hint: {command}"));
            self.types(&command);
            tried.insert(command);
            self.comes_to_rest();
        }
        finding(Property::Hints, format!("typed without end: {}", last.join(" | ")))
    }

    fn all_serve(&self) -> Option<Finding> {
        let plan = self.plan_in_force()?;
        let closed = self.closed_rings(plan).len() as u64;
        let short = plan.jobs.iter().find(|job| {
            let nodes = u64::from(job.tp) / 4;
            job.gpus_wanted.is_some_and(|wanted| wanted > closed * nodes * 4)
        });
        short.and_then(|job| {
            let what =
                format!("well with {closed} rings, the job wants {:?} GPUs", job.gpus_wanted);
            finding(Property::Hints, what)
        })
    }
}

/// Returns the nodes whose rings a manual move or a module exchange in `window` may have opened.
fn opened(window: &[String]) -> BTreeSet<NodeId> {
    let lines = window
        .iter()
        .filter(|line| ["hand ", "exchange ", "on "].iter().any(|word| line.starts_with(word)));
    let parts = lines.filter_map(|line| line.split_whitespace().nth(1));
    parts.filter_map(|part| part.split('/').next()?.parse().ok()).collect()
}

fn headers(page: &str) -> Vec<String> {
    let alarms = page.split("\nversion ").next().unwrap_or_default();
    let lines = alarms.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
    lines.map(str::to_owned).collect()
}

fn commands(page: &str) -> Vec<String> {
    let alarms = page.split("\nversion ").next().unwrap_or_default();
    let pieces = alarms.split("lightloom ctl ").skip(1);
    let ends = ["\n", ";", "`", ")", ", or", " && ", " to ", ": "];
    let command = |piece: &str| {
        let end = ends.iter().filter_map(|end| piece.find(end)).min();
        piece[..end.unwrap_or(piece.len())].trim().to_owned()
    };
    let looks = |command: &String| {
        let verbs = ["status", "drift", "watch", "wait", "journal", "module", "commission"];
        verbs.iter().any(|verb| command.starts_with(verb))
            || command.contains("--dry-run")
            || ["PART", "DEVICE", "NAME"].iter().any(|word| command.contains(word))
    };
    pieces.map(command).filter(|command| !looks(command)).collect()
}

/// Returns the subsets as bit masks.
fn subsets(count: usize, size: usize) -> Vec<u32> {
    (0..1_u32 << count).filter(|set| set.count_ones() as usize == size).collect()
}

fn packs(chains: &[&BTreeSet<NodeId>], wanted: usize) -> bool {
    if wanted == 0 {
        return true;
    }
    chains.iter().enumerate().any(|(index, first)| {
        let rest: Vec<&BTreeSet<NodeId>> =
            chains[index + 1..].iter().filter(|chain| chain.is_disjoint(first)).copied().collect();
        packs(&rest, wanted - 1)
    })
}
