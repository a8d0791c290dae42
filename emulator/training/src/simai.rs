// SPDX-License-Identifier: Apache-2.0
//! Reads workloads of SimAI and AICB (Alibaba), a text format with one layer per line.
//!
//! ```text
//! HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 1 ga: 2 all_gpus: 16 …
//! 1
//! name  -1  556000 ALLREDUCE 536870912   1 NONE 0   1 NONE 0   1
//!           └ forward: ns, exchange, bytes ┘ └ input ┘ └ weight gradient ┘ └ other
//! ```
//! The rows describe one pipeline stage with all `ga` micro-batches in sequence, as written by AICB and run by SimAI.
//! Each micro-batch begins with `embedding_layer`. All stages run the same rows, scheduled as interleaved 1F1B with
//! `vpp` chunks per stage. Transformer layers are divided evenly over the chunks; rows before them belong to the first
//! chunk, and rows after them to the last. Stages send `pp_comm` bytes to their successor.
//!
//! Communication of the forward and input-gradient columns runs on the ring of the first `model_parallel_NPU_group`
//! ranks of a stage. Weight-gradient communication runs over the data-centre network between corresponding ranks of all
//! such groups of the stage; only the end of the step waits for it. Communication marked `_EP`, and every all-to-all,
//! runs over the data-centre network between corresponding ranks of the first `ep` groups. `_DP_EP` marks the weight
//! gradients of experts: they are exchanged between the groups with the same experts, every `ep`-th.

use lightloom_units::{Bytes, Picoseconds};

use super::exchange::{Exchange, Operation, Size};
use super::graph::{GraphError, LONGEST, MOST_RANKS, Task, TaskGraph, TaskId, TaskWork};
use super::schedule::{PassKind, Pipeline, Schedule};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimaiError {
    #[error("line {line}: {reason}")]
    Line { line: usize, reason: String },
    #[error(transparent)]
    Graph(#[from] GraphError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimaiWorkload {
    pub tensor: u32,
    pub ranks: u32,
    /// One step of the first TP group of each stage. Ring 0 belongs to the first stage.
    pub graph: TaskGraph,
}

/// A larger number of rows over all stages is assumed to be a mistake.
const MOST_TASKS: usize = 10_000_000;

#[derive(Clone, Copy)]
struct LayerPass {
    took: Picoseconds,
    exchange: Option<(Operation, Size)>,
    /// Number and distance of the TP groups whose corresponding ranks exchange. `None` inside a group.
    between: Option<(u32, u32)>,
}

struct SimaiLayer {
    name: String,
    forward: LayerPass,
    input: LayerPass,
    weight: LayerPass,
}

/// Fails if a line is malformed or a collective is not supported; the error states the line.
pub fn read(text: &str) -> Result<SimaiWorkload, SimaiError> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or_else(|| wrong(1, "the file is empty".into()))?;
    let header = SimaiHeader::read(header).map_err(|reason| wrong(1, reason))?;
    let layers = layers(&mut lines, header.sizes)?;
    let stages = header.stages;
    if layers.len().saturating_mul(stages as usize) > MOST_TASKS {
        return Err(wrong(1, format!("more than {MOST_TASKS} layers and stages")));
    }
    let firsts: Vec<usize> =
        (0..layers.len()).filter(|at| layers[*at].name == FIRST_LAYER).collect();
    let is_split = firsts.len() == header.micro_batches as usize;
    if stages > 1 && !is_split {
        let reason = format!(
            "{} rows of `{FIRST_LAYER}` for ga {}: expected one per micro-batch",
            firsts.len(),
            header.micro_batches
        );
        return Err(wrong(1, reason));
    }
    let step = SimaiStep {
        layers: &layers,
        firsts: if is_split && stages > 1 { firsts } else { vec![0] },
        stages,
        pieces: header.virtual_stages,
        sent: header.sent,
        sizes: header.sizes,
    };
    let graph = step.graph().ok_or_else(|| wrong(1, "the stages wait for each other".into()))??;
    Ok(SimaiWorkload { tensor: header.sizes.tensor, ranks: header.ranks, graph })
}

fn wrong(line: usize, reason: String) -> SimaiError {
    SimaiError::Line { line, reason }
}

