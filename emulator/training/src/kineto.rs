// SPDX-License-Identifier: Apache-2.0
//! Profiles of PyTorch (Kineto), one file a rank, as a recorded step.
//!
//! Kernels, copies and sets on a device are operations, in the order of their streams. A kernel of NCCL is a collective: its name, sizes and
//! members stand in its own arguments, or in those of the `record_param_comms` with the same `External id`. Collectives of several ranks are one by their
//! members and their `Seq`, or by their order where the file has none. An operation waits for the last one that had ended on each stream of its
//! rank when it began, and for the host as long as the device stood idle before it. Clocks of ranks are never compared.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_collective::Kind;
use lightloom_units::{Bytes, Picoseconds};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::graph::{Task, TaskGraph, TaskId, Work};
use super::recorded::{Recorded, RecordedError};

/// A file of one rank.
#[derive(Clone, Copy, Debug)]
pub struct File<'f> {
    /// As messages name it.
    pub name: &'f str,
    /// Its JSON.
    pub text: &'f [u8],
}

/// Why files cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum KinetoError {
    /// What is wrong with one file.
    #[error("{file}: {error}")]
    File {
        /// Which.
        file: String,
        /// What.
        error: RecordedError,
    },
    /// It does not say whose it is.
    #[error(
        "{file}: no `distributedInfo.rank`: the files of a job of several ranks need it (PyTorch 2.0 and later write it)"
    )]
    NoRank {
        /// Which.
        file: String,
    },
    /// Two files of one rank.
    #[error("{file}: rank {rank} has a file before this one")]
    Twice {
        /// Which.
        file: String,
        /// The rank.
        rank: u32,
    },
    /// Ranks saw different sizes.
    #[error(
        "{file}: traceEvents[{event}]: rank {rank} has {bytes} B in collective {nth} of its group, another rank {others} B"
    )]
    Sizes {
        /// Which file.
        file: String,
        /// Which event.
        event: usize,
        /// Whose.
        rank: u32,
        /// Its size.
        bytes: u64,
        /// The others'.
        others: u64,
        /// Its number in the group.
        nth: u64,
    },
}

/// A step and what a reader should know of it.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The step.
    pub recorded: Recorded,
    /// Ranks that other ranks' groups name and that have no file.
    pub missing: Vec<u32>,
    /// Kernels of NCCL that are taken as computing, because nothing says what they exchange.
    pub unknown: usize,
    /// Collectives.
    pub collectives: usize,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "distributedInfo")]
    info: Option<Info>,
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Info {
    rank: Option<u32>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    tid: Value,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Map<String, Value>,
}

/// Whether a JSON text is of Kineto: its events have categories of its own.
#[must_use]
pub fn is_kineto(text: &[u8]) -> bool {
    let head = &text[..text.len().min(1 << 16)];
    let head = String::from_utf8_lossy(head);
    ["\"deviceProperties\"", "\"distributedInfo\"", "\"schemaVersion\""]
        .iter()
        .any(|part| head.contains(part))
}

