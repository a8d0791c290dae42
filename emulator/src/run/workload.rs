// SPDX-License-Identifier: Apache-2.0
//! Workloads: sources of flows with dependencies. They name ranks and never links.

mod called;
mod exchange;
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
use super::{Context, Notice, Owner, RunError, RunLog};

pub(crate) use called::Called;
pub use called::{Caller, ProgramOrder};
pub(crate) use groups::JobGroups;
pub(crate) use jobs::{Job, Jobs, Repetition};
pub(crate) use lanes::Leaves;
pub(crate) use phases::{PhaseProgram, Phases};
pub(crate) use progress::{GroupLog, StepLog};
pub(crate) use ring_time::RingCounts;
pub use ring_time::{ReuseError, RingReuse};
pub(crate) use train::{Circuits, StepBreakdown, TrainLog, TrainOrder, TrainStepLog, Trainings};

/// Something that sends.
pub(crate) trait Workload {
    /// Begins, or asks to be woken.
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> Result<(), RunError>;
    /// A timer that it has set runs out.
    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> Result<(), RunError>;
    /// A batch that it owns has ended; its last byte arrived at `at`.
    fn batch_done(
        &mut self,
        context: &mut Context<'_>,
        batch: BatchId,
        at: SimTime,
    ) -> Result<(), RunError>;
    /// The control plane, a fault or another workload has changed something.
    fn hear(&mut self, _context: &mut Context<'_>, _notice: &Notice) -> Result<(), RunError> {
        Ok(())
    }
    /// A fault begins on these links, which are still as they were.
    fn fault_began(
        &mut self,
        _context: &mut Context<'_>,
        _fault: usize,
        _links: &[LinkId],
    ) -> Result<(), RunError> {
        Ok(())
    }
    /// A fault has ended.
    fn fault_ended(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// Whether all it has to do is done.
    fn is_done(&self) -> bool;
    /// Whether it has work left when nothing happens any more.
    fn stands_still(&self) -> bool {
        !self.is_done()
    }
    /// Whether what is left of it can be sent into the dark again and again.
    fn can_strand(&self) -> bool {
        false
    }
    /// Whether the run is over only when what broke is restored.
    fn waits_for_restoration(&self) -> bool {
        false
    }
    /// How much is done, and all there is.
    fn progress(&self) -> (f64, f64);
    /// When the last of its work ended.
    fn last_end(&self) -> Option<SimTime>;
    /// Everything that is not done.
    fn waiting(&self, context: &Context<'_>) -> Vec<Waiting>;
    /// Writes down what it has come to.
    fn finish(self: Box<Self>, context: &mut Context<'_>, log: &mut RunLog);
}

/// The first of `all`, and how many more there are.
fn shortened(of: &str, mut all: Vec<Waiting>) -> Vec<Waiting> {
    let more = all.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        all.truncate(MOST_LISTED);
        let waits_for = WaitsFor::More(more);
        all.push(Waiting { what: of.to_owned(), since: None, waits_for });
    }
    all
}
