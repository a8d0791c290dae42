// SPDX-License-Identifier: Apache-2.0
//! Control planes, which react to faults.

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

/// A control plane. While it is down, it does nothing but remembers its pending actions, which it
/// takes when it is back.
pub(crate) trait ControlPlane {
    /// Applies the initial plan.
    fn begin(&mut self, _context: &mut Context<'_>, _me: Owner) -> Result<(), RunError> {
        Ok(())
    }
    /// Called when a fault has begun and its links have changed.
    fn fault_began(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// Called when a fault is about to end, before its links change.
    fn fault_ends(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// Called when a fault has ended and its links have changed back.
    fn fault_ended(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// Called when a part begins to ignore commands, to report wrong states or to respond late.
    /// This changes no link.
    fn latent_began(&mut self, _context: &mut Context<'_>, _fault: usize) -> Result<(), RunError> {
        Ok(())
    }
    /// Called when a flapping part goes dark or recovers.
    fn blinked(
        &mut self,
        _context: &mut Context<'_>,
        _fault: usize,
        _goes: bool,
    ) -> Result<(), RunError> {
        Ok(())
    }
    fn control_returned(&mut self, _context: &mut Context<'_>) -> Result<(), RunError> {
        Ok(())
    }
    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> Result<(), RunError>;
    /// Called when a fault or a workload posts a notice.
    fn hear(&mut self, _context: &mut Context<'_>, _notice: &Notice) -> Result<(), RunError> {
        Ok(())
    }
    /// Returns whether only endless polling is left.
    fn only_polls(&self, _context: &Context<'_>) -> bool {
        false
    }
    fn finish(self: Box<Self>, _context: &mut Context<'_>, _log: &mut RunLog) {}
}
