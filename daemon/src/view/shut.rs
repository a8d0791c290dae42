//! Ports that were shut down: what, where and since when.

use serde::Serialize;
use utoipa::ToSchema;

use crate::runtime::Runtime;
use lightloom_control::controller::end_name;

/// An end that sends no light because its port was shut down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ShutPort {
    /// Which, such as `n17/b0.2`.
    pub end: String,
    /// Who misses its light.
    pub far: String,
    /// What the module says.
    pub why: String,
    /// Since when it was read to say so, Unix time in milliseconds.
    pub since_unix_ms: u64,
}

pub(super) fn all(runtime: &Runtime) -> Vec<ShutPort> {
    let now = runtime.clock.now();
    let ends = runtime.control.controller().shut_ends().into_iter().map(|shut| ShutPort {
        end: end_name(&shut.end),
        far: end_name(&shut.far),
        why: shut.why.to_string(),
        since_unix_ms: now.wall_ms.saturating_sub((now.mono - shut.since).0 / 1000),
    });
    ends.collect()
}
