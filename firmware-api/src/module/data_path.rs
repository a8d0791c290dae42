// SPDX-License-Identifier: Apache-2.0

use crate::cmis::page10::LaneConfig;
use crate::cmis::state::{ConfigStatus, DataPathState, ModuleState};
use crate::module::profile::{Profile, Timing};
use crate::time::Micros;

pub(crate) const LANES: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) low_power: bool,
    pub(crate) deinit: u8,
    pub(crate) tx_disable: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPathLane {
    pub(crate) state: DataPathState,
    until: Option<Micros>,
    pub(crate) active: LaneConfig,
    pub(crate) config: ConfigStatus,
    /// Whether the active configuration has not been initialised since it was applied.
    pub(crate) init_pending: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PowerAndLanes {
    pub(crate) state: ModuleState,
    until: Option<Micros>,
    pub(crate) lanes: [DataPathLane; LANES],
    configuring: Option<(Micros, [ConfigStatus; LANES], [LaneConfig; LANES])>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LatchedEvents {
    pub(crate) module_state_changed: bool,
    pub(crate) lanes_changed: u8,
}

impl PowerAndLanes {
    pub(crate) fn power_on(profile: &Profile) -> Self {
        let lanes = core::array::from_fn(|lane| DataPathLane {
            state: DataPathState::Deactivated,
            until: None,
            active: default_config(profile, lane),
            config: ConfigStatus::Undefined,
            init_pending: true,
        });
        Self { state: ModuleState::LowPower, until: None, lanes, configuring: None }
    }

    pub(crate) fn all_deactivated(&self) -> bool {
        self.lanes.iter().all(|lane| lane.state == DataPathState::Deactivated)
    }

    pub(crate) fn transmitting(&self) -> u8 {
        (0..LANES)
            .filter(|&lane| self.lanes[lane].state == DataPathState::Activated)
            .fold(0, |lanes, lane| lanes | 1 << lane)
    }

    pub(crate) fn next_end(&self) -> Option<Micros> {
        let lanes = self.lanes.iter().filter_map(|lane| lane.until);
        let configuring = self.configuring.map(|(at, ..)| at);
        // The state PowerDown waits until the last data path has stopped.
        let waits_for_lanes = self.state == ModuleState::PowerDown && !self.all_deactivated();
        let module = self.until.filter(|_| !waits_for_lanes);
        lanes.chain(module).chain(configuring).min()
    }

    pub(crate) fn advance(
        &mut self,
        timing: &Timing,
        wishes: Wishes,
        now: Micros,
    ) -> LatchedEvents {
        let mut events = LatchedEvents::default();
        self.finish_configuring(now);
        loop {
            let stepped = self.step_module(timing, wishes, now);
            events.module_state_changed |= stepped;
            let ready = self.state == ModuleState::Ready;
            let lanes = self.step_lanes(timing, wishes, ready, now);
            events.lanes_changed |= lanes.unwrap_or(0);
            if !stepped && lanes.is_none() {
                return events;
            }
        }
    }

    fn step_module(&mut self, timing: &Timing, wishes: Wishes, now: Micros) -> bool {
        let due = self.until.is_some_and(|at| at <= now);
        let (state, takes_us) = match self.state {
            ModuleState::LowPower if !wishes.low_power => {
                (ModuleState::PowerUp, Some(timing.power_up_us))
            }
            ModuleState::PowerUp if wishes.low_power => {
                (ModuleState::PowerDown, Some(timing.power_down_us))
            }
            ModuleState::PowerUp if due => (ModuleState::Ready, None),
            ModuleState::Ready if wishes.low_power => {
                (ModuleState::PowerDown, Some(timing.power_down_us))
            }
            ModuleState::PowerDown if due && self.all_deactivated() => {
                (ModuleState::LowPower, None)
            }
            _ => return false,
        };
        self.state = state;
        self.until = takes_us.map(|takes| now + Micros(u64::from(takes)));
        true
    }

    fn step_lanes(
        &mut self,
        timing: &Timing,
        wishes: Wishes,
        ready: bool,
        now: Micros,
    ) -> Option<u8> {
        let mut steady = None;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let runs = ready && wishes.deinit >> index & 1 == 0 && lane.active.application != 0;
            let lit = runs && wishes.tx_disable >> index & 1 == 0;
            let passing = lane.until.is_some_and(|at| at > now);
            let start_given_up = lane.state == DataPathState::Init && !runs;
            if passing && !start_given_up {
                continue;
            }
            let Some((state, takes_us)) = next_state(lane.state, runs, lit, timing) else {
                continue;
            };
            lane.init_pending &= state != DataPathState::Initialized;
            lane.state = state;
            lane.until = takes_us.map(|takes| now + Micros(u64::from(takes)));
            let reached = if takes_us.is_none() { 1 << index } else { 0 };
            steady = Some(steady.unwrap_or(0) | reached);
        }
        steady
    }

    /// Checks the configuration immediately, but shows the result after `configure_us`.
    pub(crate) fn apply(
        &mut self,
        profile: &Profile,
        staged: [LaneConfig; LANES],
        lanes: u8,
        now: Micros,
    ) {
        let verdicts = core::array::from_fn(|lane| {
            if lanes >> lane & 1 == 0 {
                self.lanes[lane].config
            } else {
                self.verdict(profile, &staged, lanes, lane)
            }
        });
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 == 1) {
            self.lanes[lane].config = ConfigStatus::InProgress;
        }
        let at = now + Micros(u64::from(profile.timing.configure_us));
        self.configuring = Some((at, verdicts, staged));
    }

    fn finish_configuring(&mut self, now: Micros) {
        let Some((_, verdicts, staged)) = self.configuring.filter(|&(at, ..)| at <= now) else {
            return;
        };
        self.configuring = None;
        for (lane, (verdict, config)) in self.lanes.iter_mut().zip(verdicts.iter().zip(staged)) {
            if lane.config == ConfigStatus::InProgress && *verdict == ConfigStatus::Success {
                lane.active = config;
                lane.init_pending = true;
            }
            lane.config = *verdict;
        }
    }

    fn verdict(
        &self,
        profile: &Profile,
        staged: &[LaneConfig; LANES],
        applied: u8,
        lane: usize,
    ) -> ConfigStatus {
        let config = staged[lane];
        let current = &self.lanes[lane];
        if current.state != DataPathState::Deactivated && current.active != config {
            return ConfigStatus::LaneInUse;
        }
        if config.application == 0 {
            return ConfigStatus::Success;
        }
        let index = usize::from(config.application) - 1;
        let Some(application) = profile.applications.get(index) else {
            return ConfigStatus::BadAppSel;
        };
        let first = usize::from(config.data_path);
        let last = first + usize::from(application.host_lanes);
        let may_begin = application.host_assignment >> first & 1 == 1;
        if !may_begin || last > LANES || !(first..last).contains(&lane) {
            return ConfigStatus::BadDataPath;
        }
        let whole = (first..last).all(|other| {
            applied >> other & 1 == 1
                && staged[other].application == config.application
                && staged[other].data_path == config.data_path
        });
        if whole { ConfigStatus::Success } else { ConfigStatus::PartialDataPath }
    }
}

