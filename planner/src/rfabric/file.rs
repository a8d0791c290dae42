//! The file that describes a reconfigurable fat-tree and the step that runs on it.
//!
//! ```yaml
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
//! step:
//!   phases:
//!     - {name: train, demand: {csv: train.csv}}
//!     - {name: sync, slack: 200ms, demand: {shape: {weight_sync: {}}}}
//! ```

mod lower;
mod lower_workload;
mod workload;

use lightloom_fabric::document::{self, Diagnostic};
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::id::{LeafId, OcsId};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

pub use workload::*;

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
    let sha256 = lightloom_fabric::file::sha256(bytes);
    document::load(file, bytes, |raw: RfabricFile, check| lower::lower(raw, sha256, read, check))
}

/// Whether a file with these top-level keys is of this kind.
#[must_use]
pub fn is_kind(top_keys: &[String]) -> bool {
    let has = |key: &str| top_keys.iter().any(|there| there == key);
    has("step") && has("dcn")
}

/// A reconfigurable fat-tree and the step that runs on it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RfabricFile {
    /// Its name in reports.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The network.
    pub dcn: DcnFile,
    /// What runs on it, again and again.
    pub step: StepFile,
    /// How to plan it.
    #[serde(default)]
    pub planning: PlanningFile,
}

/// The design of the network.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DcnFile {
    /// Leaves, a thin electrical core and banks of optical switches.
    ReconfigurableFatTree(FatTreeFile),
}

/// Leaves, a thin electrical core and banks of optical switches.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FatTreeFile {
    /// ToRs or rail switches.
    pub leaves: u32,
    /// GPUs below one leaf.
    pub gpus_per_leaf: u32,
    /// Rate of one circuit, each direction.
    pub circuit_rate: Text<BitsPerSecond>,
    /// Rate of one GPU's network interface; that of a circuit where it is not written.
    #[serde(default)]
    pub gpu_rate: Option<Text<BitsPerSecond>>,
    /// The packet network that is always there.
    pub electrical: ElectricalFile,
    /// One or two banks of optical switches.
    pub banks: Vec<BankFile>,
    /// How long a circuit takes.
    pub timing: TimingFile,
    /// What an optical path may lose.
    #[serde(default)]
    pub loss: LossFile,
    /// Pairs of leaves that no circuit may join.
    #[serde(default)]
    pub forbidden: Vec<PairFile>,
    /// Circuits of other jobs: they stay and are not ours to use.
    #[serde(default)]
    pub held: Vec<HeldFile>,
    /// Power or control domains over which the switches are spread in blocks of consecutive ids.
    #[serde(default = "one")]
    pub failure_domains: u32,
}

fn one() -> u32 {
    1
}

/// The packet network that is always there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElectricalFile {
    /// Uplink rate of one leaf.
    pub rate_per_leaf: Text<BitsPerSecond>,
    /// How many times that exceeds what the core carries when all leaves send. 1 carries everything.
    pub oversubscription: f64,
}

/// A row of equal switches, each wired alike to every leaf.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BankFile {
    /// What the operator calls it.
    pub name: String,
    /// Number of switches.
    pub switches: u32,
    /// Ports of one switch.
    pub ports_per_switch: u32,
    /// Ports that each leaf has on each switch. Even.
    pub ports_per_leaf: u32,
    /// Loss of one pass, in dB.
    #[serde(default)]
    pub insertion_loss_db: f64,
}

/// How long a circuit takes from decision to traffic.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimingFile {
    /// Decision to command accepted.
    #[serde(default = "at_once")]
    pub control: Text<Picoseconds>,
    /// Mirrors, crystals or actuators moving.
    pub switching: Text<Picoseconds>,
    /// Receiver lock, link training and driver. Measured with an unmodified NIC: 5.7 s.
    #[serde(default = "at_once")]
    pub bring_up: Text<Picoseconds>,
}

fn at_once() -> Text<Picoseconds> {
    Text(Picoseconds::ZERO)
}

/// What an optical path may lose.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossFile {
    /// The most that transmitter and receiver tolerate, in dB.
    pub budget_db: f64,
    /// Connectors and fibre common to every path, in dB.
    pub path_db: f64,
    /// What single leaves lose on top.
    pub extra_db: Vec<ExtraLossFile>,
}

impl Default for LossFile {
    /// 4 dB, as of 400GBASE-FR4 with its fibre, and 1 dB of connectors.
    fn default() -> Self {
        Self { budget_db: 4.0, path_db: 1.0, extra_db: Vec::new() }
    }
}

/// What one leaf loses on top.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtraLossFile {
    /// The leaf.
    pub leaf: LeafId,
    /// Its loss, in dB.
    pub db: f64,
}

/// Two leaves.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairFile {
    /// One.
    pub a: LeafId,
    /// The other.
    pub b: LeafId,
}

/// A cross-connect that another job holds.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldFile {
    /// The switch.
    pub ocs: OcsId,
    /// The leaf with the smaller id.
    pub a: LeafId,
    /// Its port on the switch.
    pub a_port: u32,
    /// The leaf with the larger id.
    pub b: LeafId,
    /// Its port on the switch.
    pub b_port: u32,
}