struct SimaiHeader {
    ranks: u32,
    micro_batches: u32,
    stages: u32,
    virtual_stages: u32,
    /// Per micro-batch and boundary between stages.
    sent: Bytes,
    sizes: GroupSizes,
}

impl SimaiHeader {
    fn read(header: &str) -> Result<Self, String> {
        let (tensor, ranks) =
            (needed(header, "model_parallel_NPU_group:")?, needed(header, "all_gpus:")?);
        if ranks > MOST_RANKS {
            return Err(format!("`all_gpus:` {ranks} is more than {MOST_RANKS} ranks"));
        }
        let [micro_batches, experts, stages, virtual_stages] =
            ["ga:", "ep:", "pp:", "vpp:"].map(|name| setting(header, name).unwrap_or(1).max(1));
        if !ranks.is_multiple_of(tensor.saturating_mul(stages)) {
            return Err(format!(
                "{ranks} ranks are not a multiple of {stages} stages of groups of {tensor}"
            ));
        }
        let groups = ranks / tensor / stages;
        if !groups.is_multiple_of(experts) {
            return Err(format!("ep {experts} does not divide the {groups} groups of {tensor}"));
        }
        let mut words = header.split_whitespace().skip_while(|word| !word.starts_with("pp_comm"));
        let sent: f64 = words.nth(1).and_then(|bytes| bytes.parse().ok()).unwrap_or(0.0);
        if stages > 1 && sent < 1.0 {
            return Err(format!("{stages} stages need `pp_comm` above 0"));
        }
        let sizes = GroupSizes { tensor, experts, groups };
        Ok(Self { ranks, micro_batches, stages, virtual_stages, sent: Bytes(sent as u64), sizes })
    }
}

fn setting(header: &str, name: &str) -> Option<u32> {
    let mut words = header.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

fn needed(header: &str, name: &str) -> Result<u32, String> {
    let value = setting(header, name).filter(|value| *value > 0);
    value.ok_or_else(|| format!("the header lacks a positive `{name}`"))
}

fn layers<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    sizes: GroupSizes,
) -> Result<Vec<SimaiLayer>, SimaiError> {
    let (at, count) =
        lines.next().ok_or_else(|| wrong(2, "the number of layers is missing".into()))?;
    let count: usize = count
        .trim()
        .parse()
        .map_err(|_| wrong(at + 1, format!("`{}` is not a number of layers", count.trim())))?;
    let layers: Vec<SimaiLayer> = lines
        .take(count)
        .map(|(at, line)| layer(line, sizes).map_err(|reason| wrong(at + 1, reason)))
        .collect::<Result<_, _>>()?;
    if layers.len() < count {
        return Err(wrong(
            at + 1,
            format!("the header announces {count} layers, but {} follow", layers.len()),
        ));
    }
    Ok(layers)
}

const FIRST_LAYER: &str = "embedding_layer";

fn layer(line: &str, sizes: GroupSizes) -> Result<SimaiLayer, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.len() < 12 {
        return Err(format!(
            "a layer has 12 columns, but this line has {}: name, dependency, then nanoseconds, collective and bytes of \
             the forward pass, of the input gradient and of the weight gradient, and other nanoseconds",
            words.len()
        ));
    }
    Ok(SimaiLayer {
        name: words[0].to_owned(),
        forward: part(&words[2..5], sizes, None)?,
        input: part(&words[5..8], sizes, None)?,
        weight: part(&words[8..11], sizes, Some((sizes.groups, 1)))?,
    })
}

fn part(words: &[&str], sizes: GroupSizes, usual: Option<(u32, u32)>) -> Result<LayerPass, String> {
    let [nanoseconds, bytes] = [words[0], words[2]]
        .map(|word| word.parse::<u64>().map_err(|_| format!("`{word}` is not a whole number")));
    let nanoseconds = nanoseconds?;
    let took = Picoseconds(nanoseconds.saturating_mul(1_000));
    if took > LONGEST {
        return Err(format!("{nanoseconds} ns is more than a day"));
    }
    let bytes = bytes?;
    let operation = match words[1].split('_').next().unwrap_or_default() {
        "NONE" => None,
        name => match Operation::of_name(name).filter(|operation| !operation.is_between_two()) {
            None => return Err(format!("exchange `{}` is not a collective", words[1])),
            operation => operation,
        },
    };
    let between = match words[1] {
        name if name.ends_with("_DP_EP") => Some((sizes.groups / sizes.experts, sizes.experts)),
        name if name.ends_with("_EP") => Some((sizes.experts, 1)),
        _ if operation.is_some_and(Operation::is_pairwise) => Some((sizes.experts, 1)),
        _ => usual,
    };
    Ok(LayerPass {
        took,
        between,
        exchange: operation.filter(|_| bytes > 0).map(|it| (it, Size::Whole(bytes))),
    })
}

