//! What devices report of their light unasked, and a node that is found dead by it.
//!
//! ```text
//!   near end    light lost ──▶ read near end, far end, its node's other modules, and their far ends, all at once
//!   the node    no module of it answers within `probe_within` ┐
//!   near end    the read agrees: no light                     ┴▶ given up, without a hello on a fresh connection
//! ```
//!
//! A report moves nothing and proves nothing: it says where to look now. What is dead is known from reads, and from
//! those that are not answered. One module that is silent beside a dark fibre may have lost a byte while a fibre was
//! cut, so it has to fail a hello as well; that the other modules of its node are silent, too, is a witness of its own.
//! A module of the node that sends light to nobody has only lost one answer: it is gone around and only suspected.

use super::{Controller, Seen};
use crate::drive::Site;
use crate::state::{DeviceName, Micros, Now, Position, Slot, at};

/// What a device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// No light arrives at this slot any more, which stands there.
    LightLost(Slot, Position),
    /// It does again.
    LightBack(Slot),
    /// It stands elsewhere than it was brought to, or has restarted.
    Changed,
}

/// So many reports of a device are heard at once,
const SIGNALS_BURST: u64 = 16;
/// and one in this time in the long run: a device that reports without end costs no more reads than that.
const SIGNAL_EVERY: Micros = Micros::from_millis(100);

/// What a device reported, and what follows for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Signalled {
    /// Slots whose light it reported lost, and when; until it is back or a read sees it.
    lost: std::collections::BTreeMap<Slot, Micros>,
    /// A far end lost the light of its node then, and it has not answered since.
    suspected: Option<Micros>,
    /// It is to be read at once: a read that was asked for before says nothing.
    wanted_at: Micros,
    /// It was given up with all of its node: its light is gone, too.
    pub(super) is_found_dead: bool,
    /// The same, and nobody is there who would miss its light.
    pub(super) is_silent_beside: bool,
    paid_until: Micros,
}

impl Signalled {
    /// It can be talked to again, or a read of it was answered that was asked for at this time.
    pub(super) fn answered(&mut self, asked: Micros) {
        self.suspected.take_if(|suspected| *suspected <= asked);
        (self.is_found_dead, self.is_silent_beside) = (false, false);
    }

    /// A read that was asked for at this time sees light at this slot.
    pub(super) fn sees_light(&mut self, slot: Slot, asked: Micros) {
        if self.lost.get(&slot).is_some_and(|lost| *lost <= asked) {
            self.lost.remove(&slot);
        }
    }

    /// Whether it is to be read anew after a read that was asked for at this time.
    pub(super) fn wants_read_after(&self, asked: Micros) -> bool {
        self.wanted_at > asked
    }

    /// Its line is new: what it said over the old one is over.
    pub(super) fn reset(&mut self) {
        *self = Self { paid_until: self.paid_until, ..Self::default() };
    }
}

impl Controller {
    pub(super) fn signalled(&mut self, now: &Now, device: &DeviceName, signal: Signal) {
        let Some(seen) = self.devices.get_mut(device).filter(|seen| seen.up) else { return };
        let signalled = &mut seen.signalled;
        let burst = Micros(SIGNAL_EVERY.0 * (SIGNALS_BURST - 1));
        if signalled.paid_until > now.mono + burst {
            return;
        }
        signalled.paid_until = signalled.paid_until.max(now.mono) + SIGNAL_EVERY;
        match signal {
            Signal::LightLost(slot, _) => _ = signalled.lost.insert(slot, now.mono),
            Signal::LightBack(slot) => _ = signalled.lost.remove(&slot),
            Signal::Changed => {}
        }
        self.read_now(now, device);
        if let Signal::LightLost(slot, to) = signal {
            self.suspect(now, device, (slot, to));
        }
    }

    fn read_now(&mut self, now: &Now, device: &DeviceName) {
        if let Some(seen) = self.devices.get_mut(device) {
            (seen.next_poll, seen.signalled.wanted_at) = (Micros(0), now.mono);
        }
    }

