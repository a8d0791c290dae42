// SPDX-License-Identifier: Apache-2.0
//! Reads workloads of SimAI and AICB (Alibaba): text, one layer a line.
//!
//! ```text
//! HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 1 ga: 2 all_gpus: 16 …
//! 1
//! name  -1  556000 ALLREDUCE 536870912   1 NONE 0   1 NONE 0   1
//!           └ forward: ns, exchange, bytes ┘ └ input ┘ └ weight gradient ┘ └ other
//! ```
//! The step is `ga` forward and backward passes, layers backwards in the backward pass. Exchange of the forward and
//! input-gradient columns runs round the first `model_parallel_NPU_group` ranks, exchange of the weight-gradient column over
//! the data-centre network between the equal ranks of all such groups, after the last pass only. Exchange marked `_EP`, and every
//! all-to-all, runs over the data-centre network between the equal ranks of the first `ep` groups.

use lightloom_collective::CollectiveKind;
use lightloom_units::{Bytes, Picoseconds};

use super::graph::{GraphError, Task, TaskGraph, TaskId, TaskWork};

/// Why a text is no workload that can be run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimaiError {
    /// A line is not as it must be.
    #[error("line {line}: {reason}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The tasks do not make a graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimaiWorkload {
    /// Ranks of a group that shares every matrix.
    pub tensor: u32,
    /// All ranks.
    pub ranks: u32,
    /// One step, seen from the first group; ring 0 is that group.
    pub graph: TaskGraph,
}

/// The most passes and layers that are read: beyond, it is no workload but a mistake.
const MOST_TASKS: usize = 10_000_000;

#[derive(Clone, Copy)]
struct LayerPass {
    took: Picoseconds,
    exchange: Option<(CollectiveKind, Bytes)>,
    /// Between experts, not inside the group.
    is_expert: bool,
}

struct SimaiLayer {
    name: String,
    forward: LayerPass,
    input: LayerPass,
    weight: LayerPass,
}

/// Reads a workload.
///
/// # Errors
/// What is not understood, with its line: pipeline stages, all-to-all, lines that are too short.
pub fn read(text: &str) -> Result<SimaiWorkload, SimaiError> {
    let wrong = |line: usize, reason: String| SimaiError::Line { line, reason };
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or_else(|| wrong(1, "the file is empty".into()))?;
    let setting = |name: &str| -> Option<u32> {
        let mut words = header.split_whitespace();
        words.find(|word| *word == name)?;
        words.next()?.parse().ok()
    };
    let needed = |name: &str| {
        let value = setting(name).filter(|value| *value > 0);
        value.ok_or_else(|| wrong(1, format!("the header has no positive `{name}`")))
    };
    let (tensor, ranks) = (needed("model_parallel_NPU_group:")?, needed("all_gpus:")?);
    let passes = setting("ga:").unwrap_or(1).max(1);
    let experts = setting("ep:").unwrap_or(1).max(1);
    if !(ranks / tensor).is_multiple_of(experts) {
        let reason =
            format!("ep {experts} is no divisor of the {} groups of {tensor}", ranks / tensor);
        return Err(wrong(1, reason));
    }
    if setting("pp:").unwrap_or(1) > 1 {
        return Err(wrong(1, "pipeline stages (`pp:` above 1) cannot be run yet".into()));
    }
    if !ranks.is_multiple_of(tensor) {
        let reason = format!("{ranks} ranks are no multiple of the group of {tensor}");
        return Err(wrong(1, reason));
    }
    let (at, count) =
        lines.next().ok_or_else(|| wrong(2, "the number of layers is missing".into()))?;
    let count: usize = count
        .trim()
        .parse()
        .map_err(|_| wrong(at + 1, format!("`{}` is no number of layers", count.trim())))?;
    let layers: Vec<SimaiLayer> = lines
        .take(count)
        .map(|(at, line)| layer(line).map_err(|reason| wrong(at + 1, reason)))
        .collect::<Result<_, _>>()?;
    if layers.len() < count {
        return Err(wrong(
            at + 1,
            format!("{count} layers are announced, {} follow", layers.len()),
        ));
    }
    if layers.len().saturating_mul(passes as usize) > MOST_TASKS {
        return Err(wrong(1, format!("more than {MOST_TASKS} layers and passes")));
    }
    let graph = graph(&layers, passes, [tensor, experts], ranks)?;
    Ok(SimaiWorkload { tensor, ranks, graph })
}

fn layer(line: &str) -> Result<SimaiLayer, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.len() < 12 {
        return Err(format!("a layer has 12 columns, this line {}", words.len()));
    }
    Ok(SimaiLayer {
        name: words[0].to_owned(),
        forward: part(&words[2..5])?,
        input: part(&words[5..8])?,
        weight: part(&words[8..11])?,
    })
}

