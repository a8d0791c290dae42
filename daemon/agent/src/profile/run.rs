// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use lightloom_firmware_api::cmis::RegisterAddress;
use lightloom_firmware_api::path::{GROUPS_MAX, GroupOutcome, Groups, Outcomes, Path, Paths};
use lightloom_units::{Picoseconds, Text};

use super::file::{CodeSourceFile, ItemFile, OutcomeFile, ProfileFile, ProfileStepFile, Word};
use crate::memory::{BusError, ModuleMemory, POLL, command};

const REPLY_WITHIN: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct ModuleProfile {
    pub(super) file: ProfileFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathOrder {
    pub transaction: u32,
    pub policy: u8,
    pub paths: Paths,
    pub groups: Groups,
}

impl ModuleProfile {
    pub const fn file(&self) -> &ProfileFile {
        &self.file
    }

    pub fn within(&self) -> Duration {
        span(self.file.limits.within)
    }

    pub fn settle(&self) -> Duration {
        span(self.file.limits.settle)
    }

    pub fn dwell(&self) -> Duration {
        span(self.file.limits.dwell)
    }

    pub fn code(&self, path: Path) -> Option<u8> {
        let paths = &self.file.paths;
        match path {
            Path::DARK => paths.dark,
            Path::LOOPBACK => paths.loopback,
            path => {
                let number = path.external_number()?;
                paths.external.get(usize::from(number) - 1).copied()
            }
        }
    }

    fn path(&self, code: u8) -> Option<Path> {
        let paths = &self.file.paths;
        let external = paths.external.iter().position(|known| *known == code);
        let external = external.and_then(|index| Path::external(index as u8 + 1));
        let loopback = (paths.loopback == Some(code)).then_some(Path::LOOPBACK);
        external.or(loopback).or((paths.dark == Some(code)).then_some(Path::DARK))
    }

    pub fn is_marked(&self, memory: &mut dyn ModuleMemory) -> Result<bool, BusError> {
        for mark in &self.file.marks {
            let mut found = vec![0; mark.bytes.len()];
            memory.read(mark.at.0, &mut found)?;
            if found != mark.bytes {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns an error if the module reports a code that the profile does not define.
    pub fn active(&self, memory: &mut dyn ModuleMemory) -> Result<Paths, BusError> {
        let mut paths = [Path::DARK; GROUPS_MAX];
        for (path, code) in paths.iter_mut().zip(self.codes(memory, &self.file.active)?) {
            *path = self.path(code).ok_or_else(|| {
                BusError(format!(
                    "the module reports path code {code}, which is not in the profile"
                ))
            })?;
        }
        Ok(paths)
    }

    pub fn arm(
        &self,
        memory: &mut dyn ModuleMemory,
        order: &PathOrder,
    ) -> Result<Outcomes, BusError> {
        let mut outcomes = [GroupOutcome::None; GROUPS_MAX];
        let groups = usize::from(self.file.groups);
        for group in order.groups.iter() {
            outcomes[group] = match self.code(order.paths[group]) {
                Some(_) if group < groups => GroupOutcome::Success,
                _ => GroupOutcome::Invalid,
            };
        }
        if outcomes.contains(&GroupOutcome::Invalid) {
            return Ok(outcomes);
        }
        self.steps(memory, &self.file.arm, order)?;
        match &self.file.armed {
            Some(armed) => self.outcomes(memory, armed, order.groups),
            None => Ok(outcomes),
        }
    }

    /// A group succeeds only if it is at its target path. After an error, positions are unknown.
    pub fn fire(
        &self,
        memory: &mut dyn ModuleMemory,
        order: &PathOrder,
    ) -> Result<(Outcomes, Paths), BusError> {
        self.steps(memory, &self.file.moves, order)?;
        let mut outcomes = match &self.file.moved {
            Some(moved) => self.outcomes(memory, moved, order.groups)?,
            None => self.arrived(memory, order)?,
        };
        memory.pause(self.settle());
        let active = self.active(memory)?;
        for group in order.groups.iter() {
            let success = outcomes[group] == GroupOutcome::Success;
            if success && active[group] != order.paths[group] {
                outcomes[group] = GroupOutcome::HardwareFault;
            }
        }
        Ok((outcomes, active))
    }

    fn arrived(
        &self,
        memory: &mut dyn ModuleMemory,
        order: &PathOrder,
    ) -> Result<Outcomes, BusError> {
        let until = memory.now() + self.within();
        loop {
            let active = self.active(memory)?;
            let mut outcomes = [GroupOutcome::None; GROUPS_MAX];
            for group in order.groups.iter() {
                outcomes[group] = match active[group] == order.paths[group] {
                    true => GroupOutcome::Success,
                    false => GroupOutcome::SettleTimeout,
                };
            }
            if !outcomes.contains(&GroupOutcome::SettleTimeout) || memory.now() > until {
                return Ok(outcomes);
            }
            memory.pause(POLL);
        }
    }

    fn steps(
        &self,
        memory: &mut dyn ModuleMemory,
        steps: &[ProfileStepFile],
        order: &PathOrder,
    ) -> Result<(), BusError> {
        for step in steps {
            match step {
                ProfileStepFile::Write { at, bytes, mask } => {
                    let mut values = self.values(bytes, order);
                    if *mask != 0xff {
                        let mut before = [0];
                        memory.read(at.0, &mut before)?;
                        values[0] = before[0] & !mask | values[0] & mask;
                    }
                    memory.write(at.0, &values)?;
                }
                ProfileStepFile::Command { id, bytes, within } => {
                    command(memory, id.0, &self.values(bytes, order), span(*within))?;
                }
                ProfileStepFile::Wait { at, mask, is, within } => {
                    wait(memory, at.0, *mask, is, span(*within))?;
                }
                ProfileStepFile::Pause(time) => memory.pause(span(*time)),
            }
        }
        Ok(())
    }

    fn values(&self, items: &[ItemFile], order: &PathOrder) -> Vec<u8> {
        let mut values = Vec::new();
        for item in items {
            match item {
                ItemFile::Byte(byte) => values.push(*byte),
                ItemFile::Word(Word::Paths) => {
                    let paths = &order.paths[..usize::from(self.file.groups)];
                    values.extend(paths.iter().map(|path| self.code(*path).unwrap_or(0)));
                }
                ItemFile::Word(Word::Groups) => values.push(order.groups.0),
                ItemFile::Word(Word::Transaction) => {
                    values.extend(order.transaction.to_be_bytes());
                }
                ItemFile::Word(Word::TransactionLow) => {
                    values.extend(&order.transaction.to_be_bytes()[2..]);
                }
                ItemFile::Word(Word::Policy) => values.push(order.policy),
                ItemFile::Word(Word::Check) => {
                    values.push(0xff - values.iter().copied().fold(0, u8::wrapping_add));
                }
            }
        }
        values
    }

    fn outcomes(
        &self,
        memory: &mut dyn ModuleMemory,
        outcome: &OutcomeFile,
        groups: Groups,
    ) -> Result<Outcomes, BusError> {
        let until = memory.now() + self.within();
        loop {
            let codes = self.codes(memory, &outcome.from)?;
            let mut outcomes = [GroupOutcome::None; GROUPS_MAX];
            for group in groups.iter() {
                let code = codes.get(group).copied();
                let means = outcome.means.iter().find(|one| Some(one.code) == code);
                outcomes[group] = means.map_or(GroupOutcome::HardwareFault, |one| one.is.outcome());
            }
            if !outcomes.contains(&GroupOutcome::InProgress) {
                return Ok(outcomes);
            }
            if memory.now() > until {
                return Ok(outcomes.map(|outcome| match outcome {
                    GroupOutcome::InProgress => GroupOutcome::SettleTimeout,
                    outcome => outcome,
                }));
            }
            memory.pause(POLL);
        }
    }

    fn codes(
        &self,
        memory: &mut dyn ModuleMemory,
        source: &CodeSourceFile,
    ) -> Result<Vec<u8>, BusError> {
        let length = source.bytes(self.file.groups);
        let bytes = match (source.at, source.command) {
            (Some(at), _) => {
                let mut bytes = vec![0; length];
                memory.read(at.0, &mut bytes)?;
                bytes
            }
            (None, Some(id)) => {
                let reply = command(memory, id.0, &[], REPLY_WITHIN)?;
                let first = usize::from(source.offset.unwrap_or(0));
                let codes = reply.get(first..first + length).ok_or_else(|| {
                    BusError(format!("CDB command {:04x}h: the reply is too short", id.0))
                })?;
                codes.to_vec()
            }
            (None, None) => Vec::new(),
        };
        let groups = 0..usize::from(self.file.groups);
        Ok(groups
            .map(|group| {
                source.mask
                    & match source.bits {
                        4 if group.is_multiple_of(2) => bytes[group / 2] & 0x0f,
                        4 => bytes[group / 2] >> 4,
                        _ => bytes[group],
                    }
            })
            .collect())
    }
}

fn wait(
    memory: &mut dyn ModuleMemory,
    at: RegisterAddress,
    mask: u8,
    is: &[u8],
    within: Duration,
) -> Result<(), BusError> {
    let until = memory.now() + within;
    loop {
        let mut value = [0];
        memory.read(at, &mut value)?;
        if is.contains(&(value[0] & mask)) {
            return Ok(());
        }
        if memory.now() > until {
            let (page, offset, value) = (at.page, at.offset, value[0]);
            return Err(BusError(format!("{page:02x}h:{offset} stays {value:02x}h")));
        }
        memory.pause(POLL);
    }
}

fn span(time: Text<Picoseconds>) -> Duration {
    Duration::from_nanos(time.0.get().div_ceil(1_000))
}