    /// Light is lost that should arrive: the node that should send it may be dead.
    fn suspect(&mut self, now: &Now, device: &DeviceName, (slot, to): (Slot, Position)) {
        let Some(far) = self.inventory.far_end(device, slot, to).cloned() else { return };
        let stands = |device: &DeviceName, slot: Slot, to: Position| {
            self.ledger.owned.get(device).is_some_and(|owned| at(owned, slot) == to)
        };
        let intended = !self.is_at_rest(device) || !self.is_at_rest(&far.0);
        if intended || !stands(device, slot, to) || !stands(&far.0, far.1, far.2) {
            return;
        }
        let mut node = self.of_same_node(&far.0);
        node.push(far.0.clone());
        for module in node {
            if let Some(seen) = self.devices.get_mut(&module) {
                seen.signalled.suspected = Some(now.mono);
            }
            self.read_now(now, &module);
        }
        self.look_around(&far.0);
    }

    /// When the answer of a device is late: soon, where its node is suspected to be dead.
    pub(super) fn late_at(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let flight = seen.in_flight.as_ref()?;
        let within = self.inventory.devices.get(device).map(|device| device.limits.probe_within);
        let within = within.filter(|within| within.0 > 0 && !flight.moves);
        let Some((suspected, within)) = seen.signalled.suspected.zip(within) else {
            return Some(flight.late_at);
        };
        Some(flight.late_at.min(flight.asked.max(suspected) + within))
    }

    /// Whether the node of this device is found dead: none of its modules answers, there are several, a far end
    /// reported that the light of one is gone, and whoever should see light of them was read since and sees none.
    pub(super) fn is_node_dead(&self, device: &DeviceName) -> bool {
        let mut node = self.of_same_node(device);
        node.push(device.clone());
        let is_silent = |module: &DeviceName| {
            self.devices.get(module).is_some_and(|seen| {
                let late = seen.in_flight.as_ref().is_some_and(|flight| flight.is_late);
                !seen.up || (late && seen.signalled.suspected.is_some())
            })
        };
        node.len() > 1
            && node.iter().all(is_silent)
            && node.iter().any(|module| self.is_reported_lost(module))
            && node.iter().all(|module| self.is_light_gone(module) != Some(false))
    }

    /// Marks a device that is given up with all of its node.
    pub(super) fn found_dead(&mut self, device: &DeviceName) {
        let gone = self.is_light_gone(device) == Some(true);
        if let Some(seen) = self.devices.get_mut(device) {
            (seen.signalled.is_found_dead, seen.signalled.is_silent_beside) = (gone, !gone);
        }
    }

    /// Whether the light of a device is gone wherever it should arrive, by reads since it is suspected; `None` if it
    /// should arrive nowhere.
    fn is_light_gone(&self, device: &DeviceName) -> Option<bool> {
        let seen = self.devices.get(device)?;
        let since = seen.signalled.suspected.unwrap_or(seen.down_since);
        let lit = self.ledger.owned.get(device).into_iter().flatten();
        let far = lit.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        let read = far.filter_map(|(near, slot, to)| {
            let looks = self.ledger.owned.get(near).is_some_and(|owned| at(owned, *slot) == *to);
            let near = self.devices.get(near).filter(|near| near.up && looks)?;
            Some(near.read_at >= since && near.dark.contains_key(slot))
        });
        read.reduce(|one, other| one && other)
    }

    /// Whether a device fell silent with all of its node, sends light to nobody, and may still answer a hello: its
    /// silence is one lost answer and no more.
    #[must_use]
    pub fn is_silent_beside(&self, device: &DeviceName, now: &Now) -> bool {
        let silent_within = self.inventory.limits(device).silent_within;
        self.devices.get(device).is_some_and(|seen| {
            let tries = now.mono < seen.down_since + silent_within;
            !seen.up && seen.signalled.is_silent_beside && tries
        })
    }

    fn is_reported_lost(&self, device: &DeviceName) -> bool {
        let lit = self.ledger.owned.get(device).into_iter().flatten();
        let mut far = lit.filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to));
        far.any(|(near, slot, _)| {
            self.devices.get(near).is_some_and(|seen| seen.up && seen.confirms_lost(*slot))
        })
    }
}

impl Seen {
    /// Whether it reported that the light of a slot is gone, and a read since agrees.
    pub(super) fn confirms_lost(&self, slot: Slot) -> bool {
        let lost = self.signalled.lost.get(&slot);
        lost.is_some_and(|lost| *lost <= self.read_at) && self.dark.contains_key(&slot)
    }
}
