// SPDX-License-Identifier: Apache-2.0

mod circuits;
mod dark;
mod moves;
mod optical;
mod replan;
mod reroute;
mod shipped;

use super::{Context, Notice, Owner, RunLog, RunResult};

pub(crate) use circuits::{CircuitChanges, CircuitOrder};
pub(crate) use replan::{Delays, Replanner};
pub(crate) use reroute::Rerouter;
pub(crate) use shipped::Shipped;

/// A control plane. While it is down, it postpones pending actions.
pub(crate) trait ControlPlane {
    fn begin(&mut self, _context: &mut Context<'_>, _me: Owner) -> RunResult {
        Ok(())
    }
    fn fault_began(&mut self, _context: &mut Context<'_>, _fault: usize) -> RunResult {
        Ok(())
    }
    /// Called before a fault ends and restores its links.
    fn fault_ends(&mut self, _context: &mut Context<'_>, _fault: usize) -> RunResult {
        Ok(())
    }
    fn fault_ended(&mut self, _context: &mut Context<'_>, _fault: usize) -> RunResult {
        Ok(())
    }
    /// Called when a part starts to ignore commands, report wrong states or respond late.
    fn latent_began(&mut self, _context: &mut Context<'_>, _fault: usize) -> RunResult {
        Ok(())
    }
    fn blinked(&mut self, _context: &mut Context<'_>, _fault: usize, _goes: bool) -> RunResult {
        Ok(())
    }
    fn control_returned(&mut self, _context: &mut Context<'_>) -> RunResult {
        Ok(())
    }
    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult;
    fn hear(&mut self, _context: &mut Context<'_>, _notice: &Notice) -> RunResult {
        Ok(())
    }
    fn only_polls(&self, _context: &Context<'_>) -> bool {
        false
    }
    fn finish(self: Box<Self>, _context: &mut Context<'_>, _log: &mut RunLog) {}
}
