// SPDX-License-Identifier: Apache-2.0
//! The module behind the serial line and the I2C bus.
//!
//! [`Module`] is a state machine without a clock, interrupts or a heap. It accesses its optics only through
//! [`Hardware`]. Call [`Module::poll`] with the current time at [`Module::next_wakeup`] or more often, and
//! before each call of another method.
//!
//! ```text
//!   bus_read / bus_write (256-byte window, page select, hold-offs)      arm / fire / status
//!               │                                                            │
//!               ▼                                                            ▼
//!   Memory ── wishes ──▶ PowerAndLanes (module and data-path states)     Switch ──▶ Hardware
//!      ▲                          │                                        │
//!      └────────── refresh: every read-only register is a view ────────────┘
//! ```

mod commands;
mod data_path;
mod events;
mod hardware;
mod memory;
mod profile;
mod switch;
mod view;

pub use hardware::{Hardware, Position};
pub use profile::{Application, MonitorLimits, Profile, Timing, padded};

use crate::cmis::{RegisterAddress, Registers, cdb, lower, page_b0, page10};
use crate::message::{
    Arm, ArmReport, Capabilities, Epoch, Event, EventsReport, FireReport, Identity, LinkName,
    LinksReport, Power, RequestRefusal, StatusReport, TransactionId,
};
use crate::path::{Groups, Path, Paths};
use crate::time::Micros;
use data_path::{LANES, PowerAndLanes, Wishes};
use events::ComparatorWatch;
pub use events::REPEAT;
use memory::{Access, Memory};
use switch::{Permission, SwitchGroups};

/// The module is booting or processing a write. The host should retry after the hold-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAcknowledged;

/// A transceiver module.
#[derive(Clone, Debug)]
pub struct Module<H> {
    profile: Profile,
    hardware: H,
    boots: u16,
    answers_from: Micros,
    bus_free_from: Micros,
    low_power_pin: bool,
    unlocked: bool,
    memory: Memory,
    power: PowerAndLanes,
    switch: SwitchGroups,
    watch: ComparatorWatch,
    arm_waits: bool,
    cdb_ends: Option<Micros>,
    transmitters: u8,
    lost_signal_since: [Option<Micros>; LANES],
    epoch: Epoch,
    now: Micros,
}

impl<H: Hardware> Module<H> {
    /// Creates a module that is powered on at `now`.
    pub fn new(profile: Profile, mut hardware: H, now: Micros) -> Self {
        let switch = SwitchGroups::power_on(&profile, &mut hardware, now);
        let boots = hardware.count_boot();
        let answers_from = now + Micros(u64::from(profile.timing.boot_us));
        let power = PowerAndLanes::power_on(&profile);
        let mut module = Self {
            profile,
            hardware,
            boots,
            answers_from,
            bus_free_from: answers_from,
            low_power_pin: false,
            unlocked: false,
            memory: Memory::new(),
            power,
            switch,
            watch: ComparatorWatch::default(),
            arm_waits: false,
            cdb_ends: None,
            transmitters: 0,
            lost_signal_since: [None; LANES],
            epoch: Epoch::default(),
            now,
        };
        module.hardware.set_transmitters(now, 0);
        module.write_defaults();
        module
    }

    /// Restarts the firmware. Volatile state is lost, and groups switch to their power-on paths.
    pub fn reset(&mut self, now: Micros) {
        self.switch = SwitchGroups::power_on(&self.profile, &mut self.hardware, now);
        self.boots = self.hardware.count_boot();
        self.answers_from = now + Micros(u64::from(self.profile.timing.boot_us));
        self.bus_free_from = self.answers_from;
        self.unlocked = false;
        self.memory = Memory::new();
        self.power = PowerAndLanes::power_on(&self.profile);
        self.watch.restart();
        self.arm_waits = false;
        self.cdb_ends = None;
        self.transmitters = 0;
        self.lost_signal_since = [None; LANES];
        self.epoch = Epoch::default();
        self.now = now;
        self.hardware.set_transmitters(now, 0);
        self.hardware.set_link_name(LinkName::NONE);
        self.write_defaults();
    }

