// SPDX-License-Identifier: Apache-2.0
//! What a program sends that runs beside the run: it orders messages and timers, and is called when each is over.

use std::collections::VecDeque;

use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, EngineError, FlowId, FlowRecord, FlowSpec, Route, VertexId};
use lightloom_units::{Bytes, SimTime};
use rustc_hash::FxHashMap;

use super::super::{Context, Notice, Owner, RunError, RunLog};
use super::{Waiting, WaitsFor, Workload, shortened};
use crate::substrate::{HBD, Substrate};

/// Something that the program asks for. Its number is the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramOrder {
    /// A message from one host to another, by their places.
    Send {
        /// What [`Caller::is_over`] is called with when the last byte has arrived.
        number: u64,
        /// The sending host.
        from: u32,
        /// The receiving host; another one.
        to: u32,
        /// How much; at least a byte.
        bytes: Bytes,
    },
    /// A timer.
    Wake {
        /// What [`Caller::is_over`] is called with.
        number: u64,
        /// When; now at the earliest.
        at: SimTime,
    },
}

impl ProgramOrder {
    /// What it is called where it waits.
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

/// The program.
pub trait Caller {
    /// What it asked for under this number is over.
    fn is_over(&mut self, now: SimTime, number: u64);

    /// Adds what it asks for since it was last asked.
    fn take_orders(&mut self, now: SimTime, orders: &mut VecDeque<ProgramOrder>);
}

/// The orders of one caller.
pub(crate) struct Called<'a> {
    caller: Box<dyn Caller + 'a>,
    /// What the caller has ordered and is still to be done.
    orders: VecDeque<ProgramOrder>,
    /// Messages between hosts that have no way now.
    blocked: Vec<ProgramOrder>,
    /// By batch under way: the caller's number, and its flow.
    open: FxHashMap<BatchId, (u64, FlowId)>,
    /// By timer: the caller's number.
    timers: Vec<u64>,
    /// Places among the timers that are free.
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

    /// Does what the caller has ordered.
    fn obey(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
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

    fn send(&mut self, context: &mut Context<'_>, order: ProgramOrder) -> Result<(), RunError> {
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

    fn over(&mut self, context: &mut Context<'_>, number: u64) -> Result<(), RunError> {
        self.caller.is_over(context.now(), number);
        self.obey(context)
    }

    /// What moved light leaves in the dark takes another way, and what had none may have one.
    fn find_ways(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let mine: Vec<FlowId> = self.open.values().map(|(_, flow)| *flow).collect();
        let mut dark = context.engine.flows_on_dark_links();
        dark.retain(|flow| mine.contains(flow));
        for flow in dark {
            // One that has no other way waits for its own.
            let _ = context.engine.reroute_flow(flow);
        }
        for order in std::mem::take(&mut self.blocked) {
            self.send(context, order)?;
        }
        Ok(())
    }
}

/// The cables of the domain where two hosts are joined by one that has light, or by one switch; else the usual way.
fn route(context: &Context<'_>, [from, to]: [VertexId; 2]) -> Route {
    let substrate = context.substrate;
    if substrate.rings.is_none() {
        return substrate.route.clone();
    }
    let network = &substrate.network;
    let lit = |at: VertexId| {
        let links = network.outgoing(at).iter().copied();
        let carries = |link| context.carries(link) && context.carries(link.reverse());
        let lit = links.filter(move |link| network.link(*link).spec.plane == HBD && carries(*link));
        lit.map(|link| network.link(link).to)
    };
    let is_switch = |at: &VertexId| substrate.place_of(*at).is_none();
    let joined =
        lit(from).any(|near| near == to || is_switch(&near) && lit(to).any(|other| other == near));
    if joined { Route::Within(HBD) } else { substrate.route.clone() }
}

/// What has not arrived of a message.
fn rest(context: &Context<'_>, number: u64, record: &FlowRecord) -> ProgramOrder {
    let place = |host| context.substrate.place_of(host).expect("messages end at hosts");
    let [from, to] = [record.source, record.destination].map(place);
    ProgramOrder::Send { number, from, to, bytes: Bytes(record.size.0 - record.delivered.0) }
}

impl Workload for Called<'_> {
    fn begin(&mut self, _: &mut Context<'_>, me: Owner) -> Result<(), RunError> {
        self.me = me;
        Ok(())
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> Result<(), RunError> {
        let place = usize::try_from(act).expect("timers have places");
        self.free.push(place);
        self.over(context, self.timers[place])
    }

    fn batch_done(
        &mut self,
        context: &mut Context<'_>,
        batch: BatchId,
        _: SimTime,
    ) -> Result<(), RunError> {
        match self.open.remove(&batch) {
            Some((number, flow)) => match context.engine.record(flow) {
                // It had no way left of the kind that it began with: another kind may be there for what has not arrived.
                record if record.cancelled => self.send(context, rest(context, number, &record)),
                _ => self.over(context, number),
            },
            None => Ok(()),
        }
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> Result<(), RunError> {
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

    fn progress(&self) -> (f64, f64) {
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
