// SPDX-License-Identifier: Apache-2.0
//! Shipped files to start from. They keep their paths in the source folder, so that commands in the
//! documentation also work in the folder that the user named.

use std::path::{Path, PathBuf};

use super::{Kind, write_folder};
use crate::output::{self, VerbOutcome};

struct Collection {
    kind: Kind,
    files: &'static [(&'static str, &'static str)],
    next: &'static [&'static str],
}

macro_rules! shipped {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("../../", $path)))),*] };
}

const COLLECTIONS: [Collection; 3] = [
    Collection {
        kind: Kind::Scenario,
        files: shipped![
            "topologies/ring-2880.yaml",
            "topologies/job-64.yaml",
            "topologies/job-64-circuits.yaml",
            "topologies/traces/synthetic.json",
            "topologies/scenarios/node-fault.yaml",
            "topologies/scenarios/any-node.yaml",
            "topologies/scenarios/rack.yaml",
            "topologies/scenarios/grey-fibre.yaml",
            "topologies/scenarios/job-step.yaml",
            "topologies/scenarios/job-any-fault.yaml",
            "topologies/scenarios/first-bill.yaml",
            "topologies/scenarios/web-search.yaml",
        ],
        next: &[
            "lightloom emulate topologies/scenarios/job-step.yaml",
            "lightloom emulate topologies/scenarios/any-node.yaml --seed 0..9",
        ],
    },
    Collection {
        kind: Kind::Ci,
        files: &[
            (".github/workflows/lightloom.yml", include_str!("../../ci/github-workflow.yaml")),
            (".gitlab-ci.yml", include_str!("../../ci/gitlab-ci.yml")),
            ("topologies/ring-2880.yaml", crate::shipped::RING_2880),
            (
                "topologies/scenarios/any-node.yaml",
                include_str!("../../topologies/scenarios/any-node.yaml"),
            ),
        ],
        next: &[
            "lightloom emulate topologies/scenarios/any-node.yaml --seed 0..9 --junit junit.xml",
        ],
    },
    Collection {
        kind: Kind::Lab,
        files: shipped![
            "topologies/ring-32.yaml",
            "topologies/devices/ring-32.yaml",
            "topologies/daemon.yaml",
            "topologies/ring-64.yaml",
            "topologies/scenarios/twin-dead-node.yaml",
        ],
        next: &[
            "lightloom device serve topologies/devices/ring-32.yaml --links /tmp/lightloom/modules --control /tmp/lightloom/faults",
            "lightloomd --config topologies/daemon.yaml",
            "lightloom emulate topologies/scenarios/twin-dead-node.yaml",
        ],
    },
];

/// Writes the files of this kind. A `cluster` is generated and has no collection.
pub(super) fn write(kind: Kind, folder: &Path) -> anyhow::Result<VerbOutcome> {
    let Some(collection) = COLLECTIONS.iter().find(|collection| collection.kind == kind) else {
        return Ok(VerbOutcome::Good);
    };
    let written = write_folder(folder, collection.files.iter().copied())?;
    output::note(&format!("wrote {}; next, in this folder:", listed(&written)));
    for command in collection.next {
        output::note(&format!("  {command}"));
    }
    Ok(VerbOutcome::Good)
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