    /// Returns whether the module has booted.
    pub fn answers(&self, now: Micros) -> bool {
        now >= self.answers_from
    }

    /// Returns when booting completes.
    pub const fn answers_from(&self) -> Micros {
        self.answers_from
    }

    /// Returns the number of boots since manufacture, modulo 2¹⁶.
    pub const fn boots(&self) -> u16 {
        self.boots
    }

    /// Returns the optics.
    pub const fn hardware(&self) -> &H {
        &self.hardware
    }

    /// Returns a mutable reference to the optics, for their driver.
    pub const fn hardware_mut(&mut self) -> &mut H {
        &mut self.hardware
    }

    /// Returns the module's profile.
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Sets the low-power pin, which has an effect only while lower memory bit 26.6 is set.
    pub fn set_low_power_pin(&mut self, now: Micros, low_power: bool) {
        self.poll(now);
        self.low_power_pin = low_power;
        self.poll(now);
    }

    /// Advances to `now`, and executes everything due since the last call, each at its due time.
    pub fn poll(&mut self, now: Micros) {
        while let Some(at) = self.next_wakeup().filter(|&at| at <= now) {
            self.step(at.max(self.now));
        }
        self.step(now.max(self.now));
    }

    fn step(&mut self, now: Micros) {
        self.now = now;
        if !self.answers(now) {
            return;
        }
        let wishes = self.wishes();
        let events = self.power.advance(&self.profile.timing, wishes, now);
        if events.module_state_changed {
            lower::MODULE_STATE_CHANGED.raise(&mut self.memory);
        }
        crate::cmis::page11::STATE_CHANGED.raise(&mut self.memory, events.lanes_changed);
        let flags = self.switch.advance(&self.profile, &self.hardware, now);
        lower::CUSTOM_FLAGS.raise(&mut self.memory, flags);
        if self.arm_waits && !self.moving() {
            self.put_arm();
        }
        self.finish_cdb(now);
        self.drive_transmitters(now);
        self.watch.advance(&self.profile, &self.switch, &self.hardware, now);
    }

    /// Returns when [`Module::poll`] must be called again.
    pub fn next_wakeup(&self) -> Option<Micros> {
        if !self.answers(self.now) {
            return Some(self.answers_from);
        }
        let watch = self.watch.next_look();
        let ends = [self.power.next_end(), self.switch.next_look(), self.cdb_ends, watch];
        ends.into_iter().flatten().min()
    }

    fn wishes(&self) -> Wishes {
        let by_pin = self.low_power_pin && lower::LOW_POWER_ALLOW_HARDWARE.get(&self.memory);
        Wishes {
            low_power: by_pin || lower::LOW_POWER_REQUEST.get(&self.memory),
            deinit: page10::DATA_PATH_DEINIT.get(&self.memory),
            tx_disable: page10::TX_DISABLE.get(&self.memory),
        }
    }

    fn drive_transmitters(&mut self, now: Micros) {
        let lanes = if self.switch.mutes() { 0 } else { self.power.transmitting() };
        if lanes != self.transmitters {
            self.transmitters = lanes;
            self.hardware.set_transmitters(now, lanes);
        }
    }

    /// Reads over I2C at `offset` of the 256-byte window with the selected page, wrapping around within one
    /// half. Fails with [`NotAcknowledged`] while booting or within a hold-off.
    pub fn bus_read(
        &mut self,
        now: Micros,
        offset: u8,
        out: &mut [u8],
    ) -> Result<(), NotAcknowledged> {
        self.poll(now);
        self.bus_free(now)?;
        let address = self.window(offset);
        self.refresh(now);
        let half = offset & 0x80;
        for (index, byte) in out.iter_mut().enumerate() {
            let offset = half | (offset.wrapping_add(index as u8) & 0x7f);
            *byte = self.memory.take(RegisterAddress { offset, ..address });
        }
        Ok(())
    }