/// Nanoseconds of computing, exchange, bytes.
fn part(words: &[&str]) -> Result<LayerPass, String> {
    let number = |word: &str| -> Result<u64, String> {
        word.parse().map_err(|_| format!("`{word}` is no whole number"))
    };
    let nanoseconds = number(words[0])?;
    let took = nanoseconds.checked_mul(1_000).map(Picoseconds);
    let took = took.ok_or_else(|| format!("{nanoseconds} ns is too long"))?;
    let bytes = number(words[2])?;
    let kind = match words[1].split('_').next().unwrap_or_default() {
        "NONE" => None,
        "ALLREDUCE" => Some(CollectiveKind::AllReduce),
        "ALLGATHER" => Some(CollectiveKind::AllGather),
        "REDUCESCATTER" => Some(CollectiveKind::ReduceScatter),
        "ALLTOALL" => Some(CollectiveKind::AllToAll),
        _ => {
            return Err(format!(
                "exchange `{}` cannot be run: all-reduce, all-gather, reduce-scatter and all-to-all can",
                words[1]
            ));
        }
    };
    let is_expert = kind == Some(CollectiveKind::AllToAll)
        || words[1].ends_with("_EP") && !words[1].ends_with("_DP_EP");
    Ok(LayerPass {
        took,
        is_expert,
        exchange: kind.filter(|_| bytes > 0).map(|kind| (kind, Bytes(bytes))),
    })
}

fn graph(
    layers: &[SimaiLayer],
    passes: u32,
    [tensor, experts]: [u32; 2],
    ranks: u32,
) -> Result<TaskGraph, GraphError> {
    let peers: Vec<u32> = (0..ranks).step_by(tensor as usize).collect();
    let mut tasks: Vec<Task> = Vec::new();
    let mut last: Option<TaskId> = None;
    let add = |tasks: &mut Vec<Task>, name: String, after: Option<TaskId>, work: TaskWork| {
        tasks.push(Task { name, after: after.into_iter().collect(), work });
        Some(TaskId(tasks.len() as u32 - 1))
    };
    for pass in 0..passes {
        let forward = layers.iter().map(|layer| (layer, "forward", layer.forward));
        let backward = layers.iter().rev().flat_map(|layer| {
            [(layer, "input gradient", layer.input), (layer, "weight gradient", layer.weight)]
        });
        for (layer, what, part) in forward.chain(backward) {
            let name = format!("{} {what} pass {pass}", layer.name);
            last =
                add(&mut tasks, name.clone(), last, TaskWork::Compute { rank: 0, took: part.took });
            let Some((kind, bytes)) = part.exchange else { continue };
            if what == "weight gradient" {
                // Only the end of the step waits for it.
                if pass + 1 == passes && peers.len() > 1 {
                    let work = TaskWork::Across { kind, ranks: peers.clone(), bytes };
                    add(&mut tasks, name, last, work);
                }
            } else if part.is_expert {
                if experts > 1 {
                    let ranks = peers[..experts as usize].to_vec();
                    last = add(&mut tasks, name, last, TaskWork::Across { kind, ranks, bytes });
                }
            } else if tensor > 1 {
                last = add(&mut tasks, name, last, TaskWork::Ring { kind, ring: 0, bytes });
            }
        }
    }
    TaskGraph::new(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 ga: 2 all_gpus: 16 checkpoints: 0";

    #[test]
    fn a_layer_becomes_passes_with_exchange_between() {
        let line =
            "attention -1 2000 ALLREDUCE 4096 1000 ALLREDUCE 4096 500 REDUCESCATTER_DP_EP 8192 1";
        let workload = read(&format!("{HEADER}\n1\n{line}\n")).unwrap();
        assert_eq!((workload.tensor, workload.ranks), (8, 16));
        let count = |wanted: fn(&TaskWork) -> bool| {
            workload.graph.tasks().iter().filter(|task| wanted(&task.work)).count()
        };
        assert_eq!(count(|work| matches!(work, TaskWork::Compute { .. })), 6);
        assert_eq!(count(|work| matches!(work, TaskWork::Ring { .. })), 4);
        assert_eq!(count(|work| matches!(work, TaskWork::Across { .. })), 1);
        assert!(matches!(
            workload.graph.tasks()[0].work,
            TaskWork::Compute { took: Picoseconds(2_000_000), .. }
        ));
    }

    #[test]
    fn experts_exchange_between_groups() {
        let line = "moe -1 9 ALLTOALL_EP 4096 9 ALLTOALL_EP 4096 0 NONE 0 1";
        let text = format!("{}\n1\n{line}\n", HEADER.replace("ep: 1", "ep: 2"));
        let workload = read(&text).unwrap();
        let exchange = TaskWork::Across {
            kind: CollectiveKind::AllToAll,
            ranks: vec![0, 8],
            bytes: Bytes(4096),
        };
        let count = workload.graph.tasks().iter().filter(|task| task.work == exchange).count();
        assert_eq!(count, 4, "forward and backward of two passes");
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        let line = "moe -1 1 BROADCAST 4096 1 NONE 0 1 NONE 0 1";
        for (text, expected) in [
            (format!("{HEADER}\n1\n{line}\n"), "line 3: exchange `BROADCAST`"),
            (format!("{HEADER}\n2\n"), "line 2: 2 layers are announced, 0 follow"),
            (format!("{HEADER}\n1\nshort -1 1\n"), "line 3: a layer has 12 columns"),
            (HEADER.replace("pp: 1", "pp: 4"), "line 1: pipeline stages"),
            (HEADER.replace("all_gpus: 16", "all_gpus: 15"), "line 1: 15 ranks"),
            (HEADER.replace("ep: 1", "ep: 3"), "line 1: ep 3 is no divisor"),
            (String::new(), "line 1: the file is empty"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
