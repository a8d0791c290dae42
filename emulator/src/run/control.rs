// SPDX-License-Identifier: Apache-2.0
//! Control planes: what follows a fault.

mod circuits;
mod dark;
mod moves;
mod optical;
mod replan;
mod reroute;
mod shipped;

use super::{Context, Notice, Owner, RunError, RunLog};

pub(crate) use circuits::{CircuitChanges, CircuitOrder};
pub(crate) use replan::{Delays, Replanner};
pub(crate) use reroute::Rerouter;
pub(crate) use shipped::Shipped;

/// What follows a fault. None of it is done while the control plane is gone; every one keeps what it would have
/// done, and does it when the control plane is back.
pub(crate) trait ControlPlane {
    /// Sets what the plan at the start sets.
    fn begin(&mut self, _context: &mut Context<'_>, _me: Owner) -> Result<(), RunError> {
        Ok(())
    }
    /// A fault has begun, and its links are what it makes of them.
    fn fault_began(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// A fault ends; its links are still what it makes of them.
    fn fault_ends(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// A fault has ended, and its links are what they were.
    fn fault_ended(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// A part begins to ignore commands, to lie or to be late, and no link changes.
    fn latent_began(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// A flapping part goes dark once more, or comes back.
    fn blinked(
        &mut self,
        _context: &mut Context<'_>,
        _fault: usize,
        _goes: bool,
    ) -> Result<(), RunError> {
        Ok(())
    }
    /// The control plane is back.
    fn control_returned(&mut self, _context: &mut Context<'_>) -> Result<(), RunError> {
        Ok(())
    }
    /// A timer that it has set runs out.
    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> Result<(), RunError>;
    /// A fault or a workload has changed something.
    fn hear(&mut self, _context: &mut Context<'_>, _notice: &Notice) -> Result<(), RunError> {
        Ok(())
    }
    /// Whether it would go on for ever, polling, and has nothing left to do.
    fn only_polls(&self, _context: &Context<'_>) -> bool {
        false
    }
    /// Writes down what it has come to.
    fn finish(self: Box<Self>, _context: &mut Context<'_>, _log: &mut RunLog) {}
}
