// SPDX-License-Identifier: Apache-2.0

use super::memory::{Access, Memory};
use super::{Hardware, Module};
use crate::cmis::cdb::{self, CdbFailure, CdbStatus};
use crate::cmis::{Coded, RegisterAddress, Registers, RegistersMut, lower, page_b0, page10};
use crate::frame::PAYLOAD_BYTES_MAX;
use crate::message::{Arm, LinkName, Reply, Request, RequestRefusal, TransactionId, command};
use crate::path::{Groups, Path};
use crate::time::Micros;

impl<H: Hardware> Module<H> {
    pub(super) fn put(&mut self, now: Micros, at: RegisterAddress, value: u8) {
        match Memory::access(at) {
            Access::Read => return,
            Access::Locked => return self.put_power_on_path(at, value),
            Access::Write => {
                let is_of_cdb = at.offset >= 128 && at.page == cdb::PAGE;
                if is_of_cdb && self.cdb_ends.is_some() {
                    return;
                }
                self.memory.set_byte(at, value);
            }
        }
        match (at.offset, at.page) {
            (26, _) if lower::SOFTWARE_RESET.get(&self.memory) => self.reset(now),
            (67, _) => self.put_fast_fire(now),
            (125, _) => self.put_password(),
            (127, _) => self.put_page_select(),
            (143, 0x10) => self.put_apply(now, page10::APPLY_INIT),
            (144, 0x10) => self.put_apply(now, page10::APPLY_IMMEDIATE),
            (129, cdb::PAGE) => self.start_cdb(now),
            (160, page_b0::PAGE) => self.put_commit(now),
            (136..=143 | 152 | 212..=216, page_b0::PAGE) => self.put_arm(),
            (236, page_b0::PAGE) => {
                let name = LinkName(page_b0::LINK_NAME.get(&self.memory));
                self.hardware.set_link_name(name);
            }
            _ => {}
        }
    }

    fn put_page_select(&mut self) {
        let at = self.window(128);
        if !Memory::exists(at) {
            lower::PAGE_SELECT.set(&mut self.memory, 0);
            lower::BANK_SELECT.set(&mut self.memory, 0);
        }
    }

    fn put_password(&mut self) {
        self.unlocked = lower::PASSWORD.get(&self.memory) == cdb::DEFAULT_PASSWORD;
        lower::PASSWORD.set(&mut self.memory, 0);
    }

    fn put_apply(&mut self, now: Micros, register: crate::cmis::LaneFlags) {
        let lanes = register.get(&self.memory);
        register.set(&mut self.memory, 0);
        let staged = core::array::from_fn(|lane| {
            page10::staged(lane as u8).get(&self.memory).unwrap_or_default()
        });
        if lanes != 0 {
            self.power.apply(&self.profile, staged, lanes, now);
        }
    }

    fn put_power_on_path(&mut self, at: RegisterAddress, value: u8) {
        let (true, Some(path)) = (self.unlocked, Path::from_code(value)) else { return };
        let known =
            path.external_number().is_none_or(|number| number <= self.profile.external_paths);
        if known {
            let mut paths = self.hardware.load_power_on_paths();
            paths[usize::from(at.offset - page_b0::power_on_path(0).at.offset)] = path;
            self.hardware.store_power_on_paths(paths);
        }
    }

    fn spelled_arm(&self) -> Option<Arm> {
        let mut paths = [Path::DARK; 8];
        for (group, path) in paths.iter_mut().enumerate() {
            *path = page_b0::wanted(group).get(&self.memory)?;
        }
        let transaction = TransactionId(page_b0::TRANSACTION.get(&self.memory));
        let policy = page_b0::POLICY.get(&self.memory)?;
        (transaction != TransactionId::NONE).then_some(Arm { transaction, policy, paths })
    }

    /// Has no effect until the previous change has ended.
    pub(super) fn put_arm(&mut self) {
        self.arm_waits = self.moving();
        if self.arm_waits {
            return;
        }
        let enabled = page_b0::ENABLE.get(&self.memory);
        let done = match self.spelled_arm().filter(|_| enabled) {
            Some(arm) => self.switch.arm(&self.profile, arm).map(|_report| ()),
            None => self.switch.disarm(self.switch.armed()),
        };
        debug_assert!(done.is_ok(), "both are accepted while no group is switching");
    }

    fn put_commit(&mut self, now: Micros) {
        let asked = page_b0::COMMIT.get(&self.memory);
        self.memory.set_byte(page_b0::COMMIT.at, 0);
        if asked && page_b0::ENABLE.get(&self.memory) {
            let all = Groups::first(self.profile.groups);
            self.fire_or_flag(now, self.switch.armed(), all);
        }
    }

    fn put_fast_fire(&mut self, now: Micros) {
        let bytes: [u8; 4] =
            core::array::from_fn(|index| self.memory.byte(lower::FAST_FIRE.plus(index as u8)));
        let armed = self.switch.armed();
        if bytes == page_b0::fast_fire(bytes[0], armed.0) {
            self.fire_or_flag(now, armed, Groups(bytes[0]));
        } else {
            lower::CUSTOM_FLAGS.raise(&mut self.memory, page_b0::flag::FIRE_IGNORED);
        }
    }

