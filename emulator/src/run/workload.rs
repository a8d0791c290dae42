// SPDX-License-Identifier: Apache-2.0
//! Workloads: sources of flows with dependencies. They address ranks rather than links.

mod called;
mod foresight;
mod groups;
mod jobs;
mod lanes;
mod pairs;
mod pattern;
mod phases;
mod progress;
mod recorded;
mod ring_time;
mod sends;
mod train;

use lightloom_engine::{BatchId, LinkId};
use lightloom_units::SimTime;

use super::waiting::{MOST_LISTED, Waiting, WaitsFor};
use super::{Context, Notice, Owner, RunLog, RunResult};

pub(crate) use called::Called;
pub use called::{Caller, ProgramOrder};
pub(crate) use groups::JobGroups;
pub(crate) use jobs::{Job, Jobs, Repetition};
pub(crate) use lanes::Leaves;
pub(crate) use phases::{PhaseProgram, Phases};
pub(crate) use progress::{GroupLog, StepLog};
pub(crate) use ring_time::RingCounts;
pub use ring_time::{ReuseError, RingReuse};
pub(crate) use sends::by_domain;
pub(crate) use train::{
    Circuits, StepBreakdown, TrainLog, TrainOrder, TrainStepLog, Trainings, is_nothing,
};
pub use train::{Exposed, WhyResult};

pub(crate) trait Workload {
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> RunResult;
    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult;
    fn batch_done(&mut self, context: &mut Context<'_>, batch: BatchId, at: SimTime) -> RunResult;
    fn hear(&mut self, _context: &mut Context<'_>, _notice: &Notice) -> RunResult {
        Ok(())
    }
    fn fault_began(
        &mut self,
        _context: &mut Context<'_>,
        _fault: usize,
        _links: &[LinkId],
    ) -> RunResult {
        Ok(())
    }
    fn fault_ended(&mut self, _context: &mut Context<'_>, _fault: usize) -> RunResult {
        Ok(())
    }
    fn is_done(&self) -> bool;
    fn stands_still(&self) -> bool {
        !self.is_done()
    }
    /// Returns whether data can be resent into a dark link forever.
    fn can_strand(&self) -> bool {
        false
    }
    fn waits_for_restoration(&self) -> bool {
        false
    }
    /// Returns the work that is done and all work, in steps.
    fn progress(&self, context: &Context<'_>) -> (f64, f64);
    fn last_end(&self) -> Option<SimTime>;
    fn waiting(&self, context: &Context<'_>) -> Vec<Waiting>;
    fn finish(self: Box<Self>, context: &mut Context<'_>, log: &mut RunLog);
}

fn shortened(of: &str, mut all: Vec<Waiting>) -> Vec<Waiting> {
    let more = all.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        all.truncate(MOST_LISTED);
        let waits_for = WaitsFor::More(more);
        all.push(Waiting { what: of.to_owned(), since: None, waits_for });
    }
    all
}
