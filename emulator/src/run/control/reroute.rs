// SPDX-License-Identifier: Apache-2.0
//! Moves flows to other paths after faults and circuit changes, and abandons flows without a path.

use lightloom_engine::FlowId;
use lightloom_engine::steady::Stage;
use lightloom_engine::transport::{Balance, FlowInterfaces};
use lightloom_units::Picoseconds;

use super::super::{Context, Notice, Owner, RunResult};
use super::ControlPlane;
use crate::scenario::Effect;

pub(crate) struct Rerouter {
    delay: Picoseconds,
    postponed: Vec<u64>,
    me: Owner,
}

const FOR_REPAIR: u64 = u64::MAX;

impl Rerouter {
    pub(crate) fn new(delay: Picoseconds) -> Self {
        Self { delay, postponed: Vec::new(), me: Owner::Control(0) }
    }

    fn plan(&self, context: &mut Context<'_>, act: u64) {
        let time = context.now() + context.slowed(self.delay);
        context.at(time, self.me, act);
    }
}

impl ControlPlane for Rerouter {
    fn begin(&mut self, _: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        Ok(())
    }

    fn fault_began(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        let event = &context.events[fault];
        if event.effect.goes_dark() && !event.is_of_control() {
            self.plan(context, fault as u64);
        }
        Ok(())
    }

    fn fault_ended(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        let event = &context.events[fault];
        if event.effect != Effect::Stuck && !event.is_of_control() {
            self.plan(context, FOR_REPAIR);
        }
        Ok(())
    }

    fn control_returned(&mut self, context: &mut Context<'_>) -> RunResult {
        for act in std::mem::take(&mut self.postponed) {
            self.plan(context, act);
        }
        Ok(())
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        // The circuit controller reroutes without a detection delay.
        if matches!(notice, Notice::Circuits) && !context.control_is_gone() {
            reroute(context, false);
        }
        Ok(())
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult {
        if context.control_is_gone() {
            self.postponed.push(act);
            return Ok(());
        }
        let fault = (act != FOR_REPAIR).then_some(act as usize);
        if let Some(fault) = fault {
            context.close_other_direction(fault);
        }
        let own = fault.filter(|fault| context.events[*fault].planned().is_empty());
        if let Some(fault) = own {
            let now = context.now();
            context.faults[fault].detected = Some(now);
            context.faults[fault].replanned = Some(now);
        }
        let is_hopeless = !context.repairs_come();
        let is_stranded = reroute(context, is_hopeless);
        if act == FOR_REPAIR {
            spread_again(context);
        }
        // Abandoned flows and flows waiting on a fixed path never resume.
        let own = own.filter(|fault| match is_hopeless {
            true => context.faults[*fault].flows_given_up.is_empty(),
            false => !is_stranded,
        });
        if let Some(fault) = own.filter(|fault| !is_waited_for(context, *fault)) {
            let now = context.now();
            context.faults[fault].restored.get_or_insert(now);
        }
        context.post(Notice::Routes);
        Ok(())
    }
}

fn is_waited_for(context: &Context<'_>, fault: usize) -> bool {
    let links = context.events[fault].links();
    if links.is_empty() {
        return false;
    }
    let dark = context.engine.flows_on_dark_links();
    dark.iter().any(|flow| context.crosses(*flow, |link| links.binary_search(link).is_ok()))
}

fn has_static_paths(context: &Context<'_>) -> bool {
    matches!(context.engine.transport().balance, Balance::Entropy { .. })
}

fn spread_again(context: &mut Context<'_>) {
    let transport = context.engine.transport();
    let spreads = transport.balance.paths() > 1 || transport.interfaces == FlowInterfaces::All;
    if !spreads || has_static_paths(context) || context.has_fixed_flows {
        return;
    }
    let mine: Vec<FlowId> = context.flows().collect();
    for flow in mine {
        if context.is_open(flow) {
            // Without any other path, the flow keeps its current one.
            drop(context.engine.reroute_flow(flow));
        }
    }
}

fn has_path_left(context: &mut Context<'_>, flow: FlowId) -> bool {
    let engine = context.engine.engine_mut();
    engine
        .paths(flow)
        .iter()
        .any(|path| path.iter().all(|link| engine.is_up(*link) && engine.is_up(link.reverse())))
}

fn why_given_up(context: &Context<'_>, flow: FlowId) -> Option<usize> {
    let hit = context.faults.iter().rposition(|log| log.flows_hit.contains(&flow));
    let began = context.engine.record(flow).start;
    hit.or_else(|| {
        let there = context.faults.iter().enumerate().filter(|(fault, log)| {
            context.active[*fault] && log.mattered.is_some_and(|at| at <= began)
        });
        there.map(|(fault, _)| fault).next_back()
    })
}

fn reroute(context: &mut Context<'_>, is_hopeless: bool) -> bool {
    let mine: Vec<FlowId> = context.flows().collect();
    let mut is_stranded = false;
    let mut dark = context.engine.flows_on_dark_links();
    dark.retain(|flow| mine.binary_search(flow).is_ok());
    let is_static = has_static_paths(context);
    for flow in dark {
        if is_static && has_path_left(context, flow) {
            continue;
        }
        let has_way = context.engine.reroute_flow(flow).is_ok();
        if has_way && !context.has_fixed_flows {
            continue;
        }
        is_stranded = true;
        if is_hopeless && !context.has_fixed_flows {
            context.engine.cancel_flow(flow);
            if let Some(fault) = why_given_up(context, flow) {
                context.faults[fault].flows_given_up.push(flow);
            }
        }
    }
    is_stranded
}
