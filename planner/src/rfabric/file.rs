// SPDX-License-Identifier: Apache-2.0
//! The file that describes a reconfigurable fat-tree and the step that runs on it.
//!
//! ```yaml
//! kind: fabric
//! version: 2
//! name: example
//! dcn:
//!   reconfigurable_fat_tree:
//!     leaves: 16
//!     gpus_per_leaf: 8
//!     circuit_rate: 400Gbps
//!     electrical: {rate_per_leaf: 3.2Tbps, oversubscription: 8}
//!     banks:
//!       - {name: core, switches: 4, ports_per_switch: 64, ports_per_leaf: 2, insertion_loss_db: 1.5}
//!     timing: {switching: 10ms}
//! jobs:
//!   - name: example
//!     step:
//!       phases:
//!         - {name: train, demand: {csv: train.csv}}
//!         - {name: sync, slack: 200ms, demand: {shape: {weight_sync: {}}}}
//! ```

mod lower;
mod lower_workload;
pub mod step;

use lightloom_fabric::document::{Check, Diagnostic};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;

pub use lightloom_fabric::file::*;

use super::phases::Phase;
use super::plan::Options;

/// A checked file: what is installed, and what runs on it.
#[derive(Clone, Debug, PartialEq)]
pub struct RfabricInput {
    /// Its name in reports.
    pub name: String,
    /// SHA-256 of the file it was read from.
    pub sha256: String,
    /// The network.
    pub fabric: ReconfigurableFatTree,
    /// The phases of the step.
    pub phases: Vec<Phase>,
    /// How to plan it.
    pub options: Options,
}

/// Reads a file: the input, or every mistake in it. `file` is what the user calls it; `read` gives the text
/// of the matrix and model files it names.
pub fn load(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> (Option<RfabricInput>, Vec<Diagnostic>) {
    let mut phases = None;
    let also = |fabric: &mut Fabric, check: &mut Check<'_>| phases = step::check(fabric, check);
    let (fabric, mistakes) = lightloom_fabric::file::load_with(file, bytes, read, also);
    (input_of(fabric, phases), mistakes)
}

/// As [`load`], of version 1 too: for a daemon whose plan in force names the file.
pub fn load_any_version(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> (Option<RfabricInput>, Vec<Diagnostic>) {
    let mut phases = None;
    let also = |fabric: &mut Fabric, check: &mut Check<'_>| phases = step::check(fabric, check);
    let (fabric, mistakes) = lightloom_fabric::file::load_any_version(file, bytes, read, also);
    (input_of(fabric, phases), mistakes)
}

fn input_of(fabric: Option<Fabric>, phases: Option<Vec<Phase>>) -> Option<RfabricInput> {
    fabric.and_then(|fabric| {
        Some(RfabricInput {
            fabric: fabric.dcn.circuits()?.clone(),
            phases: phases?,
            options: Options { floor: fabric.floor, ..Options::default() },
            name: fabric.name,
            sha256: fabric.sha256,
        })
    })
}

/// Whether a file with these top-level keys is a fabric without a high-bandwidth domain.
#[must_use]
pub fn is_kind(top_keys: &[String]) -> bool {
    let has = |key: &str| top_keys.iter().any(|there| there == key);
    has("dcn") && !has("hbd")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_fabric::document;
    use lightloom_units::Picoseconds;

    const SOUND: &str = "
kind: fabric
version: 2
name: example
dcn:
  reconfigurable_fat_tree:
    leaves: 16
    gpus_per_leaf: 8
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 3.2Tbps, oversubscription: 8}
    banks:
      - {name: core, switches: 4, ports_per_switch: 64, ports_per_leaf: 2, insertion_loss_db: 1.5}
    timing: {switching: 10ms}
jobs:
  - name: example
    step:
      phases:
        - {name: train, demand: {shape: {moe: {}}}}
        - {name: sync, slack: 200ms, demand: {csv: sync.csv}}
";

    fn matrix(leaves: usize) -> String {
        let row = |from| {
            (0..leaves).map(|to| if from == to { "0" } else { "5" }).collect::<Vec<_>>().join(",")
        };
        (0..leaves).map(row).collect::<Vec<_>>().join("\n")
    }

    fn mistakes(text: &str, matrix: &str) -> String {
        let (input, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Ok(matrix.to_owned()));
        assert!(input.is_none());
        let lines = mistakes
            .iter()
            .map(|mistake| format!("{mistake} ({})", mistake.help.as_deref().unwrap_or_default()));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_sound_file_reads_with_its_matrices() {
        let (input, mistakes) = load("f.yaml", SOUND.as_bytes(), &mut |name| {
            assert_eq!(name, "sync.csv");
            Ok(matrix(16))
        });
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let input = input.unwrap();
        assert_eq!(input.phases[1].demand.total().0, 16 * 15 * 5);
        assert_eq!(input.phases[1].slack, Picoseconds::from_millis(200));
        assert!(is_kind(&document::top_keys(SOUND.as_bytes())));
    }

    #[test]
    fn an_all_reduce_is_spread_over_rings_of_coprime_strides() {
        let text = SOUND
            .replace("{csv: sync.csv}", "{all_reduce: {first_leaf: leaf1, leaves: 7, bytes: 7GB}}");
        let (input, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Err(String::new()));
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let demand = &input.unwrap().phases[1].demand;
        // Seven ranks send 2·6/7 of 7 GB each, however many rings share it.
        assert!(demand.total().0.abs_diff(7 * 12_000_000_000) < 1_000, "{}", demand.total());
        assert!(
            demand.flows().all(|(from, to, _)| (1..8).contains(&from.0) && (1..8).contains(&to.0))
        );
    }

    #[test]
    fn a_step_that_cannot_be_built_is_refused_at_its_field() {
        let rl = "jobs:\n  - name: example\n    step:\n      rl: {model: gpt-9, trainer_gpus: 64, generation_gpus: 64, tp: 8, pp: 2, \
                  samples: 64, tokens_per_sample: 1000, replica_gpus: 16}\n";
        let text = SOUND.split("jobs:").next().unwrap().to_owned() + rl;
        assert!(mistakes(&text, "").contains("no model is called `gpt-9`"));
        let text = text.replace("gpt-9", "qwen2.5-72b").replace("tp: 8", "tp: 7");
        let wrong = mistakes(&text, "");
        assert!(wrong.contains("f.yaml:17:") && wrong.contains("multiple of 14"), "{wrong}");
    }
}
