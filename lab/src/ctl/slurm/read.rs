// SPDX-License-Identifier: Apache-2.0
//! Parsers for the output of `scontrol`.

use std::collections::BTreeSet;

use lightloom_import::expand_hosts;

use super::agree::{NodeState, Rings};

fn value<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key))
}

/// Parses a topology. Only leaf switches list nodes without switches.
pub(crate) fn rings(text: &str) -> Rings {
    let leaves = text.lines().filter_map(|line| {
        let name = value(line, "SwitchName=")?;
        match (value(line, "Nodes="), value(line, "Switches=")) {
            (Some(nodes), None) => Some((name.to_owned(), hosts(nodes))),
            _ => None,
        }
    });
    leaves.collect()
}

pub(crate) fn nodes(text: &str) -> impl Iterator<Item = (String, NodeState)> {
    text.lines().filter_map(|line| {
        let (name, state) = (value(line, "NodeName=")?, value(line, "State=")?);
        let mut flags =
            state.split('+').map(|flag| flag.trim_end_matches(|c: char| !c.is_ascii_uppercase()));
        let reason = line
            .split_once(" Reason=")
            .map_or("", |(_, rest)| rest.split_once(" [").map_or(rest, |(reason, _)| reason));
        let state = NodeState {
            is_drained: flags.clone().any(|flag| matches!(flag, "DRAIN" | "DRAINED" | "DRAINING")),
            is_down: flags.any(|flag| matches!(flag, "DOWN" | "FAIL" | "FAILING")),
            reason: reason.trim().to_owned(),
        };
        Some((name.to_owned(), state))
    })
}

pub(crate) fn hosts(list: &str) -> BTreeSet<String> {
    expand_hosts(list).unwrap_or_default().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_drains_and_reasons_from_scontrol() {
        let line = "NodeName=n1 CPUAlloc=0 State=IDLE+CLOUD+DRAIN+NOT_RESPONDING ThreadsPerCore=1 ExtSensorsTemp=n/s \
                    Reason=lightloom: broken, plan 57b8 [root@2026-11-27T16:20:13]\n\
                    NodeName=n2 State=DOWN* ExtSensorsTemp=n/s Reason=Not responding [slurm@2026-11-27T16:20:13]\n\
                    NodeName=n3 State=MIXED ExtSensorsTemp=n/s\nNo nodes\n";
        let read: Vec<_> = nodes(line).collect();
        let state = |is_drained, is_down, reason: &str| NodeState {
            is_drained,
            is_down,
            reason: reason.into(),
        };
        assert_eq!(read[0], ("n1".into(), state(true, false, "lightloom: broken, plan 57b8")));
        assert_eq!(read[1], ("n2".into(), state(false, true, "Not responding")));
        assert_eq!(read[2], ("n3".into(), state(false, false, "")));
        assert_eq!(read.len(), 3);
    }

    #[test]
    fn only_leaf_switches_are_rings() {
        let text = "# a comment\nSwitchName=g0 Level=0 LinkSpeed=1 Nodes=n[0-1]\n\
                    SwitchName=rings Level=1 LinkSpeed=1 Nodes=n[0-1] Switches=g0\n";
        assert_eq!(rings(text), Rings::from([("g0".into(), hosts("n[0-1]"))]));
    }
}