#[derive(Clone, Copy)]
struct GroupSizes {
    tensor: u32,
    experts: u32,
    groups: u32,
}

struct SimaiStep<'l> {
    layers: &'l [SimaiLayer],
    firsts: Vec<usize>,
    stages: u32,
    pieces: u32,
    sent: Bytes,
    sizes: GroupSizes,
}

struct SimaiTasks {
    tasks: Vec<Task>,
    sizes: GroupSizes,
    last: Vec<Option<TaskId>>,
}

impl SimaiStep<'_> {
    fn graph(&self) -> Option<Result<TaskGraph, GraphError>> {
        let stages = self.stages as usize;
        let tasks = SimaiTasks { tasks: Vec::new(), sizes: self.sizes, last: vec![None; stages] };
        let mut out = tasks;
        let first = self.firsts[0];
        let rows = match self.firsts.get(1) {
            Some(second) => second - first,
            None => self.layers.len() - first,
        };
        let rest = (self.firsts.last()? + rows).min(self.layers.len());
        let body = transformer_rows(&self.layers[first..first + rows]);
        // Interleaving needs whole rounds of micro-batches and at least one layer row per chunk.
        let is_interleaved =
            self.firsts.len().is_multiple_of(stages) && body.len() >= self.pieces as usize;
        let pieces = if stages > 1 && is_interleaved { self.pieces as usize } else { 1 };
        let schedule = Schedule::OneForwardOneBackward;
        let micro_batches = self.firsts.len();
        let pipeline = Pipeline { schedule, stages, pieces, micro_batches };
        for stage in 0..stages {
            out.forward(stage, &self.layers[..first]);
        }
        let mut ends = vec![vec![[None; 2]; stages * pieces]; micro_batches];
        let all_ran = pipeline.walk(|stage, pass| {
            let is_forward = pass.kind == PassKind::Forward;
            let at = pass.piece * stages + stage;
            let own = &mut ends[pass.micro_batch];
            let from = match is_forward {
                true => at.checked_sub(1),
                false => Some(at + 1).filter(|next| *next < stages * pieces),
            };
            let ready = from.and_then(|from| own[from][usize::from(!is_forward)]);
            if let (Some(from), Some(ready)) = (from, ready) {
                out.send(from % stages, ready, stage, self.sent);
            }
            let begin = self.firsts[pass.micro_batch];
            let [from_row, to_row] = [pass.piece, pass.piece + 1].map(|piece| match piece {
                0 => begin,
                last if last == pieces => begin + rows,
                _ => begin + body.start + body.len() * piece / pieces,
            });
            let layers = &self.layers[from_row..to_row];
            match is_forward {
                true => out.forward(stage, layers),
                false => out.backward(stage, layers),
            }
            own[at][usize::from(!is_forward)] = out.last[stage];
        });
        for stage in 0..stages {
            out.forward(stage, &self.layers[rest..]);
            out.backward(stage, &self.layers[rest..]);
            out.backward(stage, &self.layers[..first]);
        }
        all_ran.then(|| TaskGraph::new(out.tasks))
    }
}

fn transformer_rows(rows: &[SimaiLayer]) -> std::ops::Range<usize> {
    let is_layer = |row: &SimaiLayer| {
        !["embedding", "final", "cross_entropy"].iter().any(|other| row.name.starts_with(other))
    };
    let first = rows.iter().position(is_layer).unwrap_or(0);
    first..rows.iter().rposition(is_layer).map_or(first, |last| last + 1)
}

impl SimaiTasks {
    fn rank(&self, stage: usize) -> u32 {
        stage as u32 * self.sizes.groups * self.sizes.tensor
    }

    fn add(&mut self, name: String, after: Vec<TaskId>, work: TaskWork) -> TaskId {
        self.tasks.push(Task { name, after, work });
        TaskId(self.tasks.len() as u32 - 1)
    }

