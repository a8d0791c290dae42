// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lightloom_firmware_api::cmis::{RegisterAddress, page_b0, page00};
use lightloom_firmware_api::frame::VERSION;
use lightloom_firmware_api::message::{
    Arm, ArmReport, Capabilities, Event, EventsReport, FireReport, Identity, LinkName, LinksReport,
    Neighbour, Power, REGISTER_BYTES_MAX, Reply, Request, RequestRefusal, StatusReport,
    TransactionId,
};
use lightloom_firmware_api::path::{GroupOutcome, Groups, Outcomes, Path};

use crate::memory::{BusError, ModuleMemory};
use crate::moves::{BegunMove, MoveLog};
use crate::profile::{ModuleProfile, PathOrder};
use crate::watch::LightWatch;

#[derive(Debug)]
pub struct AgentState {
    pub moves: MoveLog,
    pub allow_moves: bool,
    serials: Mutex<BTreeMap<String, String>>,
}

impl AgentState {
    pub fn new(moves: MoveLog, allow_moves: bool) -> Self {
        Self { moves, allow_moves, serials: Mutex::default() }
    }

    fn see(&self, module: &str, serial: &str) -> Option<String> {
        let mut serials = self.serials.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = serials.get(serial).filter(|other| *other != module) {
            return Some(other.clone());
        }
        serials.retain(|_, name| name != module);
        serials.insert(serial.to_owned(), module.to_owned());
        None
    }
}

pub struct ServedModule {
    name: String,
    serial: Option<String>,
    profile: Arc<ModuleProfile>,
    memory: Box<dyn ModuleMemory>,
    shared: Arc<AgentState>,
    identity: Option<Identity>,
    armed: Option<(PathOrder, Outcomes)>,
    fired: Option<(PathOrder, Outcomes)>,
    generation: u32,
    boots: u16,
    moved_at: Option<Duration>,
    watch: Option<LightWatch>,
    trouble: Option<String>,
}

#[derive(Clone, Copy)]
struct ModuleNames {
    vendor: [u8; 16],
    part: [u8; 16],
    serial: [u8; 16],
}

enum NotDone {
    Refused(RequestRefusal),
    Bus(BusError),
}

impl From<BusError> for NotDone {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl From<RequestRefusal> for NotDone {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Refused(refusal)
    }
}

type Performed<T> = Result<T, NotDone>;

impl ServedModule {
    pub fn new(
        name: String,
        serial: Option<String>,
        profile: Arc<ModuleProfile>,
        memory: Box<dyn ModuleMemory>,
        shared: Arc<AgentState>,
    ) -> Self {
        // Do not repeat a change that the previous agent process started.
        let fired = shared.moves.last(&name).map(|begun| (begun.order(), [GroupOutcome::None; 8]));
        Self {
            name,
            serial,
            profile,
            memory,
            shared,
            identity: None,
            armed: None,
            fired,
            generation: 0,
            boots: 1,
            moved_at: None,
            watch: None,
            trouble: None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub fn answer<'a>(
        &mut self,
        request: &Request<'_>,
        registers: &'a mut [u8; REGISTER_BYTES_MAX],
    ) -> Reply<'a> {
        self.trouble = None;
        let done = self.perform(request, registers);
        done.unwrap_or_else(|trouble| match trouble {
            NotDone::Refused(refusal) => Reply::Refused(refusal),
            NotDone::Bus(error) => {
                tracing::warn!(module = self.name, %error, "the bus failed");
                self.trouble = Some(error.to_string());
                Reply::Refused(RequestRefusal::BusFailed)
            }
        })
    }