    /// Writes over I2C; read-only bytes are ignored. Fails with [`NotAcknowledged`] while booting, within a
    /// hold-off, and for multi-byte writes that include the apply registers 10h:143 and 144.
    pub fn bus_write(
        &mut self,
        now: Micros,
        offset: u8,
        bytes: &[u8],
    ) -> Result<(), NotAcknowledged> {
        self.poll(now);
        self.bus_free(now)?;
        let address = self.window(offset);
        let half = offset & 0x80;
        let on_page_10 = address.offset >= 128 && address.page == 0x10;
        let touches_apply = (0..bytes.len())
            .any(|index| matches!(half | (offset.wrapping_add(index as u8) & 0x7f), 143 | 144));
        if on_page_10 && touches_apply && bytes.len() > 1 {
            return Err(NotAcknowledged);
        }
        let mut hold_us = self.profile.timing.write_us;
        for (index, &byte) in bytes.iter().enumerate() {
            let offset = half | (offset.wrapping_add(index as u8) & 0x7f);
            let at = RegisterAddress { offset, ..address };
            hold_us = hold_us.max(self.hold_after(at));
            self.put(now, at, byte);
        }
        let free_from = now + Micros(u64::from(hold_us));
        self.bus_free_from = self.bus_free_from.max(free_from);
        self.poll(now);
        Ok(())
    }

    fn bus_free(&self, now: Micros) -> Result<(), NotAcknowledged> {
        if now < self.bus_free_from { Err(NotAcknowledged) } else { Ok(()) }
    }

    fn window(&self, offset: u8) -> RegisterAddress {
        let [bank, page] = [lower::BANK_SELECT, lower::PAGE_SELECT]
            .map(|field| field.get(&self.memory).unwrap_or(0));
        RegisterAddress { bank, page, offset }
    }

    fn hold_after(&self, at: RegisterAddress) -> u32 {
        match Memory::access(at) {
            _ if at.offset == lower::PAGE_SELECT.at.offset => self.profile.timing.page_change_us,
            Access::Locked => self.profile.timing.non_volatile_write_us,
            _ => self.profile.timing.write_us,
        }
    }

    /// Reads registers, like the serial request. Fails with [`RequestRefusal::NoSuchRegister`].
    pub fn read(
        &mut self,
        now: Micros,
        address: RegisterAddress,
        out: &mut [u8],
    ) -> Result<(), RequestRefusal> {
        self.poll(now);
        if !Memory::exists(address) || usize::from(address.offset & 0x7f) + out.len() > 128 {
            return Err(RequestRefusal::NoSuchRegister);
        }
        self.refresh(now);
        for (index, byte) in out.iter_mut().enumerate() {
            *byte = self.memory.take(address.plus(index as u8));
        }
        Ok(())
    }

    /// Writes registers, like the serial request. Fails with [`RequestRefusal::NoSuchRegister`] if a byte is not
    /// writable, or [`RequestRefusal::Locked`] without the password, and then writes nothing.
    pub fn write(
        &mut self,
        now: Micros,
        address: RegisterAddress,
        bytes: &[u8],
    ) -> Result<(), RequestRefusal> {
        self.poll(now);
        if usize::from(address.offset & 0x7f) + bytes.len() > 128 {
            return Err(RequestRefusal::NoSuchRegister);
        }
        for index in 0..bytes.len() {
            let at = address.plus(index as u8);
            match Memory::access(at) {
                _ if !Memory::exists(at) => return Err(RequestRefusal::NoSuchRegister),
                Access::Read => return Err(RequestRefusal::NoSuchRegister),
                Access::Locked if !self.unlocked => return Err(RequestRefusal::Locked),
                Access::Locked | Access::Write => {}
            }
        }
        for (index, &byte) in bytes.iter().enumerate() {
            self.put(now, address.plus(index as u8), byte);
        }
        self.poll(now);
        Ok(())
    }