    fn send(&mut self, other: usize, ready: TaskId, stage: usize, bytes: Bytes) {
        let came = match other == stage {
            true => ready,
            false => {
                let (from, to) = (self.rank(other), self.rank(stage));
                let work = TaskWork::Transfer { from, to, bytes };
                self.add(format!("stage {other} to {stage}"), vec![ready], work)
            }
        };
        let work = TaskWork::Compute { rank: self.rank(stage), took: Picoseconds::ZERO };
        let after = self.last[stage].into_iter().chain([came]).collect();
        self.last[stage] = Some(self.add("received".to_owned(), after, work));
    }

    fn forward(&mut self, stage: usize, layers: &[SimaiLayer]) {
        for layer in layers {
            self.pass(stage, format!("{} forward", layer.name), layer.forward, false);
        }
    }

    fn backward(&mut self, stage: usize, layers: &[SimaiLayer]) {
        for layer in layers.iter().rev() {
            self.pass(stage, format!("{} input gradient", layer.name), layer.input, false);
            self.pass(stage, format!("{} weight gradient", layer.name), layer.weight, true);
        }
    }

    fn pass(&mut self, stage: usize, name: String, pass: LayerPass, is_gradient: bool) {
        let (tensor, rank) = (self.sizes.tensor, self.rank(stage));
        let last = self.last[stage].into_iter().collect();
        let work = TaskWork::Compute { rank, took: pass.took };
        let computed = self.add(name.clone(), last, work);
        self.last[stage] = Some(computed);
        let Some((operation, size)) = pass.exchange else { return };
        let (count, stride) = pass.between.map_or((tensor, 1), |(count, by)| (count, by * tensor));
        if count < 2 {
            return;
        }
        let ranks = (0..count).map(|place| rank + place * stride).collect();
        let exchange = Exchange::new(operation, ranks, size);
        let work = match pass.between {
            Some(_) => exchange.work(),
            None => exchange.on_ring(rank / tensor),
        };
        let exchanged = self.add(name, vec![computed], work);
        if !is_gradient {
            self.last[stage] = Some(exchanged);
        }
    }
}

#[cfg(test)]
mod tests {
    use lightloom_collective::CollectiveKind;

    use super::*;

    const HEADER: &str = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 ga: 2 all_gpus: 16 checkpoints: 0";

