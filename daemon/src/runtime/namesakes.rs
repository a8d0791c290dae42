// SPDX-License-Identifier: Apache-2.0
//! Detects a module that is configured under two names. The daemon treats the second name as
//! unreachable, so that it never switches circuits under the wrong name.

use lightloom_control::controller::Event;
use lightloom_control::management::Trouble;
use lightloom_control::state::DeviceName;

use super::Runtime;

impl Runtime {
    pub(super) fn one_name_each(&mut self, event: Event) {
        match event {
            Event::Up(device) => {
                let Some(other) = self.namesake(&device) else {
                    self.namesakes.remove(&device);
                    return self.handle(Event::Up(device));
                };
                let identity = &self.contacts[&device].identity;
                let why = format!(
                    "{other} has the same serial number ({identity}), so it is the same module; \
                        help: one of the two is configured or plugged in incorrectly"
                );
                self.namesakes.insert(device.clone(), other);
                self.handle(Event::Down(device, Trouble::Local(why)));
            }
            Event::Down(device, trouble) => {
                self.namesakes.remove(&device);
                self.handle(Event::Down(device.clone(), trouble));
                let waiting = self.namesakes.iter().filter(|(_, other)| **other == device);
                let waiting: Vec<DeviceName> = waiting.map(|(waits, _)| waits.clone()).collect();
                for device in waiting {
                    self.one_name_each(Event::Up(device));
                }
            }
            event => self.handle(event),
        }
    }

    fn namesake(&self, device: &DeviceName) -> Option<DeviceName> {
        let identity = self.contacts.get(device).map(|contact| contact.identity.as_str())?;
        if identity.is_empty() || device.bundle().is_none() {
            return None;
        }
        let known = self.control.sightings().devices();
        let mut others = self.contacts.iter().filter(|(other, contact)| {
            *other != device
                && contact.identity == identity
                && other.bundle().is_some()
                && known.get(*other).is_some_and(|seen| seen.is_up())
        });
        others.next().map(|(other, _)| other.clone())
    }
}
