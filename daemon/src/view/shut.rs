// SPDX-License-Identifier: Apache-2.0

use super::Knowledge;
use lightloom_control::controller::end_name;
use lightloom_daemon_api::status::ShutPort;

pub(super) fn all(known: &Knowledge<'_>) -> Vec<ShutPort> {
    let now = &known.now;
    let ends = known.control.sightings().shut_ends(known.control.ledger());
    let ends = ends.into_iter().map(|shut| ShutPort {
        end: end_name(&shut.end),
        far: end_name(&shut.receiver),
        why: shut.why.to_string(),
        since_unix_ms: now.wall_ms.saturating_sub((now.mono - shut.since).0 / 1000),
    });
    ends.collect()
}
