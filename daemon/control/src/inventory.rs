// SPDX-License-Identifier: Apache-2.0
//! What is installed, as the controller sees it: devices with their limits, failure domains and
//! levers, and the policies of the operator.

use std::collections::{BTreeMap, BTreeSet};

use crate::change::Domains;
use crate::drive::Site;
use crate::management::Management;
use crate::mover::{Follows, Limits, Promise};
use crate::record::OnFailure;
use crate::state::{DeviceName, FibreEnd, Micros, Position, Sharing, Slot};
use lightloom_units::id::NodeId;

/// One device.
#[derive(Clone, Debug)]
pub struct Device {
    /// How its positions relate.
    pub sharing: Sharing,
    /// Its time limits and what counts as light.
    pub limits: Limits,
    /// Which of these follow what it promises; `None` if it promises nothing.
    pub follows: Option<Follows>,
    /// It promised to arm and fire by one request: a bypass does not arm it before.
    pub goes: bool,
    /// The longest time until it answers a status, where it promised one.
    pub answers: Option<Micros>,
    /// Failure domains of single slots; the device itself where a slot is not listed.
    pub domains: BTreeMap<Slot, String>,
    /// What takes traffic off a slot.
    pub levers: BTreeMap<Slot, (DeviceName, Slot)>,
    /// Levers are pulled by transactions; their positions are no plan's business.
    pub is_lever: bool,
    /// Where slot and position are the two sides of a duplex port: how far the number of the position
    /// is above that of the slot.
    pub duplex: Option<u32>,
}

impl Device {
    /// A device with default limits, no levers, one failure domain.
    #[must_use]
    pub fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            limits: Limits::default(),
            follows: None,
            goes: false,
            answers: None,
            domains: BTreeMap::new(),
            levers: BTreeMap::new(),
            is_lever: false,
            duplex: None,
        }
    }
}

/// What to do with a transaction that a dead daemon left half done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// Go on to the target.
    #[default]
    FinishForward,
    /// Go back to where everything stood.
    RollBack,
}

/// What to do when a device stands elsewhere than the journal says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDrift {
    /// Say so.
    #[default]
    Report,
    /// Put it back.
    Restore,
}

/// Everything that is installed, and the operator's policies.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// The devices.
    pub devices: BTreeMap<DeviceName, Device>,
    /// Both directions of every fibre that joins two devices, where the cabling is known.
    pub fibres: BTreeMap<FibreEnd, FibreEnd>,
    /// By node: the switches that its network interfaces are plugged into and that can say whether there is a link.
    pub hosts: BTreeMap<NodeId, BTreeSet<DeviceName>>,
    /// Through what devices are reached.
    pub management: Management,
    /// The most links of one failure domain that a transaction may darken at a time.
    pub dark_links_max: usize,
    /// How often an idle device is read.
    pub poll_every: Micros,
    /// When a device does not get to its target.
    pub on_failure: OnFailure,
    /// When a dead daemon left a transaction half done.
    pub recovery: Recovery,
    /// When a device has moved by itself.
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

/// More devices than these are not polled in the same moment.
const POLLED_AT_ONCE: usize = 32;

impl Inventory {
    /// How long after a read that was no poll, by a change or when it came up, a device is polled. Of many devices
    /// that were read in the same moment each has another time, never longer than between two polls: what is read
    /// at once is answered late, and would be read at once for ever.
    #[must_use]
    pub fn first_poll_after(&self, device: &DeviceName, every: Micros) -> Micros {
        if self.devices.len() <= POLLED_AT_ONCE {
            return every;
        }
        let every = every.0;
        // FNV-1a, and a last stir: names differ in a digit, and their hashes are to differ in the upper half.
        let hash = device.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let share = (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        // Not within the first eighth: who reads for a change may do so again.
        Micros(every / 8 + (every - every / 8).saturating_mul(share) / 0xffff)
    }

    /// A device promised its times: those of its limits that nobody wrote down follow them from now on.
    pub fn promised(&mut self, device: &DeviceName, promise: &Promise) {
        let Some(device) = self.devices.get_mut(device) else { return };
        (device.goes, device.answers) = (promise.goes, promise.answer);
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
