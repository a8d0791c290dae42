//! Which plan is on the devices, what broke, and the bypass around it, asked for or not.

use std::collections::BTreeSet;
use std::path::PathBuf;

use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::id::BundleId;
use lightloom_fabric::khop::Port;
use lightloom_fabric::plan::Plan;
use tokio::sync::oneshot;

use super::{Call, Contact, Runtime};
use crate::bypass;
use crate::change::Mode;
use crate::config::{OnFault, micros};
use crate::controller::{Answer, Apply};
use crate::desired;
use crate::record::{Asked, Cause};
use crate::state::{DeviceName, Micros};

/// How long after one bypass of its own the daemon tries the next.
const BYPASS_AGAIN_AFTER: Micros = Micros::from_secs(1);

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
        broken: &[Part],
        repaired: &[Part],
    ) -> Result<(Asked, Apply, Plan), Answer> {
        let refused = |why: String| Answer::Refused { reasons: vec![why] };
        let installed =
            self.installed.as_ref().ok_or_else(|| refused("no fabric is named".into()))?;
        let plan = self
            .plan
            .as_ref()
            .ok_or_else(|| refused("no plan is known to be on the devices: apply one".into()))?;
        let next = bypass::next_plan(installed, plan, broken, repaired)
            .map_err(|reasons| Answer::Refused { reasons })?;
        let mut target =
            desired::paths(&next, &self.config).map_err(|reasons| Answer::Refused { reasons })?;
        // What cannot be reached and need not move is left for when it is back.
        let ledger = self.controller.ledger();
        let up = |device: &DeviceName| self.controller.devices().get(device).is_some_and(|d| d.up);
        target.retain(|device, want| up(device) || ledger.owned.get(device) != Some(want));
        let apply = Apply {
            target,
            plan_sha256: bypass::sha256_of(&next),
            mode: Mode::Update,
            cause: Some(Cause::Bypass),
            ..Apply::default()
        };
        Ok((asked, apply, next))
    }

    /// Modules that are silent for longer than the heartbeat, or at once when the light of a fibre
    /// of theirs is gone too; and fibres without light between modules that are well.
    fn broken_by_itself(&self) -> Vec<Part> {
        let (now, heartbeat) = (self.clock.now().mono, micros(self.config.file.policies.heartbeat));
        let contact = |device: &DeviceName| self.contacts.get(device);
        let bundle = |device: &DeviceName| device.as_str().parse::<BundleId>().ok();
        let overdue = |c: &Contact| c.down_since.is_some_and(|since| since + heartbeat <= now);
        let bundles = self.config.bundles.iter();
        let silent = bundles.filter(|(_, device)| contact(device).is_some_and(overdue));
        let mut broken: BTreeSet<Part> = silent.map(|(&bundle, _)| Part::Bundle(bundle)).collect();
        for ((near, _, position), (far, ..)) in self.controller.dark_fibres() {
            let down = contact(&far).is_some_and(|far| far.down_since.is_some());
            broken.extend(match (down, bundle(&near), bundle(&far)) {
                (true, _, Some(far)) => Some(Part::Bundle(far)),
                (false, Some(bundle), Some(_)) => {
                    let path = u8::try_from(position.0).unwrap_or(u8::MAX);
                    Some(Part::Fibre(Port { bundle, path }))
                }
                _ => None,
            });
        }
        broken.into_iter().collect()
    }

    /// Bypasses what broke by itself, if the policy is to do so, once it is not in the plan yet.
    pub(super) fn notice_deaths(&mut self) {
        let now = self.clock.now();
        if self.config.file.policies.on_fault != OnFault::Bypass
            || self.controller.is_busy()
            || self.controller.ledger().pending.is_some()
            || self.failed.is_some()
            || now.mono < self.bypass_not_before
        {
            return;
        }
        let (Some(installed), Some(plan)) = (&self.installed, &self.plan) else { return };
        let Ok(mut known) = FaultSet::of(&installed.hbd, plan.faults.iter().copied()) else {
            return;
        };
        let mut news = |part: &Part| {
            let covered = match part {
                Part::Bundle(bundle) => known.nodes.contains(&bundle.node),
                Part::Node(_) | Part::Fibre(_) => false,
            };
            !covered && known.insert(&installed.hbd, *part).unwrap_or(false)
        };
        let broken: Vec<Part> = self.broken_by_itself().into_iter().filter(|p| news(p)).collect();
        if broken.is_empty() {
            return;
        }
        self.bypass_not_before = now.mono + BYPASS_AGAIN_AFTER;
        let parts = broken.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if !self.controller.may_act_alone(&now) {
            tracing::error!(
                parts,
                "broken, but too much was changed without being asked: `ctl fault`"
            );
            return;
        }
        tracing::warn!(parts, "broken: bypassing");
        let request = format!("policy-{}-{}", now.wall_ms, self.controller.ledger().last_txn.0 + 1);
        let actor = "policy:fault".to_owned();
        let asked = Asked { actor, digest: request.clone(), request };
        let (answer, _) = oneshot::channel();
        self.take_call(Call::Fault { asked, broken, repaired: Vec::new(), answer });
    }
}