    /// Processes the epoch of a request. A larger epoch disarms the previous host's change. Fails with
    /// [`RequestRefusal::EarlierEpoch`] after a request with a larger epoch.
    pub fn enter(&mut self, now: Micros, epoch: Epoch) -> Result<(), RequestRefusal> {
        if epoch < self.epoch {
            return Err(RequestRefusal::EarlierEpoch);
        }
        if epoch > self.epoch {
            self.epoch = epoch;
            // A change that is already switching completes and stays armed.
            let armed = self.switch.armed();
            let _still_moving = self.disarm(now, armed);
        }
        Ok(())
    }

    /// Checks and stores a change of paths. Fails with [`RequestRefusal::Busy`] while a group is switching.
    pub fn arm(&mut self, now: Micros, arm: Arm) -> Result<ArmReport, RequestRefusal> {
        self.poll(now);
        self.arm_now(arm)
    }

    fn arm_now(&mut self, arm: Arm) -> Result<ArmReport, RequestRefusal> {
        let report = self.switch.arm(&self.profile, arm)?;
        self.arm_waits = false;
        self.show_arm(&arm);
        Ok(report)
    }

    /// Starts the armed change; [`Module::moving`] returns false when it has ended. Fails with
    /// [`RequestRefusal::NotArmed`]. The report shows groups that cannot be switched.
    pub fn fire(
        &mut self,
        now: Micros,
        transaction: TransactionId,
        groups: Groups,
    ) -> Result<(), RequestRefusal> {
        self.poll(now);
        self.fire_now(now, transaction, groups)
    }

    fn fire_now(
        &mut self,
        now: Micros,
        transaction: TransactionId,
        groups: Groups,
    ) -> Result<(), RequestRefusal> {
        let permission = Permission {
            ready: self.power.state == crate::cmis::state::ModuleState::Ready,
            all_deactivated: self.power.all_deactivated(),
        };
        let hardware = &mut self.hardware;
        let fired = self.switch.fire(&self.profile, hardware, now, transaction, groups, permission);
        self.drive_transmitters(now);
        fired
    }

    /// Arms and starts a change; [`Module::moving`] returns false when it has ended. Fails with
    /// [`RequestRefusal::UnknownCommand`] without this capability, and [`RequestRefusal::Busy`] during
    /// another change. The report lists groups that cannot be switched.
    pub fn go(&mut self, now: Micros, arm: Arm, groups: Groups) -> Result<(), RequestRefusal> {
        self.poll(now);
        if !self.profile.capabilities.has(Capabilities::GO) {
            return Err(RequestRefusal::UnknownCommand);
        }
        // A retry during the switching waits for the same outcome.
        if self.switch.armed() != arm.transaction {
            self.arm_now(arm)?;
        }
        self.fire_now(now, arm.transaction, groups)
    }

    /// Enables or disables events. Does not report the current state. Fails with
    /// [`RequestRefusal::UnknownCommand`] if events are not supported.
    pub fn set_events(
        &mut self,
        now: Micros,
        enabled: bool,
        debounce_us: u16,
    ) -> Result<EventsReport, RequestRefusal> {
        self.poll(now);
        if !self.profile.capabilities.has(Capabilities::EVENTS) {
            return Err(RequestRefusal::UnknownCommand);
        }
        let report = self.watch.set(&self.profile, enabled, debounce_us);
        self.poll(now);
        Ok(report)
    }

    /// Returns the next event that the rate limit permits.
    pub fn take_event(&mut self, now: Micros) -> Option<Event> {
        let (kind, group, skipped) = self.watch.take(now)?;
        let active = self.switch.active(&self.hardware, now)[usize::from(group)];
        let power = active.external_number().map_or(Power::default(), |n| self.tap(now, n));
        let uptime_ms = u32::try_from(now.since(self.answers_from).0 / 1_000).unwrap_or(u32::MAX);
        Some(Event { kind, group, active, power, boots: self.boots, uptime_ms, skipped })
    }

    /// Returns when [`Module::take_event`] will return an event.
    pub fn next_event(&self) -> Option<Micros> {
        self.watch.next_event()
    }

