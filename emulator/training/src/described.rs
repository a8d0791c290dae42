// SPDX-License-Identifier: Apache-2.0
//! Reads a step described (Chakra, SimAI, GOAL, csg-htsim) or recorded (Kineto, Chrome) by another tool.

use super::graph::{Task, TaskGraph, TaskWork};
use super::recorded::{self, Recorded};
use super::{chakra, connection_matrix, goal, kineto, simai};

#[derive(Clone, Copy, Debug)]
pub struct StepGraphFile<'a> {
    pub name: &'a str,
    pub bytes: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub graph: TaskGraph,
    pub ranks: u32,
    /// TP groups consist of consecutive ranks.
    pub tensor: u32,
    /// Contents of the file that the graph cannot represent.
    pub note: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Taken {
    pub recorded: Recorded,
    pub tensor: u32,
    /// Ranks without a file, assumed to be ready whenever the others are.
    pub missing: Vec<u32>,
    pub unknown: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum DescribedError {
    #[error("no files given: expected the files of a step")]
    NoFile,
    #[error("{file}: `{task}` refers to a rank or TP group outside the step of {ranks} ranks")]
    Absent { file: String, task: String, ranks: u32 },
    #[error("{0}")]
    Alone(String),
    #[error("the workload is for TP {own}: omit --tp")]
    OtherTensor { own: u32 },
    #[error("--tp {tensor}: the recorded step has {ranks} ranks{groups}")]
    NotOfRanks { tensor: u32, ranks: u32, groups: String },
    #[error("{file} is not text: {error}")]
    NoText { file: String, error: std::str::Utf8Error },
    #[error("{file}: {error}")]
    Wrong { file: String, error: Box<dyn std::error::Error + Send + Sync> },
    #[error(transparent)]
    Kineto(#[from] kineto::KinetoError),
}

impl DescribedError {
    /// Returns whether the mistake is in the request rather than in a file.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoFile | Self::Alone(_) | Self::OtherTensor { .. } | Self::NotOfRanks { .. }
        )
    }
}

/// Used if neither the user nor the file states a size.
const TENSOR: u32 = 8;

