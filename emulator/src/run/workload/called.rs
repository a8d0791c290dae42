// SPDX-License-Identifier: Apache-2.0
//! Traffic of an external program, which receives a callback when a message or timer completes.

use std::collections::VecDeque;

use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, EngineError, FlowId, FlowRecord, FlowSpec, Route, VertexId};
use lightloom_units::{Bytes, SimTime};
use rustc_hash::FxHashMap;

use super::super::{Context, Notice, Owner, RunLog, RunResult};
use super::{Waiting, WaitsFor, Workload, shortened};
use crate::substrate::{HBD, Substrate};

/// A message or timer ordered by the program. The program chooses its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramOrder {
    /// A message between two hosts, given by their indices.
    Send {
        /// Passed to [`Caller::is_over`] when the last byte has arrived.
        number: u64,
        /// Sending host.
        from: u32,
        /// Receiving host, different from `from`.
        to: u32,
        /// Size, at least one byte.
        bytes: Bytes,
    },
    /// A timer.
    Wake {
        /// Passed to [`Caller::is_over`] when the timer expires.
        number: u64,
        /// Expiry time, not in the past.
        at: SimTime,
    },
}

impl ProgramOrder {
    fn name(&self, substrate: &Substrate) -> String {
        match self {
            Self::Send { from, to, .. } => {
                let [from, to] = [from, to]
                    .map(|place| substrate.name(substrate.hosts[*place as usize]).to_owned());
                format!("{from} to {to}")
            }
            Self::Wake { at, .. } => format!("timer at {at}"),
        }
    }
}

/// An external program.
pub trait Caller {
    /// Called when the order with this number is complete.
    fn is_over(&mut self, now: SimTime, number: u64);

    /// Appends the orders placed since the last call.
    fn take_orders(&mut self, now: SimTime, orders: &mut VecDeque<ProgramOrder>);
}

pub(crate) struct Called<'a> {
    caller: Box<dyn Caller + 'a>,
    orders: VecDeque<ProgramOrder>,
    blocked: Vec<ProgramOrder>,
    open: FxHashMap<BatchId, (u64, FlowId)>,
    timers: Vec<u64>,
    free: Vec<usize>,
    me: Owner,
}

impl<'a> Called<'a> {
    pub(crate) fn new(caller: Box<dyn Caller + 'a>) -> Self {
        Self {
            caller,
            orders: VecDeque::new(),
            blocked: Vec::new(),
            open: FxHashMap::default(),
            timers: Vec::new(),
            free: Vec::new(),
            me: Owner::Workload(0),
        }
    }

    fn obey(&mut self, context: &mut Context<'_>) -> RunResult {
        self.caller.take_orders(context.now(), &mut self.orders);
        while let Some(order) = self.orders.pop_front() {
            match order {
                ProgramOrder::Wake { number, at } => {
                    let place = self.free.pop().unwrap_or(self.timers.len());
                    match self.timers.get_mut(place) {
                        Some(free) => *free = number,
                        None => self.timers.push(number),
                    }
                    context.at(at, self.me, place as u64);
                }
                ProgramOrder::Send { .. } => self.send(context, order)?,
            }
        }
        Ok(())
    }

    fn send(&mut self, context: &mut Context<'_>, order: ProgramOrder) -> RunResult {
        let ProgramOrder::Send { number, from, to, bytes } = order else { return Ok(()) };
        let [from, to] = [from, to].map(|place| context.substrate.hosts[place as usize]);
        let batch = context.engine.engine_mut().add_prompt_batch();
        let flow = FlowSpec::new(from, to, bytes).at(context.now()).in_batch(batch);
        match context.engine.add_flow(flow.over(route(context, [from, to]))) {
            Ok(flow) => {
                context.own(batch, self.me);
                context.note_flows(flow.0..flow.0 + 1);
                self.open.insert(batch, (number, flow));
            }
            Err(EngineError::Route(_)) => self.blocked.push(order),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn over(&mut self, context: &mut Context<'_>, number: u64) -> RunResult {
        self.caller.is_over(context.now(), number);
        self.obey(context)
    }

    fn find_ways(&mut self, context: &mut Context<'_>) -> RunResult {
        let mine: Vec<FlowId> = self.open.values().map(|(_, flow)| *flow).collect();
        let mut dark = context.engine.flows_on_dark_links();
        dark.retain(|flow| mine.contains(flow));
        for flow in dark {
            // Without an alternative, the flow waits until its path is up again.
            let _ = context.engine.reroute_flow(flow);
        }
        for order in std::mem::take(&mut self.blocked) {
            self.send(context, order)?;
        }
        Ok(())
    }
}

fn route(context: &Context<'_>, [from, to]: [VertexId; 2]) -> Route {
    let substrate = context.substrate;
    if substrate.rings.is_none() {
        return substrate.route.clone();
    }
    let network = &substrate.network;
    let [mut near, far] = [from, to].map(|at| {
        let lit = network.outgoing(at).iter().filter(|link| {
            let is_in_domain = network.link(**link).spec.plane == HBD;
            is_in_domain && context.carries(**link) && context.carries(link.reverse())
        });
        lit.map(|link| network.link(*link).to)
    });
    let joined = near.any(|near| {
        let is_switch = substrate.place_of(near).is_none();
        near == to || is_switch && far.clone().any(|other| other == near)
    });
    if joined { Route::Within(HBD) } else { substrate.route.clone() }
}

fn rest(context: &Context<'_>, number: u64, record: &FlowRecord) -> ProgramOrder {
    let [from, to] = [record.source, record.destination]
        .map(|host| context.substrate.place_of(host).expect("both ends of a message are hosts"));
    ProgramOrder::Send { number, from, to, bytes: Bytes(record.size.0 - record.delivered.0) }
}

impl Workload for Called<'_> {
    fn begin(&mut self, _: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        Ok(())
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult {
        let place = usize::try_from(act).expect("the timer number is an index");
        self.free.push(place);
        self.over(context, self.timers[place])
    }

    fn batch_done(&mut self, context: &mut Context<'_>, batch: BatchId, _: SimTime) -> RunResult {
        match self.open.remove(&batch) {
            Some((number, flow)) => match context.engine.record(flow) {
                record if record.cancelled => self.send(context, rest(context, number, &record)),
                _ => self.over(context, number),
            },
            None => Ok(()),
        }
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        match notice {
            Notice::Called => self.obey(context),
            Notice::Routes => self.find_ways(context),
            Notice::Groups(_) | Notice::Circuits if !context.control_is_gone() => {
                self.find_ways(context)
            }
            _ => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.open.is_empty() && self.blocked.is_empty() && self.free.len() == self.timers.len()
    }

    fn can_strand(&self) -> bool {
        true
    }

    fn progress(&self, _: &Context<'_>) -> (f64, f64) {
        (0.0, 0.0)
    }

    fn last_end(&self) -> Option<SimTime> {
        None
    }

    fn waiting(&self, context: &Context<'_>) -> Vec<Waiting> {
        let mut open: Vec<FlowId> = self.open.values().map(|(_, flow)| *flow).collect();
        open.sort_unstable();
        let on_way = open.into_iter().map(|flow| Waiting {
            what: super::jobs::flow_name(context, flow),
            ..super::jobs::flow_waits(context, flow)
        });
        let blocked = self.blocked.iter().map(|order| Waiting {
            what: order.name(context.substrate),
            since: None,
            waits_for: WaitsFor::Way,
        });
        shortened("messages", on_way.chain(blocked).collect())
    }

    fn finish(self: Box<Self>, _: &mut Context<'_>, _: &mut RunLog) {}
}
