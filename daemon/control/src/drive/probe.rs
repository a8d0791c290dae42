// SPDX-License-Identifier: Apache-2.0

use super::{Command, DeviceEnd, Drive, Stage, Verdict};
use crate::state::{DeviceName, Neighbours, Op, Outcome};

impl Drive {
    pub(super) fn looked(&mut self, device: &DeviceName, outcome: Outcome) {
        if !self.looking.remove(device) {
            return;
        }
        let why = match outcome {
            Outcome::Done(Some(seen)) => {
                self.seen.insert(device.clone(), seen);
                return;
            }
            Outcome::Done(None) => "it returned no reading".to_owned(),
            Outcome::Refused(why) | Outcome::Failed(why) | Outcome::Unknown(why) => why,
        };
        let detail = format!("it could not be read after the moves: {why}");
        self.trouble.entry(device.clone()).or_insert(DeviceEnd::new(Verdict::Unknown, detail));
    }

    pub(super) fn look(&mut self, commands: &mut Vec<Command>) -> Stage {
        let moved = self
            .orders
            .probes
            .iter()
            .flatten()
            .filter(|device| !self.trouble.contains_key(*device));
        self.looking = moved.cloned().collect();
        for device in &self.looking {
            let power =
                self.orders.target.get(device).into_iter().flat_map(|slots| slots.keys().copied());
            let op = Op::Observe { power: power.collect(), neighbours: Neighbours::Always };
            commands.push(Command::Send(device.clone(), op));
        }
        Stage::Look
    }
}
