// SPDX-License-Identifier: Apache-2.0
//! Events of a week, one per line.
//!
//! ```text
//!   plan n3 n7 [confirm]    an operator applies a plan around known faults and these nodes
//!   type fault n4/b1        the same words after `lightloom ctl`
//!   off n4 · on n4 · exchange n4/b0 · silent n4/b0 · answers n4/b0 · stuck n4/b0 · lies n4/b0
//!   cut n4/b0.1 · hand n4/b0 2 · cross n4/b0.1 n7/b1.2 · mend
//!   dies 2 before · dies 0 after · takeover 1 before · fails 0 keeps 4000 · kill · takeover
//!   wait 300 · quiet        milliseconds until the next event; or until everything had time, and is judged
//! ```

use lightloom_control::change::Mode;
use lightloom_control::controller::{Apply, Request, Rollback};
use lightloom_control::replan::{plan_anew, sha256_of};
use lightloom_control::state::{DeviceName, FibreEnd, Micros, Position, Slot, Txn};
use lightloom_daemon::runtime::{Call, Runtime};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::khop::Port;
use lightloom_units::id::BundleId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use super::disk::At;
use super::world::{CallTo, World};

const CONFIRM_WITHIN: Micros = Micros::from_secs(300);

impl World {
    pub(super) fn perform(&mut self, line: &str) {
        self.note(format!("--- {line}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            ["plan", around @ ..] => self.plan(line, around),
            ["type", typed @ ..] => self.types(&typed.join(" ")),
            ["wait", ms] => self.run_for(Micros::from_millis(ms.parse().unwrap())),
            ["mend"] => {
                self.plant.mend();
                self.disk.mend();
            }
            ["cut", end] => {
                let near = end_of(end);
                let far = self.plant.fibres[&near].clone();
                self.plant.cut.extend([near, far]);
            }
            ["cross", one, other] if self.plant.crossed.is_none() => {
                let (one, other) = (end_of(one), end_of(other));
                self.plant.swap(&one, &other);
                self.plant.crossed = Some((one, other));
            }
            ["cross", ..] => {}
            ["hand", name, to] => {
                let to = Position(to.parse().unwrap());
                let module = self.plant.modules.get_mut(&DeviceName::from(*name)).unwrap();
                if !module.is_off {
                    module.generation += 1;
                    (module.position, module.is_touched) = (to, true);
                }
            }
            ["kill"] => self.kill(false),
            ["takeover"] => self.kill(true),
            ["dies", syncs, when] => self.dies(syncs, when),
            ["takeover", syncs, when] => {
                self.next_takes_over();
                self.dies(syncs, when);
            }
            ["fails", syncs, how, ms] => {
                let at = At::Fails { keeps: *how == "keeps" };
                self.disk.plan(syncs.parse().unwrap(), at);
                self.mend_disk_in(Micros::from_millis(ms.parse().unwrap()));
            }
            [what, part] => self.happens_to(what, part),
            _ => panic!("no such event: {line}"),
        }
    }

    fn dies(&mut self, syncs: &str, when: &str) {
        self.disk.plan(syncs.parse().unwrap(), At::Dies { after: when == "after" });
    }

    fn happens_to(&mut self, what: &str, part: &str) {
        let of = |name: &DeviceName| {
            name.as_str() == part || name.as_str().split('/').next() == Some(part)
        };
        let names: Vec<DeviceName> = self.plant.modules.keys().filter(|n| of(n)).cloned().collect();
        for name in names {
            let module = self.plant.modules.get_mut(&name).unwrap();
            match what {
                "off" => (module.is_off, module.is_touched) = (true, true),
                "on" if module.is_off => self.plant.restarts(&name),
                "on" => {}
                "exchange" => {
                    module.serial += 1000;
                    (module.is_stuck, module.lies, module.is_silent) = (false, false, false);
                    self.plant.restarts(&name);
                }
                "silent" => module.is_silent = true,
                "answers" => module.is_silent = false,
                "stuck" => (module.is_stuck, module.is_touched) = (true, true),
                "lies" => (module.lies, module.is_touched) = (true, true),
                _ => panic!("no such event: {what}"),
            }
        }
    }

    fn plan(&mut self, what: &str, words: &[&str]) {
        let confirm_within = words.contains(&"confirm").then_some(CONFIRM_WITHIN);
        let nodes = words.iter().filter_map(|word| word.parse::<Part>().ok());
        let known = self.runtime.as_ref().map(|runtime| runtime.control.facts().failed_parts());
        let known = known.into_iter().flatten().filter_map(|(name, _)| name.parse::<Part>().ok());
        let around: Vec<Part> = nodes.chain(known).collect();
        let Ok(faults) = FaultSet::of(&self.installed, around) else { return };
        let Ok(plan) = plan_anew(&self.installed, &faults, Seed(1)) else { return };
        self.ask(what, |runtime, id| {
            let wanted = runtime.control.change_start().wanted(&plan, None, Mode::Update);
            let wanted = wanted.map_err(|reasons| reasons.join("; "))?;
            let apply = Apply {
                target: wanted.target,
                phase: wanted.phase,
                plan_sha256: sha256_of(&plan),
                mode: Mode::Update,
                confirm_within,
                ..Apply::default()
            };
            Ok(asks(id, Request::Apply(apply), Some(Box::new(plan))))
        });
    }

    pub(super) fn types(&mut self, typed: &str) {
        let line = format!("type {typed}");
        let words: Vec<&str> = typed.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        match &words[..] {
            ["confirm", rest @ ..] => {
                let pending = self.ledger().and_then(|ledger| ledger.pending.as_ref());
                let named = rest.first().and_then(|txn| txn.parse().ok()).map(Txn);
                let Some(txn) = named.or(pending.map(|pending| pending.txn)) else { return };
                let line = format!("type confirm {txn}");
                self.ask(&line, |_, id| Ok(asks(id, Request::Confirm(txn), None)));
            }
            ["rollback", back] => {
                let back = *back;
                self.ask(&line, |runtime, id| {
                    let last = runtime.control.ledger().last_txn.0;
                    // Events do not contain transaction numbers: `-1` is the second-last
                    // transaction.
                    let txn = match back.strip_prefix('-') {
                        Some(back) => last.saturating_sub(back.parse().unwrap()),
                        None => back.parse().unwrap(),
                    };
                    let rollback = Rollback { txn: Txn(txn), ..Rollback::default() };
                    Ok(asks(id, Request::Rollback(rollback), None))
                });
            }
            ["adopt", names @ ..] => self.adopts(&line, names),
            ["apply", "--restore", ..] => self.ask(&line, |runtime, id| {
                let home = runtime.control.controller().way_home();
                let home = home.map_err(|reasons| reasons.join("; "))?;
                Ok(asks(id, Request::Apply(home), None))
            }),
            ["apply", "--again", rest @ ..] => {
                let mode = if rest.contains(&"update") { Mode::Update } else { Mode::Safe };
                self.ask(&line, |runtime, id| again(runtime, id, mode));
            }
            ["apply", "PLAN", ..] => self.plan(&line, &[]),
            ["resume"] => self.ask(&line, |_, id| Ok(asks(id, Request::Resume, None))),
            ["fault", "--repaired", parts @ ..] => self.faults(&line, &[], parts),
            ["fault", parts @ ..] => self.faults(&line, parts, &[]),
            _ => self.note(format!("{line}: looks")),
        }
    }

    fn adopts(&mut self, line: &str, names: &[&str]) {
        let drifted = || {
            let status = self.status().unwrap_or_default();
            let drifted = status.devices.iter().filter(|device| !device.drift.is_empty());
            drifted.map(|device| DeviceName::from(device.name.as_str())).collect()
        };
        let devices: Vec<DeviceName> = match names {
            ["all"] => self.plant.modules.keys().cloned().collect(),
            ["drifted"] => drifted(),
            names => names.iter().map(|name| DeviceName::from(*name)).collect(),
        };
        self.ask(line, |_, id| Ok(asks(id, Request::Adopt(devices.into()), None)));
    }

    fn faults(&mut self, line: &str, broken: &[&str], repaired: &[&str]) {
        let known = self.runtime.as_ref().map(|runtime| runtime.control.facts().failed_parts());
        let all = known.into_iter().flatten().map(|(name, _)| name).collect::<Vec<_>>();
        let repaired: Vec<Part> = match repaired {
            ["all"] => all.iter().filter_map(|name| name.parse().ok()).collect(),
            named => named.iter().filter_map(|name| name.parse().ok()).collect(),
        };
        let why = "reported by operator".to_owned();
        let broken: Vec<(Part, String)> =
            broken.iter().filter_map(|n| Some((n.parse().ok()?, why.clone()))).collect();
        if broken.is_empty() && repaired.is_empty() {
            return;
        }
        self.ask(line, |_, id| {
            let asked = asked(id);
            let call = |answer| Call::Fault { asked, broken, repaired, answer };
            Ok(Box::new(call))
        });
    }
}

fn asked(id: &str) -> lightloom_control::record::Asked {
    let (id, actor) = (id.to_owned(), "operator".into());
    lightloom_control::record::Asked { actor, digest: id.clone(), request: id }
}

fn asks(id: &str, request: Request, plan: Option<Box<lightloom_fabric::plan::Plan>>) -> CallTo {
    let asked = asked(id);
    Box::new(|answer| Call::Ask { asked, request, plan, answer })
}

fn again(runtime: &Runtime, id: &str, mode: Mode) -> Result<CallTo, String> {
    let join = |reasons: Vec<String>| reasons.join("; ");
    let (plan_sha256, plan) = runtime.control.facts().applied_last().map_err(join)?;
    let wanted = runtime.control.change_start().wanted(&plan, None, mode).map_err(join)?;
    let (target, phase) = (wanted.target, wanted.phase);
    let apply = Apply { target, phase, plan_sha256, mode, ..Apply::default() };
    Ok(asks(id, Request::Apply(apply), Some(Box::new((*plan).clone()))))
}

fn end_of(name: &str) -> FibreEnd {
    let port: Port = match name.parse::<Part>() {
        Ok(Part::Fibre(port)) => port,
        other => panic!("{name} does not name the end of a fibre: {other:?}"),
    };
    let device = DeviceName::from(port.bundle.to_string().as_str());
    (device, Slot(0), Position(u32::from(port.path)))
}

// ---- drawing
// ---------------------------------------------------------------------------------------

pub(super) fn draw(seed: u64, nodes: u32, fibres: &[FibreEnd]) -> Vec<String> {
    let mut rng = Seed(seed).stream("weeks", 0);
    let mut week = Vec::new();
    let events = rng.random_range(65..=80);
    let mut drawn = 0;
    // Few properties can be checked with more than four faults since the last repair.
    let mut broken = 0;
    while drawn < events {
        let line = match broken {
            4.. => "mend".to_owned(),
            _ => one(&mut rng, nodes, fibres),
        };
        let breaks = ["off", "cut", "silent", "stuck", "lies", "cross"];
        broken += usize::from(breaks.iter().any(|word| line.starts_with(word)));
        if line == "mend" {
            broken = 0;
        }
        week.push(line);
        drawn += 1;
        week.push(match rng.random_bool(0.7) {
            true => "quiet".to_owned(),
            false => format!("wait {}", [1, 20, 300, 2_000, 6_000][rng.random_range(0..5)]),
        });
    }
    week.push("mend".to_owned());
    week.push("quiet".to_owned());
    week
}

fn one(rng: &mut Stream, nodes: u32, fibres: &[FibreEnd]) -> String {
    let node = rng.random_range(0..nodes);
    let bundle =
        BundleId { node: lightloom_units::id::NodeId(node), bundle: rng.random_range(0..2) };
    let end = |rng: &mut Stream| {
        let (device, _, position) = &fibres[rng.random_range(0..fibres.len())];
        format!("{device}.{}", position.0)
    };
    let sync = rng.random_range(0..3);
    let when = if rng.random_bool(0.5) { "before" } else { "after" };
    match rng.random_range(0..100) {
        0..8 => format!("plan n{node}"),
        8..14 => format!("plan n{node} n{} confirm", rng.random_range(0..nodes)),
        14..18 => "plan".to_owned(),
        18..24 => "type confirm".to_owned(),
        24..30 => format!("type rollback -{}", rng.random_range(0..3)),
        30..34 => "type adopt drifted".to_owned(),
        34..36 => format!("type adopt {bundle}"),
        36..39 => "type apply --restore".to_owned(),
        39..41 => "type apply --again --mode update".to_owned(),
        41..46 => format!("type fault {bundle}"),
        46..49 => format!("type fault n{node}"),
        49..55 => "type fault --repaired all".to_owned(),
        55..56 => "type resume".to_owned(),
        56..60 => format!("off {bundle}"),
        60..64 => format!("off n{node}"),
        64..67 => format!("cut {}", end(rng)),
        67..69 => format!("exchange {bundle}"),
        69..72 => format!("silent {bundle}"),
        72..76 => format!("hand {bundle} {}", [1, 2, 15][rng.random_range(0..3)]),
        76..78 => format!("cross {} {}", end(rng), end(rng)),
        78..80 => format!("stuck {bundle}"),
        80..82 => format!("lies {bundle}"),
        82..86 => "mend".to_owned(),
        86..90 => format!("dies {sync} {when}"),
        90..94 => format!("takeover {sync} {when}"),
        94..97 => {
            let how = if rng.random_bool(0.5) { "keeps" } else { "loses" };
            format!("fails {sync} {how} {}", [500, 4_000, 20_000][rng.random_range(0..3)])
        }
        97..99 => "kill".to_owned(),
        _ => "takeover".to_owned(),
    }
}
