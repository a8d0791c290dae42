// SPDX-License-Identifier: Apache-2.0
//! A log of all calls and their results, for replay on a single engine.

use lightloom_units::SimTime;

use super::stage::Stage;
use crate::engine::{Event, FlowGate, FlowId, FlowSpec, LinkChange, LinkId};

#[derive(Clone, Debug)]
pub(super) enum StageCall {
    Batch,
    Flow(Box<FlowSpec>),
    Gate(FlowId, FlowGate),
    Timer(SimTime, u64),
    Change(SimTime, LinkId, LinkChange),
    Cancel(FlowId),
    Reroute(FlowId),
    Until(SimTime, Option<Event>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct CallLog(Vec<StageCall>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "next event until {limit}: the islands return {islands:?}, but a single engine returns \
     {whole:?}"
)]
pub struct OtherEvent {
    pub limit: SimTime,
    pub islands: Option<Event>,
    pub whole: Option<Event>,
}

impl CallLog {
    pub(super) fn note(&mut self, call: StageCall) {
        self.0.push(call);
    }

    pub(super) fn replay(&self, stage: &mut impl Stage) -> Result<(), OtherEvent> {
        for call in &self.0 {
            match call {
                StageCall::Batch => drop(stage.add_batch()),
                StageCall::Flow(spec) => drop(stage.add_flow(FlowSpec::clone(spec))),
                StageCall::Gate(flow, gate) => drop(stage.add_gate(*flow, *gate)),
                StageCall::Timer(at, token) => stage.set_timer(*at, *token),
                StageCall::Change(at, link, change) => stage.change_link(*at, *link, *change),
                StageCall::Cancel(flow) => stage.cancel_flow(*flow),
                StageCall::Reroute(flow) => drop(stage.reroute_flow(*flow)),
                StageCall::Until(limit, islands) => {
                    let whole = stage.next_event(*limit);
                    if whole != *islands {
                        return Err(OtherEvent { limit: *limit, islands: *islands, whole });
                    }
                }
            }
        }
        Ok(())
    }
}