/// Reads the files of a job.
///
/// # Errors
/// Files that are no profile, or of no rank; collectives whose sizes differ: file and event.
pub fn read(files: &[File<'_>]) -> Result<Profile, KinetoError> {
    let mut joined = Joined::default();
    for file in files {
        let document: Document = serde_json::from_slice(file.text).map_err(|error| {
            let (line, column, reason) = (error.line(), error.column(), error.to_string());
            let error = RecordedError::Json { line, column, reason };
            KinetoError::File { file: file.name.to_owned(), error }
        })?;
        let rank = document.info.as_ref().and_then(|info| info.rank);
        let rank = match (rank, files.len()) {
            (Some(rank), _) => rank,
            (None, 1) => 0,
            (None, _) => return Err(KinetoError::NoRank { file: file.name.to_owned() }),
        };
        if !joined.ranks.insert(rank) {
            return Err(KinetoError::Twice { file: file.name.to_owned(), rank });
        }
        joined.file(file.name, rank, &document)?;
    }
    joined.finish().map_err(|error| {
        let file = files.first().map_or_else(String::new, |file| file.name.to_owned());
        KinetoError::File { file, error }
    })
}

/// What a collective says of itself.
struct Communication {
    kind: Kind,
    group: Vec<u32>,
    bytes: u64,
    seq: Option<u64>,
}

#[derive(Default)]
struct Joined {
    ranks: BTreeSet<u32>,
    tasks: Vec<Task>,
    took: Vec<Picoseconds>,
    known: BTreeMap<(Vec<u32>, &'static str, u64), usize>,
    recorded: f64,
    unknown: usize,
    collectives: usize,
}

impl Joined {
    fn file(&mut self, name: &str, rank: u32, document: &Document) -> Result<(), KinetoError> {
        let named = by_external_id(document);
        let mut events: Vec<(usize, &Event)> = document
            .events
            .iter()
            .enumerate()
            .filter(|(_, event)| {
                event.ph == "X" && ["kernel", "gpu_memcpy", "gpu_memset"].contains(&&*event.cat)
            })
            .collect();
        events.sort_by(|a, b| a.1.ts.total_cmp(&b.1.ts));
        let mut counts = BTreeMap::new();
        // By stream: when its last operation ended, and which task it is.
        let mut streams: BTreeMap<String, (f64, usize)> = BTreeMap::new();
        let mut ended: BTreeMap<String, (f64, usize)> = BTreeMap::new();
        for (place, event) in &events {
            for (stream, last) in &streams {
                if last.0 <= event.ts {
                    ended.insert(stream.clone(), *last);
                }
            }
            let stream = event.tid.to_string();
            let mut after: Vec<usize> = ended.values().map(|(_, task)| *task).collect();
            after.extend(streams.get(&stream).map(|(_, task)| *task));
            let idle_since = ended.values().map(|(end, _)| *end).fold(f64::MIN, f64::max);
            if event.ts > idle_since && idle_since > f64::MIN {
                let host = self.add("host".to_owned(), after, compute(rank, event.ts - idle_since));
                after = vec![host];
            }
            let task = self.operation((name, rank), (*place, event), &named, &mut counts, after)?;
            streams.insert(stream, (event.ts + event.dur, task));
        }
        let begin = events.first().map_or(0.0, |(_, event)| event.ts);
        let end = events.iter().map(|(_, event)| event.ts + event.dur).fold(begin, f64::max);
        self.recorded = self.recorded.max(end - begin);
        Ok(())
    }

    fn add(&mut self, name: String, after: Vec<usize>, work: Work) -> usize {
        let took = if let Work::Compute { took, .. } = &work { *took } else { Picoseconds::ZERO };
        let after = after.into_iter().map(|task| TaskId(task as u32)).collect();
        self.tasks.push(Task { name, after, work });
        self.took.push(took);
        self.tasks.len() - 1
    }

    /// The task of an event: its own, or that of the collective it takes part in.
    fn operation(
        &mut self,
        (file, rank): (&str, u32),
        (place, event): (usize, &Event),
        named: &BTreeMap<u64, &Map<String, Value>>,
        counts: &mut BTreeMap<(Vec<u32>, &'static str), u64>,
        after: Vec<usize>,
    ) -> Result<usize, KinetoError> {
        let is_nccl = event.name.starts_with("nccl");
        let communication = is_nccl.then(|| communication(&event.args, named)).flatten();
        let Some(communication) = communication.filter(|one| one.group.len() > 1) else {
            self.unknown += usize::from(is_nccl);
            return Ok(self.add(event.name.clone(), after, compute(rank, event.dur)));
        };
        let Communication { kind, group, bytes, seq } = communication;
        let count = counts.entry((group.clone(), kind.name())).or_insert(0);
        *count += 1;
        let nth = seq.unwrap_or(*count);
        let key = (group.clone(), kind.name(), nth);
        let took = Picoseconds((event.dur * 1e6).round() as u64);
        let Some(&task) = self.known.get(&key) else {
            let work = Work::Across { kind, ranks: group, bytes: Bytes(bytes) };
            let task = self.add(format!("{} {bytes} B", kind.name()), after, work);
            self.took[task] = took;
            self.known.insert(key, task);
            self.collectives += 1;
            return Ok(task);
        };
        if let Work::Across { bytes: others, .. } = &self.tasks[task].work
            && others.0 != bytes
        {
            let (file, others) = (file.to_owned(), others.0);
            return Err(KinetoError::Sizes { file, event: place, rank, bytes, others, nth });
        }
        // The others' times include waiting for the last to arrive.
        self.took[task] = self.took[task].min(took);
        self.tasks[task].after.extend(after.into_iter().map(|before| TaskId(before as u32)));
        Ok(task)
    }

    fn finish(mut self) -> Result<Profile, RecordedError> {
        if self.tasks.is_empty() {
            return Err(RecordedError::Empty);
        }
        let mut named: BTreeSet<u32> = self.ranks.clone();
        for (index, task) in self.tasks.iter_mut().enumerate() {
            task.after.sort_unstable();
            task.after.dedup();
            task.after.retain(|before| before.index() != index);
            if let Work::Across { ranks, .. } = &task.work {
                named.extend(ranks);
            }
        }
        let missing = named.difference(&self.ranks).copied().collect();
        let recorded = Recorded {
            ranks: named.last().map_or(0, |last| last + 1),
            graph: TaskGraph::new(self.tasks)?,
            took: self.took,
            recorded: Picoseconds((self.recorded * 1e6).round() as u64),
        };
        let (unknown, collectives) = (self.unknown, self.collectives);
        Ok(Profile { recorded, missing, unknown, collectives })
    }
}

fn compute(rank: u32, micros: f64) -> Work {
    Work::Compute { rank, took: Picoseconds((micros.max(0.0) * 1e6).round() as u64) }
}

/// The arguments of communication calls by their `External id`.
fn by_external_id(document: &Document) -> BTreeMap<u64, &Map<String, Value>> {
    document
        .events
        .iter()
        .filter(|event| event.args.contains_key("Collective name") && event.cat == "cpu_op")
        .filter_map(|event| Some((event.args.get("External id")?.as_u64()?, &event.args)))
        .collect()
}

fn communication(
    own: &Map<String, Value>,
    named: &BTreeMap<u64, &Map<String, Value>>,
) -> Option<Communication> {
    let arguments = if own.contains_key("Collective name") {
        own
    } else {
        named.get(&own.get("External id")?.as_u64()?)?
    };
    let name = arguments.get("Collective name")?.as_str()?;
    let elements = |key: &str| arguments.get(key).and_then(Value::as_u64);
    let (kind, elements) = if name.contains("allreduce") {
        (Kind::AllReduce, elements("In msg nelems"))
    } else if name.contains("allgather") || name.contains("all_gather") {
        (Kind::AllGather, elements("Out msg nelems"))
    } else if name.contains("reduce_scatter") {
        (Kind::ReduceScatter, elements("In msg nelems"))
    } else if name.contains("all_to_all") || name.contains("alltoall") {
        (Kind::AllToAll, elements("In msg nelems"))
    } else {
        return None;
    };
    let group: Vec<u32> =
        serde_json::from_str(arguments.get("Process Group Ranks")?.as_str()?).ok()?;
    let size = element_bytes(arguments.get("dtype")?.as_str()?)?;
    let bytes = elements?.checked_mul(size)?;
    Some(Communication { kind, group, bytes, seq: arguments.get("Seq").and_then(Value::as_u64) })
}

fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "Double" | "Long" | "ComplexFloat" => 8,
        "Float" | "Int" => 4,
        "Half" | "BFloat16" | "Short" => 2,
        "Byte" | "Char" | "Bool" => 1,
        other if other.starts_with("Float8") => 1,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(rank: u32, elements: u64, shift: f64) -> String {
        let arguments = format!(
            "{{\"Collective name\": \"allreduce\", \"In msg nelems\": {elements}, \"dtype\": \"Float\", \"Process Group Ranks\": \"[0, 1]\", \"Seq\": 4}}"
        );
        format!(
            "{{\"distributedInfo\": {{\"rank\": {rank}}}, \"traceEvents\": [\
             {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"tid\": 7, \"ts\": {shift}, \"dur\": 100}},\
             {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllReduce\", \"tid\": 20, \"ts\": {}, \"dur\": 50, \"args\": {arguments}}}]}}",
            shift + 110.0
        )
    }

    fn files<'f>(texts: &'f [String]) -> Vec<File<'f>> {
        texts.iter().map(|text| File { name: "rank.json", text: text.as_bytes() }).collect()
    }

    #[test]
    fn ranks_with_clocks_that_disagree_meet_in_their_collectives() {
        let texts = [profile(0, 1000, 0.0), profile(1, 1000, 9e9)];
        let read = read(&files(&texts)).unwrap();
        assert_eq!((read.collectives, read.recorded.ranks, read.missing.len()), (1, 2, 0));
        let tasks = read.recorded.graph.tasks();
        let exchange = tasks.iter().find(|task| matches!(task.work, Work::Across { .. })).unwrap();
        // Each rank's device stood idle for 10 us before it.
        assert_eq!(exchange.after.len(), 2);
        assert_eq!(read.recorded.recorded, Picoseconds(160_000_000));
    }

    #[test]
    fn a_missing_file_is_named_and_sizes_that_differ_have_their_event() {
        let alone = [profile(0, 1000, 0.0)];
        assert_eq!(read(&files(&alone)).unwrap().missing, [1]);
        let texts = [profile(0, 1000, 0.0), profile(1, 999, 0.0)];
        let error = read(&files(&texts)).unwrap_err().to_string();
        assert!(error.contains("rank.json: traceEvents[1]: rank 1 has 3996 B"), "{error}");
        let twice = [profile(0, 1000, 0.0), profile(0, 1000, 0.0)];
        let error = read(&files(&twice)).unwrap_err().to_string();
        assert!(error.contains("rank 0 has a file before"), "{error}");
    }
}