fn next_state(
    state: DataPathState,
    runs: bool,
    lit: bool,
    timing: &Timing,
) -> Option<(DataPathState, Option<u32>)> {
    use DataPathState as S;
    match state {
        S::Deactivated if runs => Some((S::Init, Some(timing.data_path_init_us))),
        S::Init if !runs => Some((S::Deinit, Some(timing.data_path_deinit_us))),
        S::Init => Some((S::Initialized, None)),
        S::Initialized if !runs => Some((S::Deinit, Some(timing.data_path_deinit_us))),
        S::Initialized if lit => Some((S::TxTurnOn, Some(timing.tx_turn_on_us))),
        S::TxTurnOn => Some((S::Activated, None)),
        S::Activated if !lit => Some((S::TxTurnOff, Some(timing.tx_turn_off_us))),
        S::TxTurnOff => Some((S::Initialized, None)),
        S::Deinit => Some((S::Deactivated, None)),
        _ => None,
    }
}

pub(crate) fn default_config(profile: &Profile, lane: usize) -> LaneConfig {
    let Some(application) = profile.applications.first() else { return LaneConfig::default() };
    let lanes = usize::from(application.host_lanes.max(1));
    let data_path = lane - lane % lanes;
    LaneConfig { application: 1, data_path: data_path as u8, explicit: false }
}
