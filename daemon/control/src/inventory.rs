// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::Domains;
use crate::drive::Site;
use crate::management::Management;
use crate::mover::{Follows, Limits, Promise};
use crate::record::OnFailure;
use crate::state::{DeviceName, FibreEnd, Micros, Position, Sharing, Slot};
use lightloom_fabric::fabric::Fabric;
use lightloom_units::id::{BundleId, NodeId};

#[derive(Clone, Debug)]
pub struct Device {
    pub sharing: Sharing,
    pub limits: Limits,
    pub follows: Option<Follows>,
    /// Whether the device can arm and fire with one request, so that a bypass need not arm it.
    pub goes: bool,
    pub reply_time: Option<Micros>,
    pub domains: BTreeMap<Slot, String>,
    pub levers: BTreeMap<Slot, (DeviceName, Slot)>,
    pub is_lever: bool,
    pub duplex: Option<u32>,
}

impl Device {
    pub fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            limits: Limits::default(),
            follows: None,
            goes: false,
            reply_time: None,
            domains: BTreeMap::new(),
            levers: BTreeMap::new(),
            is_lever: false,
            duplex: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "RecoveryFile")]
pub enum Recovery {
    #[default]
    FinishForward,
    RollBack,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "OnDriftFile")]
pub enum OnDrift {
    #[default]
    Report,
    Restore,
}

#[derive(Clone, Debug)]
pub struct Inventory {
    pub devices: BTreeMap<DeviceName, Device>,
    pub fibres: BTreeMap<FibreEnd, FibreEnd>,
    pub hosts: BTreeMap<NodeId, BTreeSet<DeviceName>>,
    pub management: Management,
    pub dark_links_max: usize,
    pub poll_every: Micros,
    pub on_failure: OnFailure,
    pub recovery: Recovery,
    pub on_drift: OnDrift,
}

impl Default for Inventory {
    fn default() -> Self {
        Self {
            devices: BTreeMap::new(),
            fibres: BTreeMap::new(),
            hosts: BTreeMap::new(),
            management: Management::default(),
            dark_links_max: 1024,
            poll_every: Micros::from_secs(10),
            on_failure: OnFailure::default(),
            recovery: Recovery::default(),
            on_drift: OnDrift::default(),
        }
    }
}

const POLLED_AT_ONCE: usize = 32;

impl Inventory {
    /// Adds the fibres of the accelerator domain between the modules that it contains.
    pub fn cable(&mut self, installed: &Fabric, modules: &BTreeMap<BundleId, DeviceName>) {
        let hbd = &installed.hbd;
        for (a, b) in hbd.fibres().map(|fibre| hbd.ports(fibre)) {
            let ends = [a, b].map(|port| {
                let device = modules.get(&port.bundle)?.clone();
                Some((device, Slot(0), Position(u32::from(port.path))))
            });
            if let [Some(a), Some(b)] = ends {
                self.fibres.extend([(a.clone(), b.clone()), (b, a)]);
            }
        }
    }

    /// Spreads the polls of devices that were read together, because replies would be delayed.
    pub(crate) fn first_poll_after(&self, device: &DeviceName, every: Micros) -> Micros {
        if self.devices.len() <= POLLED_AT_ONCE {
            return every;
        }
        let every = every.0;
        // FNV-1a with a final mix, so that similar names also differ in the upper half of the hash.
        let hash = device.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let share = (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        // Skip the first eighth of the interval, because a change may trigger another read soon.
        Micros(every / 8 + (every - every / 8).saturating_mul(share) / 0xffff)
    }

    pub(crate) fn is_lever(&self, device: &DeviceName) -> bool {
        self.devices.get(device).is_some_and(|device| device.is_lever)
    }

    pub fn promised(&mut self, device: &DeviceName, promise: &Promise) {
        let Some(device) = self.devices.get_mut(device) else { return };
        (device.goes, device.reply_time) = (promise.goes, promise.answer);
        if let Some(follows) = &device.follows {
            device.limits = device.limits.clone().promised(promise, follows);
        }
    }
}

impl Domains for Inventory {
    fn domain(&self, device: &DeviceName, slot: Slot) -> String {
        let named = self.devices.get(device).and_then(|d| d.domains.get(&slot));
        named.cloned().unwrap_or_else(|| device.to_string())
    }
    fn dark_links_max(&self) -> usize {
        self.dark_links_max.max(2)
    }
    fn sharing(&self, device: &DeviceName) -> Sharing {
        self.devices.get(device).map_or(Sharing::Exclusive, |d| d.sharing)
    }
    fn duplex(&self, device: &DeviceName) -> Option<u32> {
        self.devices.get(device)?.duplex
    }
}

impl Site for Inventory {
    fn limits(&self, device: &DeviceName) -> Limits {
        self.devices.get(device).map(|d| d.limits.clone()).unwrap_or_default()
    }
    fn far_end(&self, device: &DeviceName, slot: Slot, position: Position) -> Option<&FibreEnd> {
        self.fibres.get(&(device.clone(), slot, position))
    }
    fn lever(&self, device: &DeviceName, slot: Slot) -> Option<(DeviceName, Slot)> {
        self.devices.get(device)?.levers.get(&slot).cloned()
    }
}