/// TP groups consist of `tensor` consecutive ranks. Fails with the location if the files cannot be read as a step.
pub fn read(files: &[StepGraphFile<'_>], tensor: Option<u32>) -> Result<Described, DescribedError> {
    let first = files.first().ok_or(DescribedError::NoFile)?;
    let described = match has_extension(first.name, "json") {
        false => read_described(files, tensor)?,
        true => {
            let Taken { recorded, tensor, .. } = read_recorded(files, tensor)?;
            Described { graph: recorded.graph, ranks: recorded.ranks, tensor, note: None }
        }
    };
    match described.first_absent() {
        Some(task) => Err(DescribedError::Absent {
            file: first.name.to_owned(),
            task: task.name.clone(),
            ranks: described.ranks,
        }),
        None => Ok(described),
    }
}

/// Accepts Chakra traces in rank order, or one file that describes all ranks: a SimAI text (`.txt`), a GOAL file
/// (`.goal`) or a connection matrix of csg-htsim (`Nodes N` in the first line).
pub fn read_described(
    files: &[StepGraphFile<'_>],
    tensor: Option<u32>,
) -> Result<Described, DescribedError> {
    let first = files.first().ok_or(DescribedError::NoFile)?;
    if first.bytes.starts_with(b"Nodes ") {
        alone(files, "a connection matrix describes all nodes: omit the other files")?;
        let step = connection_matrix::read(text(first)?).map_err(|error| wrong(first, error))?;
        let note = (step.failures > 0).then(|| {
            format!("{}: {} failures of switches and links are omitted", first.name, step.failures)
        });
        let tensor = tensor.unwrap_or(1);
        return Ok(Described { graph: step.graph, ranks: step.nodes, tensor, note });
    }
    if files.iter().any(|file| has_extension(file.name, "txt")) {
        alone(files, "a SimAI text describes all ranks: omit the other files")?;
        let workload = simai::read(text(first)?).map_err(|error| wrong(first, error))?;
        let simai::SimaiWorkload { tensor: own, ranks, graph } = workload;
        if tensor.is_some_and(|tensor| tensor != own) {
            return Err(DescribedError::OtherTensor { own });
        }
        return Ok(Described { graph, ranks, tensor: own, note: None });
    }
    if files.iter().any(|file| has_extension(file.name, "goal")) {
        alone(files, "a GOAL file describes all ranks: omit the other files")?;
        let step = goal::read(text(first)?).map_err(|error| wrong(first, error))?;
        let goal::GoalStep { graph, ranks, interfaces } = step;
        let tensor = tensor.unwrap_or(TENSOR).min(ranks.max(1));
        let note = (interfaces > 1).then(|| {
            format!(
                "{}: ranks have {interfaces} interfaces (`nic`) in the file, but are emulated with one",
                first.name
            )
        });
        return Ok(Described { graph, ranks, tensor, note });
    }
    let streams: Vec<&[u8]> = files.iter().map(|file| file.bytes).collect();
    let ranks = streams.len() as u32;
    let tensor = tensor.unwrap_or(TENSOR).min(ranks);
    let graph = chakra::import(&streams, &rings(ranks, tensor)).map_err(|error| {
        let file = match files.len() {
            1 => first.name.to_owned(),
            count => format!("{} and {} more", first.name, count - 1),
        };
        DescribedError::Wrong { file, error: error.into() }
    })?;
    Ok(Described { graph, ranks, tensor, note: None })
}

fn wrong(
    file: &StepGraphFile<'_>,
    error: impl std::error::Error + Send + Sync + 'static,
) -> DescribedError {
    DescribedError::Wrong { file: file.name.to_owned(), error: error.into() }
}

/// Accepts one PyTorch profile (Kineto) per rank, or one Chrome trace with ids and bytes.
pub fn read_recorded(
    files: &[StepGraphFile<'_>],
    tensor: Option<u32>,
) -> Result<Taken, DescribedError> {
    let first = files.first().ok_or(DescribedError::NoFile)?;
    if !kineto::is_kineto(first.bytes) {
        alone(files, &format!("{} is not a PyTorch profile: omit the other files", first.name))?;
        let tensor = tensor.unwrap_or(TENSOR);
        let recorded = recorded::read(first.bytes, tensor).map_err(|error| wrong(first, error))?;
        return Ok(Taken { recorded, tensor, missing: Vec::new(), unknown: 0 });
    }
    let profiles: Vec<kineto::RankProfile<'_>> = files
        .iter()
        .map(|file| kineto::RankProfile { name: file.name, text: file.bytes })
        .collect();
    Ok(Taken::of(kineto::read(&profiles)?, tensor))
}

impl Taken {
    pub fn of(profile: kineto::ProfiledStep, tensor: Option<u32>) -> Self {
        let tensor = tensor.unwrap_or(TENSOR).min(profile.recorded.ranks.max(1));
        let (missing, unknown) = (profile.missing, profile.unknown as u64);
        Self { recorded: profile.recorded, tensor, missing, unknown }
    }

    /// Fails if TP groups of the requested size do not divide the ranks.
    pub fn require_tensor(&self, tensor: Option<u32>) -> Result<(), DescribedError> {
        let ranks = self.recorded.ranks.max(1);
        let Some(tensor) = tensor.filter(|tensor| !ranks.is_multiple_of(*tensor)) else {
            return Ok(());
        };
        // The groups of a domain have consecutive ranks, and are the smallest of those.
        let rows = self.recorded.graph.tasks().iter().filter_map(|task| {
            let TaskWork::Across { ranks, .. } = &task.work else { return None };
            let is_row = ranks.windows(2).all(|pair| pair[0] + 1 == pair[1]);
            is_row.then_some(ranks.len() as u32)
        });
        let groups = rows.min().filter(|group| ranks.is_multiple_of(*group)).map_or_else(
            || ": use a divisor of them".to_owned(),
            |group| format!(" in groups of {group} consecutive ranks: use --tp {group}"),
        );
        Err(DescribedError::NotOfRanks { tensor, ranks, groups })
    }
}

impl Described {
    pub fn ring(&self, ring: u32) -> Option<std::ops::Range<u32>> {
        let first = ring.checked_mul(self.tensor)?;
        let end = first.checked_add(self.tensor)?.min(self.ranks);
        (first < end).then_some(first..end)
    }

    /// Returns the first task whose rank or TP group does not exist in the step.
    pub fn first_absent(&self) -> Option<&Task> {
        self.graph
            .tasks()
            .iter()
            .find(|task| self.highest_rank(&task.work).is_none_or(|rank| rank >= self.ranks))
    }

    fn highest_rank(&self, work: &TaskWork) -> Option<u32> {
        match work {
            TaskWork::Compute { rank, .. } => Some(*rank),
            TaskWork::Transfer { from, to, .. } => Some(*from.max(to)),
            TaskWork::Across { ranks, .. } | TaskWork::Pairs { ranks, .. } => {
                ranks.iter().copied().max()
            }
            TaskWork::Ring { ring, .. } => self.ring(*ring).map(|ranks| ranks.end - 1),
        }
    }
}

fn rings(ranks: u32, tensor: u32) -> Vec<Vec<u32>> {
    let whole = ranks / tensor.max(1);
    (0..whole).map(|ring| (ring * tensor..(ring + 1) * tensor).collect()).collect()
}

fn has_extension(name: &str, extension: &str) -> bool {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    name.rsplit_once('.').is_some_and(|(_, last)| last == extension)
}

fn alone(files: &[StepGraphFile<'_>], why: &str) -> Result<(), DescribedError> {
    if files.len() > 1 { Err(DescribedError::Alone(why.to_owned())) } else { Ok(()) }
}

fn text<'a>(file: &StepGraphFile<'a>) -> Result<&'a str, DescribedError> {
    std::str::from_utf8(file.bytes)
        .map_err(|error| DescribedError::NoText { file: file.name.to_owned(), error })
}