    fn perform<'a>(
        &mut self,
        request: &Request<'_>,
        registers: &'a mut [u8; REGISTER_BYTES_MAX],
    ) -> Performed<Reply<'a>> {
        Ok(match *request {
            Request::Hello => Reply::Identity(self.hello()?),
            Request::Status => Reply::Status(self.status()?),
            Request::Arm(arm) => Reply::Armed(self.arm(&arm)?),
            Request::Fire { transaction, groups } => Reply::Fired(self.fire(transaction, groups)?),
            Request::Go { arm, groups } => Reply::Fired(self.go(&arm, groups)?),
            Request::Disarm { transaction } => {
                self.armed.take_if(|(order, _)| order.transaction == transaction.0);
                Reply::Done
            }
            Request::Links => Reply::Links(self.links()?),
            Request::Read { address, length } => {
                let registers = &mut registers[..usize::from(length)];
                self.memory.read(address, registers)?;
                Reply::Registers(registers)
            }
            Request::Write { address, bytes } => self.write(address, bytes)?,
            Request::Events { enabled, .. } => Reply::Events(self.watch(enabled)?),
            Request::Module { .. } | Request::SetDefault { .. } | Request::Reset => {
                Reply::Refused(RequestRefusal::UnknownCommand)
            }
        })
    }

    fn hello(&mut self) -> Performed<Identity> {
        (self.identity, self.armed, self.watch) = (None, None, None);
        let names = self.read_names()?;
        let ModuleNames { vendor, part, serial } = names;
        let (shown, name) = (text(&serial), self.name.as_str());
        if let Some(expected) = self.serial.as_ref().filter(|expected| **expected != shown) {
            tracing::error!(name, serial = shown, expected, "not the configured module");
            self.trouble = Some(format!("it has serial number {shown}, expected {expected}"));
            return Err(RequestRefusal::OtherModule.into());
        }
        let fits = &self.profile.file().fits;
        let is_part = fits.part.as_ref().is_none_or(|part_fits| *part_fits == text(&part));
        let is_fit = fits.vendor == text(&vendor) && is_part;
        if !is_fit || !self.profile.is_marked(&mut *self.memory)? {
            let (profile, vendor, part) = (&self.profile.file().name, text(&vendor), text(&part));
            tracing::error!(name, profile, vendor, part, "the profile does not match the module");
            self.trouble = Some(format!(
                "the profile `{profile}` does not match: the module reports vendor `{vendor}`, \
                    part `{part}`, which do not contain the strings that the profile requires"
            ));
            return Err(RequestRefusal::OtherModule.into());
        }
        if let Some(other) = self.shared.see(&self.name, &shown) {
            tracing::error!(name, other, serial = shown, "two modules have the same serial number");
            return Err(RequestRefusal::OtherModule.into());
        }
        let mut firmware = [0; 2];
        self.memory.read(RegisterAddress::lower(39), &mut firmware)?;
        let identity = self.describe(names, firmware);
        self.identity = Some(identity);
        Ok(identity)
    }

    fn describe(&self, names: ModuleNames, firmware: [u8; 2]) -> Identity {
        let file = self.profile.file();
        let [settle_us, dwell_us] = [self.profile.settle(), self.profile.dwell()]
            .map(|span| u16::try_from(span.as_micros()).unwrap_or(u16::MAX));
        let mut capabilities = Capabilities::HOT.and(Capabilities::TAPS).and(Capabilities::GO);
        let has = [
            (file.paths.dark.is_some(), Capabilities::DARK),
            (file.paths.loopback.is_some(), Capabilities::LOOPBACK),
            (file.groups == 1, Capabilities::EVENTS),
            (file.links.is_some() && self.shared.allow_moves, Capabilities::NEIGHBOURS),
        ];
        for (_, capability) in has.into_iter().filter(|(has, _)| *has) {
            capabilities = capabilities.and(capability);
        }
        Identity {
            versions: (VERSION, VERSION),
            vendor: names.vendor,
            part: names.part,
            serial: names.serial,
            firmware: firmware.into(),
            layout: page_b0::LAYOUT_VERSION,
            groups: file.groups,
            external_paths: u8::try_from(file.paths.external.len()).unwrap_or(8),
            capabilities,
            switch_us: 0,
            settle_us,
            dwell_us,
            commit_max_us: u32::try_from(self.profile.within().as_micros()).unwrap_or(u32::MAX),
            power_low: Power(file.limits.power_low),
        }
    }

    fn read_names(&mut self) -> Result<ModuleNames, BusError> {
        let mut page = [0; 54];
        self.memory.read(RegisterAddress::page(0, 128), &mut page)?;
        let [vendor, part, serial] = [129, 148, 166]
            .map(|offset: usize| std::array::from_fn(|index| page[offset - 128 + index]));
        Ok(ModuleNames { vendor, part, serial })
    }

    /// Promises no response time, because it depends on the bus.
    fn watch(&mut self, enabled: bool) -> Performed<EventsReport> {
        self.still_the_one()?;
        if self.profile.file().groups != 1 {
            return Err(RequestRefusal::UnknownCommand.into());
        }
        let mut watch = LightWatch::default();
        watch.moved(self.memory.now());
        self.watch = enabled.then_some(watch);
        Ok(EventsReport { enabled, ..EventsReport::default() })
    }

    pub fn watches(&self) -> bool {
        self.watch.is_some()
    }

    pub fn ends_watch(&mut self) {
        self.watch = None;
    }

    pub fn acknowledged(&mut self, number: u16) {
        if let Some(watch) = &mut self.watch {
            watch.acknowledged(number);
        }
    }

    pub fn look(&mut self) -> Option<(u16, Event)> {
        let (watch, memory) = (self.watch.as_mut()?, &mut *self.memory);
        // If the bus fails, the next request reports it.
        let (number, kind) = watch.look(memory).ok()??;
        let active = self.profile.active(memory).ok()?[0];
        let uptime_ms = u32::try_from(memory.now().as_millis()).unwrap_or(u32::MAX);
        let boots = self.boots;
        Some((number, Event { kind, active, boots, uptime_ms, ..Event::default() }))
    }

    fn still_the_one(&mut self) -> Performed<()> {
        let known = self.identity.ok_or(RequestRefusal::OtherModule)?;
        let ModuleNames { serial, .. } = self.read_names()?;
        if serial != known.serial {
            let (name, now, before) = (self.name.as_str(), text(&serial), text(&known.serial));
            tracing::error!(
                name,
                now,
                before,
                "the module in this cage was replaced, so it is not switched"
            );
            self.identity = None;
            self.armed = None;
            self.boots = self.boots.wrapping_add(1);
            return Err(RequestRefusal::OtherModule.into());
        }
        Ok(())
    }

    fn arm(&mut self, arm: &Arm) -> Performed<ArmReport> {
        if !self.shared.allow_moves {
            return Err(RequestRefusal::ReadOnly.into());
        }
        self.still_the_one()?;
        self.prepare(arm, Groups::first(self.profile.file().groups))
    }

    fn prepare(&mut self, arm: &Arm, groups: Groups) -> Performed<ArmReport> {
        let order = PathOrder {
            transaction: arm.transaction.0,
            policy: arm.policy.code(),
            paths: arm.paths,
            groups,
        };
        self.armed = None;
        let outcomes = self.profile.arm(&mut *self.memory, &order)?;
        self.armed = Some((order, outcomes));
        Ok(ArmReport { transaction: arm.transaction, outcomes })
    }

    fn go(&mut self, arm: &Arm, groups: Groups) -> Performed<FireReport> {
        if !self.shared.allow_moves {
            return Err(RequestRefusal::ReadOnly.into());
        }
        self.still_the_one()?;
        if let Some(report) = self.again(arm.transaction)? {
            return Ok(report);
        }
        let armed = self.prepare(arm, groups)?;
        if groups.iter().any(|group| armed.outcomes[group] != GroupOutcome::Success) {
            let active = self.profile.active(&mut *self.memory)?;
            return Ok(self.report(arm.transaction, armed.outcomes, active));
        }
        self.begin(groups)
    }

    fn fire(&mut self, transaction: TransactionId, groups: Groups) -> Performed<FireReport> {
        if !self.shared.allow_moves {
            return Err(RequestRefusal::ReadOnly.into());
        }
        self.still_the_one()?;
        if let Some(report) = self.again(transaction)? {
            return Ok(report);
        }
        let armed = self.armed.filter(|(order, _)| order.transaction == transaction.0);
        if armed.is_none() {
            return Err(RequestRefusal::NotArmed.into());
        }
        self.begin(groups)
    }

    fn again(&mut self, transaction: TransactionId) -> Performed<Option<FireReport>> {
        let Some((order, mut outcomes)) =
            self.fired.filter(|(order, _)| order.transaction == transaction.0)
        else {
            return Ok(None);
        };
        let active = self.profile.active(&mut *self.memory)?;
        for group in order.groups.iter() {
            let is_there = active[group] == order.paths[group];
            if outcomes[group] == GroupOutcome::None || !is_there {
                outcomes[group] =
                    if is_there { GroupOutcome::Success } else { GroupOutcome::HardwareFault };
            }
        }
        Ok(Some(self.report(transaction, outcomes, active)))
    }

    fn begin(&mut self, groups: Groups) -> Performed<FireReport> {
        let (order, _) = self.armed.take().ok_or(RequestRefusal::NotArmed)?;
        let order = PathOrder { groups, ..order };
        if let Some(moved_at) = self.moved_at {
            let rest = (moved_at + self.profile.dwell()).saturating_sub(self.memory.now());
            self.memory.pause(rest);
        }
        let serial = self.identity.map(|identity| text(&identity.serial)).unwrap_or_default();
        let begun = BegunMove::new(&self.name, &serial, &order);
        if let Err(error) = self.shared.moves.begin(begun) {
            let name = self.name.as_str();
            tracing::error!(
                name,
                "the move log is not writable, so no module is switched: \
                {error:#}"
            );
            return Err(RequestRefusal::WrongState.into());
        }
        self.fired = Some((order, [GroupOutcome::None; 8]));
        let fired = self.profile.fire(&mut *self.memory, &order);
        let now = self.memory.now();
        if let Some(watch) = &mut self.watch {
            watch.moved(now);
        }
        let (outcomes, active) = fired?;
        self.moved_at = Some(now);
        self.fired = Some((order, outcomes));
        let has_moved = groups.iter().any(|group| {
            matches!(outcomes[group], GroupOutcome::Success | GroupOutcome::PowerLow)
                && active[group] == order.paths[group]
        });
        if has_moved {
            self.generation = self.generation.wrapping_add(1);
        }
        Ok(self.report(TransactionId(order.transaction), outcomes, active))
    }

    fn report(
        &self,
        transaction: TransactionId,
        outcomes: Outcomes,
        active: [Path; 8],
    ) -> FireReport {
        FireReport { transaction, generation: self.generation, outcomes, active }
    }

    fn status(&mut self) -> Performed<StatusReport> {
        self.still_the_one()?;
        let mut state = [0];
        self.memory.read(RegisterAddress::lower(3), &mut state)?;
        let active = self.profile.active(&mut *self.memory)?;
        // Read both ranges separately, because a single read would also clear the flags in between.
        let (mut lanes, mut powers) = ([0; 4], [0; 16]);
        self.memory.read(RegisterAddress::page(0x11, 128), &mut lanes)?;
        self.memory.read(RegisterAddress::page(0x11, 186), &mut powers)?;
        let received = words(&powers);
        let taps = self.taps(active[0], received)?;
        let (armed, arm_outcomes) =
            self.armed.map_or((0, [GroupOutcome::None; 8]), |armed| (armed.0.transaction, armed.1));
        let (fired, fire_outcomes) =
            self.fired.map_or((0, [GroupOutcome::None; 8]), |fired| (fired.0.transaction, fired.1));
        let uptime_ms = u32::try_from(self.memory.now().as_millis()).unwrap_or(u32::MAX);
        Ok(StatusReport {
            boots: self.boots,
            uptime_ms,
            module_state: state[0] >> 1 & 7,
            armed: TransactionId(armed),
            fired: TransactionId(fired),
            generation: self.generation,
            busy: Groups::NONE,
            active,
            arm_outcomes,
            fire_outcomes,
            data_paths: std::array::from_fn(|lane| match lane % 2 {
                0 => lanes[lane / 2] & 0x0f,
                _ => lanes[lane / 2] >> 4,
            }),
            taps,
            received,
        })
    }

    fn taps(&mut self, active: Path, received: [Power; 8]) -> Performed<[Power; 8]> {
        let mut taps = [Power::default(); 8];
        match (self.profile.file().taps, active.external_number()) {
            (Some(at), _) => {
                let mut bytes = vec![0; 2 * self.profile.file().paths.external.len()];
                self.memory.read(at.0, &mut bytes)?;
                for (tap, pair) in taps.iter_mut().zip(bytes.chunks_exact(2)) {
                    *tap = Power(u16::from_be_bytes([pair[0], pair[1]]));
                }
            }
            (None, Some(number)) => {
                let sum: u32 = received.iter().map(|power| u32::from(power.0)).sum();
                taps[usize::from(number) - 1] = Power(u16::try_from(sum / 8).unwrap_or(u16::MAX));
            }
            (None, None) => {}
        }
        Ok(taps)
    }

    fn links(&mut self) -> Performed<LinksReport> {
        let links = self.profile.file().links.as_ref().ok_or(RequestRefusal::UnknownCommand)?;
        let (own_at, neighbour_at) = (links.own.0, links.neighbour.0);
        let (mut own, mut seen) = ([0; 4], [0; 5]);
        self.memory.read(own_at, &mut own)?;
        self.memory.read(neighbour_at, &mut seen)?;
        let mut report =
            LinksReport { name: LinkName(u32::from_be_bytes(own)), ..Default::default() };
        let [name @ .., path] = seen;
        report.neighbours[0] = Neighbour { name: LinkName(u32::from_be_bytes(name)), path };
        Ok(report)
    }

    /// The daemon may only write the module's name; it switches paths by other requests.
    fn write<'a>(&mut self, address: RegisterAddress, bytes: &[u8]) -> Performed<Reply<'a>> {
        let links = self.profile.file().links.as_ref();
        let own = links.filter(|_| address == page_b0::LINK_NAME.at && bytes.len() == 4);
        let own = own.ok_or(RequestRefusal::NoSuchRegister)?.own.0;
        if !self.shared.allow_moves {
            return Err(RequestRefusal::ReadOnly.into());
        }
        self.still_the_one()?;
        self.memory.write(own, bytes)?;
        Ok(Reply::Done)
    }
}

fn words(bytes: &[u8; 16]) -> [Power; 8] {
    std::array::from_fn(|lane| Power(u16::from_be_bytes([bytes[2 * lane], bytes[2 * lane + 1]])))
}

fn text(bytes: &[u8]) -> String {
    page00::characters(bytes).collect::<String>().trim().to_owned()
}