/// What runs, again and again.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StepFile {
    /// A step of disaggregated reinforcement learning.
    Rl(RlFile),
    /// Phases with a demand matrix each.
    Phases(Vec<PhaseFile>),
}

/// A step of disaggregated reinforcement learning, trainer on the first leaves, generation after it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RlFile {
    /// A model that comes with lightloom, such as qwen2.5-72b, llama-3.1-405b or deepseek-v3; or a model file of
    /// your own, relative to this file (`lightloom schema model`). Its bytes are taken in BF16.
    pub model: String,
    /// GPUs that train.
    pub trainer_gpus: u32,
    /// GPUs that generate.
    pub generation_gpus: u32,
    /// Tensor-parallel ranks of the trainer.
    pub tp: u32,
    /// Pipeline stages of the trainer.
    pub pp: u32,
    /// Expert-parallel ranks of the trainer.
    #[serde(default = "one")]
    pub ep: u32,
    /// Spread of expert popularity: sigma of a log-normal distribution.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 3.0))]
    pub expert_skew: f64,
    /// Samples of a step.
    pub samples: u32,
    /// Tokens of a sample.
    pub tokens_per_sample: u32,
    /// GPUs of a generation replica.
    pub replica_gpus: u32,
    /// GPUs of a replica for the long tail; the same as `replica_gpus` where it does not switch.
    #[serde(default)]
    pub tail_replica_gpus: Option<u32>,
    /// Share of a replica's cache that migrates in a step.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub migrated_share: f64,
    /// Idle network time before each phase.
    #[serde(default)]
    pub slack: SlackFile,
    /// Seed of everything drawn.
    #[serde(default)]
    pub seed: u64,
}

/// Idle network time before each phase.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlackFile {
    /// Before the micro-batches.
    pub train: Text<Picoseconds>,
    /// Before the gradients.
    pub gradients: Text<Picoseconds>,
    /// Before the new weights.
    pub weight_sync: Text<Picoseconds>,
    /// Before the pool changes its parallelism.
    pub parallelism_switch: Text<Picoseconds>,
}

impl Default for SlackFile {
    fn default() -> Self {
        let [train, gradients, weight_sync, parallelism_switch] = [at_once(); 4];
        Self { train, gradients, weight_sync, parallelism_switch }
    }
}

/// A phase with its demand.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseFile {
    /// Its name.
    pub name: String,
    /// How long the network is idle before it.
    #[serde(default = "at_once")]
    pub slack: Text<Picoseconds>,
    /// What it sends.
    pub demand: DemandFile,
    /// How often it sends that: layers of a workload that describes one, say.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub times: u32,
}

/// Where a demand matrix comes from.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DemandFile {
    /// A file of comma-separated bytes, one row a line.
    Csv(String),
    /// A file with an array of rows of bytes.
    Json(String),
    /// The rows themselves, in bytes.
    Matrix(Vec<Vec<f64>>),
    /// A synthetic shape, about 1 GB a pair.
    Shape(ShapeFile),
    /// Traffic described by what produces it.
    Workload(WorkloadFile),
    /// An all-reduce whose rings the planner chooses: strides without a common divisor with the number of
    /// leaves, as many as suit the circuits.
    AllReduce(AllReduceFile),
}

/// An all-reduce over consecutive leaves.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllReduceFile {
    /// The first leaf.
    #[serde(default)]
    pub first_leaf: LeafId,
    /// How many leaves take part, at least 2.
    pub leaves: u32,
    /// What each of them contributes.
    pub bytes: Text<Bytes>,
}

/// A synthetic shape.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ShapeFile {
    /// Skewed all-to-all in groups of 8 leaves and a light ring.
    Moe(SeedFile),
    /// Half of the leaves send shards to the other half, and form a ring.
    WeightSync(SeedFile),
    /// Every leaf to every other.
    Dense(SeedFile),
}

/// What a shape is drawn from.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SeedFile {
    /// Seed of the draws.
    pub seed: u64,
}

/// How to plan.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanningFile {
    /// Share of the live demand's rate that no stage of a transition may go below.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub floor: f64,
}

impl Default for PlanningFile {
    fn default() -> Self {
        Self { floor: Options::default().floor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "
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
        let rl = "step:\n  rl: {model: gpt-9, trainer_gpus: 64, generation_gpus: 64, tp: 8, pp: 2, \
                  samples: 64, tokens_per_sample: 1000, replica_gpus: 16}\n";
        let text = SOUND.split("step:").next().unwrap().to_owned() + rl;
        assert!(mistakes(&text, "").contains("no model is called `gpt-9`"));
        let text = text.replace("gpt-9", "qwen2.5-72b").replace("tp: 8", "tp: 7");
        let wrong = mistakes(&text, "");
        assert!(wrong.contains("f.yaml:13:") && wrong.contains("multiple of 14"), "{wrong}");
    }
}
