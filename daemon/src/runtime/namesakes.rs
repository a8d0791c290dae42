// SPDX-License-Identifier: Apache-2.0
//! Detects a module that is configured under two names. The daemon treats the second name as
//! unreachable, so that it never switches circuits under the wrong name.

use lightloom_control::controller::Event;
use lightloom_control::management::Trouble;
use lightloom_control::state::DeviceName;

use super::Runtime;

pub(super) fn one_name_each(runtime: &mut Runtime, event: Event) {
    match event {
        Event::Reachable(device) => {
            let Some(other) = namesake(runtime, &device) else {
                runtime.namesakes.remove(&device);
                return runtime.handle(Event::Reachable(device));
            };
            let identity = &runtime.identities[&device];
            let why = format!(
                "{other} has the same serial number ({identity}), so it is the same module; \
                        help: one of the two is configured or plugged in incorrectly"
            );
            runtime.namesakes.insert(device.clone(), other);
            runtime.handle(Event::Unreachable(device, Trouble::Local(why)));
        }
        Event::Unreachable(device, trouble) => {
            runtime.namesakes.remove(&device);
            runtime.handle(Event::Unreachable(device.clone(), trouble));
            let waiting = runtime.namesakes.iter().filter(|(_, other)| **other == device);
            let waiting: Vec<DeviceName> = waiting.map(|(waits, _)| waits.clone()).collect();
            for device in waiting {
                one_name_each(runtime, Event::Reachable(device));
            }
        }
        event => runtime.handle(event),
    }
}

fn namesake(runtime: &Runtime, device: &DeviceName) -> Option<DeviceName> {
    let identity = runtime.identities.get(device)?;
    if identity.is_empty() || device.bundle().is_none() {
        return None;
    }
    let known = runtime.control.sightings().devices();
    let mut others = runtime.identities.iter().filter(|(other, own)| {
        *other != device
            && *own == identity
            && other.bundle().is_some()
            && known.get(*other).is_some_and(|seen| seen.is_reachable())
    });
    others.next().map(|(other, _)| other.clone())
}