    /// Returns whether any group is switching.
    pub fn moving(&self) -> bool {
        !self.switch.busy().is_empty()
    }

    /// Returns the outcome or the progress of the last fire.
    pub fn fire_report(&self, now: Micros) -> FireReport {
        self.switch.report(&self.hardware, now)
    }

    /// Disarms `transaction` if it is armed. Fails with [`RequestRefusal::Busy`] while it is switching.
    pub fn disarm(
        &mut self,
        now: Micros,
        transaction: TransactionId,
    ) -> Result<(), RequestRefusal> {
        self.poll(now);
        self.switch.disarm(transaction)?;
        if self.switch.armed() == TransactionId::NONE {
            page_b0::ENABLE.set(&mut self.memory, false);
        }
        Ok(())
    }

    /// Stores the power-on paths. Fails with [`RequestRefusal::Locked`] for a wrong password and
    /// [`RequestRefusal::Malformed`] for paths that do not exist.
    pub fn set_power_on_paths(
        &mut self,
        now: Micros,
        password: u32,
        paths: Paths,
    ) -> Result<(), RequestRefusal> {
        self.poll(now);
        if password != cdb::DEFAULT_PASSWORD {
            return Err(RequestRefusal::Locked);
        }
        if !paths.iter().copied().all(|path: Path| {
            path.external_number().is_none_or(|number| number <= self.profile.external_paths)
        }) {
            return Err(RequestRefusal::Malformed);
        }
        self.hardware.store_power_on_paths(paths);
        Ok(())
    }

    /// Returns the module's identity.
    pub fn identity(&self) -> Identity {
        let timing = &self.profile.timing;
        Identity {
            versions: (crate::frame::VERSION, crate::frame::VERSION),
            vendor: self.profile.vendor,
            part: self.profile.part,
            serial: self.profile.serial,
            firmware: self.profile.firmware,
            layout: page_b0::LAYOUT_VERSION,
            groups: self.profile.groups,
            external_paths: self.profile.external_paths,
            capabilities: self.profile.capabilities,
            switch_us: timing.switch_us,
            settle_us: timing.settle_us,
            dwell_us: timing.dwell_us,
            commit_max_us: timing.commit_max_us,
            power_low: self.profile.power_low,
        }
    }

    /// Returns the state that a host checks after a change, without clearing flags.
    pub fn status(&mut self, now: Micros) -> StatusReport {
        self.poll(now);
        self.status_now(now)
    }

    /// Returns the link names of the module and its neighbours, without clearing flags.
    pub fn links(&mut self, now: Micros) -> LinksReport {
        self.poll(now);
        LinksReport {
            name: LinkName(page_b0::LINK_NAME.get(&self.memory)),
            neighbours: core::array::from_fn(|group| self.hardware.neighbour(now, group)),
        }
    }

    fn status_now(&self, now: Micros) -> StatusReport {
        let uptime_ms = now.since(self.answers_from).0 / 1_000;
        StatusReport {
            boots: self.boots,
            uptime_ms: u32::try_from(uptime_ms).unwrap_or(u32::MAX),
            module_state: self.power.state.code(),
            armed: self.switch.armed(),
            fired: self.switch.fired,
            generation: self.switch.generation,
            busy: self.switch.busy(),
            active: self.switch.active(&self.hardware, now),
            arm_outcomes: self.switch.arm_outcomes,
            fire_outcomes: self.switch.fire_outcomes,
            data_paths: core::array::from_fn(|lane| self.power.lanes[lane].state.code()),
            taps: core::array::from_fn(|index| self.tap(now, index as u8 + 1)),
            received: core::array::from_fn(|lane| self.hardware.received(now, lane)),
        }
    }

    fn tap(&self, now: Micros, number: u8) -> Power {
        if number <= self.profile.external_paths {
            self.hardware.tap(now, number)
        } else {
            Power::default()
        }
    }
}

impl<H> Registers for Module<H> {
    fn byte(&self, at: RegisterAddress) -> u8 {
        self.memory.byte(at)
    }
}