    #[test]
    fn layer_becomes_passes_with_an_exchange_between() {
        let line =
            "attention -1 2000 ALLREDUCE 4096 1000 ALLREDUCE 4096 500 REDUCESCATTER_DP_EP 8192 1";
        let workload = read(&format!("{HEADER}\n1\n{line}\n")).unwrap();
        assert_eq!((workload.tensor, workload.ranks), (8, 16));
        let count = |wanted: fn(&TaskWork) -> bool| {
            workload.graph.tasks().iter().filter(|task| wanted(&task.work)).count()
        };
        assert_eq!(count(|work| matches!(work, TaskWork::Compute { .. })), 3);
        assert_eq!(count(|work| matches!(work, TaskWork::Ring { .. })), 2);
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
            kind: CollectiveKind::PAIRWISE,
            ranks: vec![0, 8],
            bytes: Bytes(4096),
        };
        let count = workload.graph.tasks().iter().filter(|task| task.work == exchange).count();
        assert_eq!(count, 2, "forward and backward");
    }

    #[test]
    fn replicas_of_experts_exchange_their_gradients() {
        let line = "moe -1 9 NONE 0 9 NONE 0 9 REDUCESCATTER_DP_EP 4096 1";
        let header = HEADER.replace("ep: 1", "ep: 2").replace("all_gpus: 16", "all_gpus: 32");
        let workload = read(&format!("{header}\n1\n{line}\n")).unwrap();
        let [kind, _] = CollectiveKind::HALVES;
        let exchange = TaskWork::Across { kind, ranks: vec![0, 16], bytes: Bytes(4096) };
        assert!(workload.graph.tasks().iter().any(|task| task.work == exchange));
    }

    fn row(name: &str, [forward, input, weight]: [u64; 3]) -> String {
        format!("{name} -1 {forward} NONE 0 {input} NONE 0 {weight} NONE 0 1\n")
    }

    /// In nanoseconds; a transfer takes 1 ns.
    fn step_nanos([stages, pieces, micro_batches]: [usize; 3], rows: &[String]) -> u64 {
        let header = HEADER.replace("pp: 1", &format!("pp: {stages} vpp: {pieces}"));
        let gpus = format!("ga: {micro_batches} all_gpus: {}", 8 * stages);
        let header = header.replace("ga: 2 all_gpus: 16", &gpus);
        let (count, rows) = (micro_batches * rows.len(), rows.concat().repeat(micro_batches));
        let workload = read(&format!("{header} pp_comm: 1.0\n{count}\n{rows}")).unwrap();
        let took = workload.graph.tasks().iter().map(|task| match task.work {
            TaskWork::Compute { took, .. } => took,
            TaskWork::Transfer { bytes, .. } => Picoseconds::from_nanos(bytes.0),
            _ => Picoseconds::ZERO,
        });
        let took: Vec<Picoseconds> = took.collect();
        let spans = crate::longest_path::play(&workload.graph, &took);
        spans.iter().map(|span| span.1.0).max().unwrap() / 1000
    }

    /// The bubble equals the one of 1F1B, or of interleaved 1F1B with several chunks.
    #[test]
    fn stages_process_micro_batches_in_a_pipeline() {
        let rows = [
            row(FIRST_LAYER, [0; 3]),
            row("attention", [1000, 1500, 500]),
            row("mlp", [1000, 1500, 500]),
        ];
        for (pieces, expected) in [(1, 8 * 6000 + 3 * 6000), (2, 8 * 6000 + 3 * 3000)] {
            let took = step_nanos([4, pieces, 8], &rows);
            assert!((expected..expected + 50).contains(&took), "{pieces}: {took}");
        }
        let header = HEADER.replace("pp: 1", "pp: 2") + " pp_comm 9";
        let error = read(&format!("{header}\n1\n{}", row(FIRST_LAYER, [1; 3]))).unwrap_err();
        assert!(error.to_string().contains("1 rows of `embedding_layer` for ga 2"), "{error}");
    }

    #[test]
    fn non_transformer_rows_are_not_separate_virtual_stages() {
        for (layers, pieces) in [(6, 3), (8, 2)] {
            let mut rows = vec![row("attention", [1_000_000; 3]); layers];
            rows.insert(0, row(FIRST_LAYER, [0; 3]));
            rows.push(row("final_column", [0; 3]));
            let stage = 3_000_000 * layers as u64;
            let expected = 4 * stage + stage / pieces as u64;
            let took = step_nanos([2, pieces, 4], &rows);
            assert!((expected..expected + 50).contains(&took), "vpp {pieces}: {took}");
        }
    }

    #[test]
    fn names_unknown_entries_with_their_line() {
        let line = "moe -1 1 PERMUTE 4096 1 NONE 0 1 NONE 0 1";
        for (text, expected) in [
            (format!("{HEADER}\n1\n{line}\n"), "line 3: exchange `PERMUTE` is not a collective"),
            (
                format!("{HEADER}\n1\n{}", row("attention", [1_000_000_000_000_000, 1, 1])),
                "line 3: 1000000000000000 ns is more than a day",
            ),
            (
                format!("{HEADER}\n101\n{}", row("long", [LONGEST.0 / 1000, 1, 1]).repeat(101)),
                "task 100 `long forward` ends after more than 100 days",
            ),
            (HEADER.replace("gpus: 16", "gpus: 999999992"), "line 1: `all_gpus:` 999999992 is"),
            (format!("{HEADER}\n2\n"), "line 2: the header announces 2 layers, but 0 follow"),
            (format!("{HEADER}\n1\nshort -1 1\n"), "line 3: a layer has 12 columns"),
            (HEADER.replace("pp: 1", "pp: 4"), "line 1: 16 ranks are not a multiple of 4 stages"),
            (HEADER.replace("pp: 1", "pp: 2"), "line 1: 2 stages need `pp_comm`"),
            (HEADER.replace("all_gpus: 16", "all_gpus: 15"), "line 1: 15 ranks"),
            (HEADER.replace("ep: 1", "ep: 3"), "line 1: ep 3 does not divide"),
            (String::new(), "line 1: the file is empty"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
