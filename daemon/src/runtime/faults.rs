//! Which plan is on the devices, what is known to be broken, and the bypass around it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;

use super::Runtime;
use crate::bypass;
use crate::change::Mode;
use crate::controller::{Answer, Apply};
use crate::desired;
use crate::record::{Asked, Broken, Cause};
use crate::state::{DeviceName, Fabric};

impl Runtime {
    fn plan_file(&self, sha256: &str) -> PathBuf {
        self.config.file.state_dir.join(format!("plan-{sha256}.json"))
    }

    /// Plans are kept so that a bypass can start from what is lit, also after a restart. A plan that
    /// cannot be kept only costs that: applying goes on.
    pub(super) fn keep_plan(&mut self, sha256: &str, plan: Plan) {
        let file = self.plan_file(sha256);
        // A file of this name holds this plan, or what a crash of the machine left of it.
        if self.load_plan(sha256).is_none() {
            let kept = serde_json::to_vec(&plan).map_err(std::io::Error::from);
            if let Err(error) = kept.and_then(|bytes| std::fs::write(&file, bytes)) {
                tracing::warn!(%error, file = %file.display(), "the plan could not be kept");
            }
        }
        self.plans.insert(sha256.to_owned(), plan);
    }

    pub(super) fn load_plan(&self, sha256: &str) -> Option<Plan> {
        let bytes = std::fs::read(self.plan_file(sha256)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn bypass(
        &self,
        asked: Asked,
        broken: &[(Part, String)],
        repaired: &[Part],
    ) -> Result<(Asked, Apply, Plan), Answer> {
        let refused = |why: String| Answer::Refused { reasons: vec![why] };
        let installed =
            self.installed.as_ref().ok_or_else(|| refused("no fabric is named".into()))?;
        let plan = self
            .plan
            .as_ref()
            .ok_or_else(|| refused("no plan is known to be on the devices: apply one".into()))?;
        // A fibre has a port at each end; plans name it by the lower.
        let named = |part: &Part| {
            let alone = FaultSet::of(&installed.hbd, [*part]).map(|one| one.parts(&installed.hbd));
            alone.ok().and_then(|parts| parts.first().copied()).unwrap_or(*part)
        };
        let broken: Vec<(Part, String)> =
            broken.iter().map(|(part, why)| (named(part), why.clone())).collect();
        let repaired: Vec<Part> = repaired.iter().map(named).collect();
        let again = self.controller.ledger().requests.contains_key(&asked.request);
        if let Some(reasons) = self.no_news(&broken, &repaired).filter(|_| !again) {
            // What is broken already is as asked; what was never broken is another part than was meant.
            return Err(match broken.is_empty() {
                true => Answer::Refused { reasons },
                false => Answer::NothingToDo { reasons },
            });
        }
        let broken = match broken.is_empty() {
            true => broken,
            false => self.with_suspects(broken, &repaired),
        };
        let parts: Vec<Part> = broken.iter().map(|(part, _)| *part).collect();
        let next = bypass::next_plan(installed, plan, &parts, &repaired)
            .map_err(|reasons| Answer::Refused { reasons })?;
        let mut target =
            desired::paths(&next, &self.config).map_err(|reasons| Answer::Refused { reasons })?;
        self.leave_what_cannot_be_reached(&mut target);
        let cause = if broken.is_empty() { Cause::Repair } else { Cause::Bypass };
        let apply = Apply {
            target,
            plan_sha256: bypass::sha256_of(&next),
            mode: Mode::Update,
            cause: Some(cause),
            broken: Some(self.broken_with(&next, |part| {
                let told = broken.iter().find(|(told, _)| told == part);
                told.map_or_else(String::new, |(_, why)| why.clone())
            })),
            ..Apply::default()
        };
        Ok((asked, apply, next))
    }

    /// What cannot be reached and need not move is left for when it is back.
    pub(super) fn leave_what_cannot_be_reached(&self, target: &mut Fabric) {
        let ledger = self.controller.ledger();
        let up = |device: &DeviceName| self.controller.devices().get(device).is_some_and(|d| d.up);
        target.retain(|device, want| up(device) || ledger.owned.get(device) != Some(want));
    }

    /// What was told or found to be broken, also where the bypass around it has not succeeded yet.
    pub(super) fn told_or_found(&self) -> BTreeMap<String, Broken> {
        let mut broken = self.told.clone();
        broken.extend(self.controller.ledger().broken.clone());
        broken
    }

    fn told_file(&self) -> PathBuf {
        self.config.file.state_dir.join("told.json")
    }

    /// What was told and not bypassed yet when the daemon ended.
    pub(super) fn load_told(&self) -> BTreeMap<String, Broken> {
        let bytes = std::fs::read(self.told_file()).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// What a person tells is kept until a plan goes around it, so that a bypass that cannot be made now is
    /// made later.
    pub(super) fn keep_told(
        &mut self,
        asked: &Asked,
        broken: &[(Part, String)],
        repaired: &[Part],
    ) {
        let wall_ms = self.clock.now().wall_ms;
        let by_itself = asked.actor.starts_with("policy:");
        for (part, why) in broken {
            if !by_itself && !self.goes_around(*part) {
                let told = Broken { wall_ms, why: why.clone() };
                self.told.entry(part.to_string()).or_insert(told);
            }
        }
        for part in repaired {
            self.told.retain(|told, _| !is_of(told, part));
        }
    }

    /// After a change: what the plan goes around now need not be kept any more, and what somebody applied
    /// says itself what is broken.
    pub(super) fn forget_told(&mut self, cause: &Cause) {
        let mut told = std::mem::take(&mut self.told);
        told.retain(|name, _| {
            let bypassed = name.parse().is_ok_and(|part| self.goes_around(part));
            !bypassed && *cause != Cause::Apply
        });
        self.told = told;
    }

    /// Writes down what is left of what was told, unless a change is on its way: its intent tells as much
    /// after a crash, and no light waits for another file.
    pub(super) fn write_told(&mut self) {
        if self.told == self.told_written || self.controller.ledger().open.is_some() {
            return;
        }
        self.told_written = self.told.clone();
        let file = self.told_file();
        let kept = serde_json::to_vec(&self.told).map_err(std::io::Error::from);
        if let Err(error) = kept.and_then(|bytes| std::fs::write(&file, bytes)) {
            tracing::warn!(%error, file = %file.display(), "what was told could not be kept");
        }
    }

    /// The parts that are known to be broken, since when and why.
    #[must_use]
    pub fn broken(&self) -> BTreeMap<String, Broken> {
        let mut broken = self.told_or_found();
        for part in self.plan.iter().flat_map(|plan| &plan.faults) {
            broken.entry(part.to_string()).or_default();
        }
        broken
    }

    /// What is known to be broken once `plan` is on the devices; `why` speaks of what is new.
    pub(crate) fn broken_with(
        &self,
        plan: &Plan,
        why: impl Fn(&Part) -> String,
    ) -> BTreeMap<String, Broken> {
        let (known, wall_ms) = (self.broken(), self.clock.now().wall_ms);
        let of = |part: &Part| {
            let news = || Broken { wall_ms, why: why(part) };
            let name = part.to_string();
            let broken = known.get(&name).cloned().unwrap_or_else(news);
            (name, broken)
        };
        plan.faults.iter().map(of).collect()
    }

    /// Why nothing has to be done, where all of it is known.
    fn no_news(&self, broken: &[(Part, String)], repaired: &[Part]) -> Option<Vec<String>> {
        let known = self.broken();
        let mut reasons = Vec::new();
        for (part, _) in broken {
            let since = known.get(&part.to_string()).filter(|_| self.goes_around(*part))?;
            let since =
                if since.why.is_empty() { String::new() } else { format!(": {}", since.why) };
            reasons.push(format!("{part} is known to be broken already{since}"));
        }
        for part in repaired {
            if known.keys().any(|known| is_of(known, part)) {
                return None;
            }
            reasons.push(match inside(part, &known) {
                Some(whole) => format!(
                    "{part} is not known to be broken, but all of {whole} is: repair {whole}"
                ),
                None => format!("{part} is not known to be broken"),
            });
        }
        Some(reasons)
    }

    /// Whether the plan on the devices goes around this part.
    #[must_use]
    pub fn goes_around(&self, part: Part) -> bool {
        let Some((installed, plan)) = self.installed.as_ref().zip(self.plan.as_ref()) else {
            return false;
        };
        let hbd = &installed.hbd;
        FaultSet::of(hbd, plan.faults.iter().copied())
            .is_ok_and(|covered| !bypass::is_news(hbd, &covered, part))
    }

    /// Whether every module of this part can be talked to.
    fn answers(&self, part: &str) -> bool {
        let touched = self.config.bundles.iter().filter(|(bundle, _)| {
            let bundle = bundle.to_string();
            let inside = |inner: &str, outer: &str| {
                inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['/', '.']))
            };
            bundle == part || inside(&bundle, part) || inside(part, &bundle)
        });
        let devices = self.controller.devices();
        touched.map(|(_, device)| devices.get(device)).all(|seen| seen.is_some_and(|seen| seen.up))
    }

    /// Why mode safe refuses this plan: it was made as if parts worked that are known to be broken.
    #[must_use]
    pub fn forgotten_by(&self, plan: &Plan) -> Vec<String> {
        let Some(hbd) = self.installed.as_ref().map(|installed| &installed.hbd) else {
            return Vec::new();
        };
        let Ok(covered) = FaultSet::of(hbd, plan.faults.iter().copied()) else { return Vec::new() };
        let known = self.broken();
        let forgotten = known.iter().filter(|(name, _)| {
            name.parse().is_ok_and(|part| bypass::is_news(hbd, &covered, part))
        });
        let mut reasons: Vec<String> = forgotten
            .map(|(name, broken)| {
                let why = if broken.why.is_empty() { "" } else { &broken.why };
                let sep = if why.is_empty() { "" } else { ": " };
                format!(
                    "{name} is known to be broken{sep}{why}, and this plan was made as if it worked"
                )
            })
            .collect();
        if !reasons.is_empty() {
            let names = known.keys().cloned().collect::<Vec<_>>().join(",");
            let mut ways = format!("make it again with `--fault {names}`");
            // What does not answer refuses every change that moves it, in any mode.
            if known.keys().all(|name| self.answers(name)) {
                ways += ", say `ctl fault --repaired PART` of what works again, or apply with mode \
                         `update`, which forgets that they are broken";
            }
            reasons.push(ways);
        }
        reasons
    }
}

/// Whether a repair of `part` brings this one back: a repaired node has its bundles back, also those that
/// broke one by one.
fn is_of(known: &str, part: &Part) -> bool {
    let name = part.to_string();
    let of_node = matches!(part, Part::Node(_)) && known.split('/').next() == Some(&name);
    known == name || of_node
}

/// The broken part that this one is inside of.
fn inside<'a>(part: &Part, known: &'a BTreeMap<String, Broken>) -> Option<&'a str> {
    let part = part.to_string();
    let outer = |name: &&String| {
        part.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with(['/', '.']))
    };
    known.keys().find(outer).map(String::as_str)
}
