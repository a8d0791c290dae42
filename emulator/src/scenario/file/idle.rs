// SPDX-License-Identifier: Apache-2.0
//! Rejects keys that have no effect in combination with the rest of the file.

use lightloom_fabric::document::Check;

use super::expectations::Ground;
use super::{OnFile, ScenarioFile, codes};
use crate::scenario::Scenario;

pub(super) fn require_something(raw: &ScenarioFile, is_called: bool, check: &mut Check<'_>) {
    let on_fabric = matches!(raw.on.on, OnFile::Fabric(_));
    let does_nothing = raw.collectives.is_empty() && raw.traffic.is_empty() && raw.train.is_empty();
    if is_called {
        refuse_judged(raw, check);
    } else if does_nothing && raw.phases.is_none() {
        check
            .error(codes::NOTHING_TO_RUN, "", "the scenario has no workload")
            .help(
                "add `collectives: [{all_reduce: {name: step, bytes: 64MiB}}]`, `traffic`, `phases` or `train`",
            )
            .depends_on("/collectives")
            .depends_on("/traffic");
    }
    let of_fabric = [
        ("/collectives", !raw.collectives.is_empty()),
        ("/phases", raw.phases.is_some()),
        ("/train", !raw.train.is_empty()),
        ("/broken", !raw.broken.is_empty()),
        ("/broken_by", raw.broken_by.is_some()),
    ];
    for (key, _) in of_fabric.iter().filter(|(_, there)| *there && !on_fabric) {
        check
            .error(codes::NO_EFFECT, key, "an inline network does not have a plan, jobs or a step")
            .help("use `on: {fabric: FILE}`, or `traffic` between hosts")
            .depends_on("/on");
    }
    if on_fabric && check.is_written("/links") {
        let message = "the fabric file already defines the cables";
        check.error(codes::NO_EFFECT, "/links", message).help("leave it out").depends_on("/on");
    }
    let is_mixed = !raw.collectives.is_empty() || !raw.traffic.is_empty();
    if raw.phases.as_ref().is_some_and(|phases| phases.scale.is_some_and(|s| s > 1)) && is_mixed {
        check
            .error(
                codes::NO_EFFECT,
                "/phases/scale",
                "phases cannot be scaled down together with `collectives` or `traffic`",
            )
            .help("leave it out, or reduce the demands in the fabric file");
    }
}

/// A run that a program controls has no natural end and no expectations.
fn refuse_judged(raw: &ScenarioFile, check: &mut Check<'_>) {
    let keys = [
        ("/collectives", !raw.collectives.is_empty()),
        ("/train", !raw.train.is_empty()),
        ("/phases", raw.phases.is_some()),
        ("/span", raw.span.is_some()),
        ("/expect", !raw.expect.is_empty()),
    ];
    for (key, _) in keys.iter().filter(|(_, there)| *there) {
        let message = "an external program controls the traffic of this run";
        check
            .error(codes::NO_EFFECT, key, message)
            .help("leave it out; `traffic` can be combined with the program");
    }
}

pub(super) fn refuse(
    raw: &ScenarioFile,
    scenario: Option<&Scenario>,
    ground: Option<&Ground<'_>>,
    check: &mut Check<'_>,
) {
    if let Some(scenario) = scenario {
        refuse_control(raw, scenario, check);
        super::control::refuse(raw, scenario, check);
    }
    if let Some(ground) = ground.filter(|ground| ground.has_groups || ground.has_flows) {
        refuse_switches(ground, check);
        refuse_queue(raw, ground, check);
    }
}

fn refuse_control(raw: &ScenarioFile, scenario: &Scenario, check: &mut Check<'_>) {
    let trains = !scenario.train.is_empty() || scenario.is_called;
    let plans = !scenario.collectives.is_empty() || trains;
    let reroutes = !raw.traffic.is_empty() || trains;
    let keys = [
        ("/control/detection_delay", raw.control.detection_delay.is_some(), plans || reroutes),
        ("/control/planning_delay", raw.control.planning_delay.is_some(), plans),
        ("/control/reroute_delay", raw.control.reroute_delay.is_some(), reroutes),
    ];
    for (key, _, _) in keys.iter().filter(|(_, written, used)| *written && !used) {
        check
            .error(codes::NO_EFFECT, key, "this delay has no effect in this scenario")
            .help("leave it out: detection and planning delays affect groups, and rerouting delays affect traffic")
            .depends_on("/collectives")
            .depends_on("/traffic");
    }
}

fn refuse_switches(ground: &Ground<'_>, check: &mut Check<'_>) {
    if ground.priorities.is_empty() && check.is_written("/switches") {
        let message = "no traffic crosses a switch";
        check
            .error(codes::NO_EFFECT, "/switches", message)
            .help("leave it out: rings and forwarding hosts have their own queues")
            .depends_on("/on")
            .depends_on("/collectives")
            .depends_on("/traffic");
    }
}

/// Lossless priorities are bounded by pauses rather than queue limits or trimming.
fn refuse_queue(raw: &ScenarioFile, ground: &Ground<'_>, check: &mut Check<'_>) {
    let Some(pause) = &raw.switches.pause else { return };
    if ground.priorities.is_empty()
        || !ground.priorities.iter().all(|priority| pause.priorities.contains(priority))
    {
        return;
    }
    // Without `mark_from`, `queue` also determines the marking threshold.
    let marks = raw.switches.mark_from.is_none();
    let keys = [
        ("/switches/queue", raw.switches.queue.is_some() && !marks),
        ("/switches/trim", raw.switches.trim),
    ];
    for (key, _) in keys.iter().filter(|(_, written)| *written) {
        let message = "all traffic uses priorities with pauses, whose queues are unbounded, so no \
            packet is trimmed";
        check
            .error(codes::NO_EFFECT, key, message)
            .also(
                "/switches/pause/priorities",
                "packets with these priorities wait at their senders instead",
            )
            .help("leave it out: `pause: {above: …}` and `buffer: {size: …}` limit the queues")
            .depends_on("/traffic")
            .depends_on("/collectives");
    }
}
