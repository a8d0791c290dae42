//! Which plan is on the devices, what broke, and the bypass around it, asked for or not.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::id::BundleId;
use lightloom_fabric::khop::Port;
use lightloom_fabric::plan::Plan;
use tokio::sync::oneshot;

use super::{Call, Runtime};
use crate::bypass;
use crate::change::Mode;
use crate::config::{OnFault, micros};
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
            return Err(Answer::NothingToDo { reasons });
        }
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

    /// The parts that are known to be broken, since when and why.
    #[must_use]
    pub fn broken(&self) -> BTreeMap<String, Broken> {
        let mut broken = self.controller.ledger().broken.clone();
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
            let name = part.to_string();
            // A repaired node has its bundles back, also those that broke one by one.
            let of_node = |known: &String| {
                matches!(part, Part::Node(_)) && known.split('/').next() == Some(&name)
            };
            if known.keys().any(|known| *known == name || of_node(known)) {
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
            reasons.push(format!(
                "make it again with `--fault {names}`, say `ctl fault --repaired PART` of what works \
                 again, or apply with mode `update`, which forgets that they are broken"
            ));
        }
        reasons
    }

    /// Modules that are silent for longer than the heartbeat, or at once when the light of a fibre
    /// of theirs is gone too; and fibres without light between modules that are well. With the reason.
    fn broken_by_itself(&self) -> BTreeMap<Part, String> {
        let (now, heartbeat) = (self.clock.now().mono, micros(self.config.file.policies.heartbeat));
        let bundle = |device: &DeviceName| device.as_str().parse::<BundleId>().ok();
        // Also what is known to be broken and was brought back by undoing a change.
        let known = self.controller.ledger().broken.iter();
        let mut broken: BTreeMap<Part, String> = known
            .filter_map(|(name, broken)| Some((name.parse().ok()?, broken.why.clone())))
            .collect();
        for (&bundle, device) in &self.config.bundles {
            let contact = self.contacts.get(device);
            let down = contact.and_then(|c| Some((c.down_since?, c.trouble.as_deref()?)));
            if let Some((_, why)) = down.filter(|(since, _)| *since + heartbeat <= now) {
                let silent =
                    format!("silent for longer than {:.1} s: {why}", heartbeat.as_secs_f64());
                broken.insert(Part::Bundle(bundle), silent);
            }
        }
        for fibre in self.controller.dark_fibres() {
            let ((near, _, position), (far, ..)) = (&fibre.near, &fibre.far);
            let dbm = f64::from(fibre.power_mdbm) / 1000.0;
            match (fibre.far_is_down, bundle(near), bundle(far)) {
                (true, _, Some(bundle)) => {
                    let why = format!("silent, and {near} sees {dbm:.1} dBm of it");
                    broken.entry(Part::Bundle(bundle)).or_insert(why);
                }
                (false, Some(bundle), Some(_)) => {
                    let path = u8::try_from(position.0).unwrap_or(u8::MAX);
                    let far = match &fibre.far_lit_by {
                        None => format!("{far} looks into the fibre"),
                        Some(other) => format!("{far} is lit by {other}: crossed cables?"),
                    };
                    let why = format!("{near} sees {dbm:.1} dBm, and {far}");
                    broken.insert(Part::Fibre(Port { bundle, path }), why);
                }
                _ => {}
            }
        }
        broken
    }

    /// Bypasses what broke by itself, if the policy is to do so, once it is not in the plan yet.
    pub(super) fn notice_deaths(&mut self) {
        let now = self.clock.now();
        if self.config.file.policies.on_fault != OnFault::Bypass
            || self.controller.is_busy()
            || self.failed.is_some()
            || now.mono < self.bypass_not_before
        {
            return;
        }
        let (Some(installed), Some(plan)) = (&self.installed, &self.plan) else { return };
        let hbd = &installed.hbd;
        let Ok(mut known) = FaultSet::of(hbd, plan.faults.iter().copied()) else { return };
        let mut broken: Vec<(Part, String)> = self.broken_by_itself().into_iter().collect();
        // One fibre is seen to be dark from both of its ends.
        broken.retain(|(part, _)| {
            bypass::is_news(hbd, &known, *part) && known.insert(hbd, *part).unwrap_or(false)
        });
        if broken.is_empty() {
            return;
        }
        let tried: Vec<Part> = broken.iter().map(|(part, _)| *part).collect();
        let wait = self.patience.wait_after(&tried);
        self.bypass_not_before = now.mono + wait;
        let parts: Vec<String> =
            broken.iter().map(|(part, why)| format!("{part} ({why})")).collect();
        let parts = parts.join(", ");
        if !self.controller.may_act_alone(&now) {
            tracing::error!(
                parts,
                "broken, but too much was changed without being asked: `ctl fault`"
            );
            return;
        }
        tracing::warn!(parts, again_in_s = wait.0 / 1_000_000, "broken: bypassing");
        let request = format!("policy-{}-{}", now.wall_ms, self.controller.ledger().last_txn.0 + 1);
        let actor = "policy:fault".to_owned();
        let asked = Asked { actor, digest: request.clone(), request };
        let (answer, _) = oneshot::channel();
        self.take_call(Call::Fault { asked, broken, repaired: Vec::new(), answer });
    }
}

/// The broken part that this one is inside of.
fn inside<'a>(part: &Part, known: &'a BTreeMap<String, Broken>) -> Option<&'a str> {
    let part = part.to_string();
    let outer = |name: &&String| {
        part.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with(['/', '.']))
    };
    known.keys().find(outer).map(String::as_str)
}
