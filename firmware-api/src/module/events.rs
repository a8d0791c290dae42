// SPDX-License-Identifier: Apache-2.0
//! Rate-limited events from the comparators on each group's light.
//!
//! ```text
//!   tap ─▶ comparator ─▶ debounce ─▶ shown ──┐ differs from ──▶ event, in bursts of at most EVENTS_BURST
//!                                  reported ─┘                  and one per EVENT_EVERY in the long run
//! ```
//!
//! Flapping light needs no queue, because only the difference from the reported state is stored.

use super::hardware::{Hardware, Position};
use super::profile::Profile;
use super::switch::SwitchGroups;
use crate::message::{EventKind, EventsReport};
use crate::path::{GROUPS_MAX, Path};
use crate::time::Micros;

/// Time until an unacknowledged event is sent again.
pub const REPEAT: Micros = Micros::from_millis(10);
const EVENTS_BURST: u64 = 8;
const EVENT_EVERY: Micros = Micros::from_millis(100);
const DEBOUNCE_US: (u16, u16) = (10, 10_000);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Light {
    /// The light has not been measured since the last switching operation, or the path has no fibre.
    #[default]
    Unknown,
    Arrives,
    Gone,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    path: Path,
    shown: Light,
    changes_at: Option<Micros>,
    reported: Light,
    strayed: bool,
    strayed_reported: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ComparatorWatch {
    enabled: bool,
    debounce: Micros,
    groups: [Group; GROUPS_MAX],
    restarted: bool,
    skipped: u16,
    /// Token bucket: advances by [`EVENT_EVERY`] per event, at most one burst ahead of the current time.
    paid_until: Micros,
}

impl ComparatorWatch {
    pub(super) fn restart(&mut self) {
        let (enabled, debounce, paid_until) = (self.enabled, self.debounce, self.paid_until);
        *self = Self { enabled, debounce, paid_until, restarted: enabled, ..Self::default() };
    }

    pub(super) fn set(
        &mut self,
        profile: &Profile,
        enabled: bool,
        debounce_us: u16,
    ) -> EventsReport {
        let (least, most) = DEBOUNCE_US;
        let debounce_us = match debounce_us {
            0 => profile.timing.debounce_us,
            asked => asked.clamp(least, most),
        };
        let debounce = Micros(u64::from(debounce_us));
        *self = Self { enabled, debounce, paid_until: self.paid_until, ..Self::default() };
        let answer_us = profile.timing.answer_us;
        EventsReport { enabled, debounce_us, repeat_ms: (REPEAT.0 / 1_000) as u16, answer_us }
    }

    pub(super) fn advance(
        &mut self,
        profile: &Profile,
        switch: &SwitchGroups,
        hardware: &impl Hardware,
        now: Micros,
    ) {
        if !self.enabled {
            return;
        }
        let busy = switch.busy();
        for group in 0..usize::from(profile.groups).min(GROUPS_MAX) {
            let watched = &mut self.groups[group];
            let path = match hardware.position(now, group) {
                Position::At(path) if !busy.contains(group) => path,
                _ => {
                    *watched = Group::default();
                    continue;
                }
            };
            if watched.path != path {
                let strayed_reported = watched.strayed_reported;
                *watched = Group { path, strayed_reported, ..Group::default() };
            }
            watched.strayed = path != switch.committed[group];
            let Some(number) = path.external_number() else { continue };
            let light = match hardware.tap(now, number) >= profile.los {
                true => Light::Arrives,
                false => Light::Gone,
            };
            self.skipped = self.skipped.saturating_add(watched.look(light, self.debounce, now));
        }
    }

    pub(super) fn next_look(&self) -> Option<Micros> {
        self.groups.iter().filter_map(|group| group.changes_at).min()
    }

    fn news(&self) -> Option<(EventKind, usize)> {
        if !self.enabled {
            return None;
        }
        if self.restarted {
            return Some((EventKind::Restarted, 0));
        }
        self.groups.iter().enumerate().find_map(|(index, group)| {
            let kind = match (group.shown == group.reported, group.shown) {
                (false, Light::Gone) => EventKind::LightLost,
                (false, Light::Arrives) => EventKind::LightBack,
                _ if group.strayed != group.strayed_reported => EventKind::Moved,
                _ => return None,
            };
            Some((kind, index))
        })
    }

    pub(super) fn next_event(&self) -> Option<Micros> {
        let ahead = EVENT_EVERY.0 * (EVENTS_BURST - 1);
        self.news().map(|_| Micros(self.paid_until.0.saturating_sub(ahead)))
    }

    pub(super) fn take(&mut self, now: Micros) -> Option<(EventKind, u8, u16)> {
        self.next_event().filter(|at| *at <= now)?;
        let (kind, index) = self.news()?;
        let group = &mut self.groups[index];
        match kind {
            EventKind::Restarted => self.restarted = false,
            EventKind::Moved => group.strayed_reported = group.strayed,
            EventKind::LightLost | EventKind::LightBack => group.reported = group.shown,
        }
        self.paid_until = Micros(self.paid_until.0.max(now.0)) + EVENT_EVERY;
        Some((kind, index as u8, core::mem::take(&mut self.skipped)))
    }
}

impl Group {
    fn look(&mut self, light: Light, debounce: Micros, now: Micros) -> u16 {
        // The first reading after a switching operation is not a change.
        if self.shown == Light::Unknown {
            (self.shown, self.reported) = (light, light);
        }
        if self.shown == light {
            self.changes_at = None;
            return 0;
        }
        if now < *self.changes_at.get_or_insert(now + debounce) {
            return 0;
        }
        self.changes_at = None;
        let unsent = self.shown != self.reported;
        self.shown = light;
        u16::from(unsent)
    }
}