    fn fire_or_flag(&mut self, now: Micros, transaction: TransactionId, groups: Groups) {
        if self.fire_now(now, transaction, groups).is_err() {
            lower::CUSTOM_FLAGS.raise(&mut self.memory, page_b0::flag::FIRE_IGNORED);
        }
    }

    fn start_cdb(&mut self, now: Micros) {
        lower::CDB_STATUS.set(&mut self.memory, CdbStatus::Executing.code());
        self.cdb_ends = Some(now + Micros(u64::from(self.profile.timing.cdb_us)));
    }

    pub(super) fn finish_cdb(&mut self, now: Micros) {
        if self.cdb_ends.is_none_or(|at| at > now) {
            return;
        }
        self.cdb_ends = None;
        let page = *self.memory.cdb_page();
        let mut reply = [0; PAYLOAD_BYTES_MAX];
        let result = cdb::parse_request(&page)
            .and_then(|(id, payload)| self.run_cdb(now, id, payload, &mut reply));
        let (status, reply_bytes) = match result {
            Ok(length) => (CdbStatus::Success, length),
            Err(failure) => (CdbStatus::Failed(failure), 0),
        };
        cdb::put_reply(self.memory.cdb_page(), &reply[..reply_bytes]);
        lower::CDB_STATUS.set(&mut self.memory, status.code());
        lower::CDB_COMPLETE.raise(&mut self.memory);
    }

    fn run_cdb(
        &mut self,
        now: Micros,
        id: u16,
        payload: &[u8],
        reply: &mut [u8; PAYLOAD_BYTES_MAX],
    ) -> Result<usize, CdbFailure> {
        match id {
            cdb::command::STATUS => Ok(put(reply, &[0, u8::from(self.unlocked)])),
            cdb::command::PASSWORD => {
                let expected = cdb::DEFAULT_PASSWORD.to_be_bytes();
                self.unlocked = payload == expected;
                if self.unlocked { Ok(0) } else { Err(CdbFailure::Password) }
            }
            cdb::command::ABORT => Ok(0),
            cdb::command::MODULE_FEATURES => Ok(put(reply, &[0; 4])),
            // Only the manufacturer's tools can load firmware.
            cdb::command::FIRMWARE_FEATURES => Ok(put(reply, &[0; 8])),
            cdb::command::FIRMWARE_INFO => {
                let (major, minor) = self.profile.firmware;
                Ok(put(reply, &[0x03, 0, major, minor]))
            }
            cdb::command::PATH_CAPABILITIES => {
                let bytes: [u8; 15] = core::array::from_fn(|index| {
                    self.memory.byte(RegisterAddress::page(page_b0::PAGE, 192 + index as u8))
                });
                Ok(put(reply, &bytes))
            }
            cdb::command::PATH_ARM => self.run_path_cdb(now, command::ARM, payload, reply),
            cdb::command::PATH_FIRE => self.run_path_cdb(now, command::FIRE, payload, reply),
            cdb::command::PATH_DISARM => self.run_path_cdb(now, command::DISARM, payload, reply),
            cdb::command::PATH_STATUS => self.run_path_cdb(now, command::STATUS, payload, reply),
            _ => Err(CdbFailure::UnknownCommand),
        }
    }

    fn run_path_cdb(
        &mut self,
        now: Micros,
        serial_command: u8,
        payload: &[u8],
        reply: &mut [u8; PAYLOAD_BYTES_MAX],
    ) -> Result<usize, CdbFailure> {
        let request = Request::decode(serial_command, payload).map_err(failure_of)?;
        let answer = match request {
            Request::Arm(arm) => Reply::Armed(self.arm_now(arm).map_err(failure_of)?),
            Request::Fire { transaction, groups } => {
                self.fire_now(now, transaction, groups).map_err(failure_of)?;
                Reply::Done
            }
            Request::Disarm { transaction } => {
                self.switch.disarm(transaction).map_err(failure_of)?;
                Reply::Done
            }
            _ => Reply::Status(self.status_now(now)),
        };
        Ok(answer.encode(reply).1)
    }
}

fn failure_of(refusal: RequestRefusal) -> CdbFailure {
    match refusal {
        RequestRefusal::UnknownCommand => CdbFailure::UnknownCommand,
        RequestRefusal::Locked => CdbFailure::Password,
        RequestRefusal::NotArmed
        | RequestRefusal::Busy
        | RequestRefusal::WrongState
        | RequestRefusal::ReadOnly
        | RequestRefusal::BusFailed => CdbFailure::WrongState,
        RequestRefusal::Malformed
        | RequestRefusal::Version
        | RequestRefusal::NoSuchRegister
        | RequestRefusal::NoSuchModule
        | RequestRefusal::OtherModule
        | RequestRefusal::EarlierEpoch => CdbFailure::Parameter,
    }
}

fn put(reply: &mut [u8; PAYLOAD_BYTES_MAX], bytes: &[u8]) -> usize {
    reply[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}
