// SPDX-License-Identifier: Apache-2.0
//! The binary form of GOAL, as in `txt2bin` and `Parser.hpp` of spcl/LogGOPSim.
//!
//! Numbers are little-endian. An 8-byte cookie precedes the header, and offsets count from the
//! header. The header contains the number of ranks, the numbers of processors and interfaces (one
//! byte each), and the start and end offset of each rank.
//!
//! The data of a rank consists of the number of its operations, the number and list of operations
//! without dependencies, the operations of 39 bytes each, and a list of dependents. An operation
//! consists of its number of dependencies, kind, peer, size, tag, processor and interface and, for
//! each of `requires` and `irequires`, the number of its dependents and their offset in the list.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{GoalError, GoalOperation, GoalVerb, Reader};

const COOKIE: u64 = 4223;
const ANY: u32 = u32::MAX;
const OPERATION: usize = 39;
const SEND: u8 = 1;
const RECEIVE: u8 = 2;
const CALC: u8 = 3;

struct Bytes<'b> {
    all: &'b [u8],
    at: usize,
}

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], GoalError> {
        let end = self.at.checked_add(N);
        let taken = end.and_then(|end| self.all.get(self.at..end)?.try_into().ok());
        let taken =
            taken.ok_or(GoalError::Binary { at: self.at, reason: "unexpected end of file" })?;
        self.at += N;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, GoalError> {
        Ok(self.take::<1>()?[0])
    }

    fn number(&mut self) -> Result<u32, GoalError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn long(&mut self) -> Result<u64, GoalError> {
        Ok(u64::from_le_bytes(self.take()?))
    }
}

#[must_use]
pub fn is_binary(file: &[u8]) -> bool {
    file.starts_with(&COOKIE.to_le_bytes())
}

/// Fails if the file is truncated or an operation has an unknown kind; the error states the byte offset.
pub fn text_of(file: &[u8]) -> Result<String, GoalError> {
    let mut head = Bytes { all: file, at: 0 };
    if head.long()? != COOKIE {
        return Err(GoalError::Binary { at: 0, reason: "not a binary GOAL file" });
    }
    let base = head.at;
    let ranks = head.number()?;
    head.take::<2>()?;
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        let (start, _end) = (head.long()?, head.long()?);
        let at = usize::try_from(start).unwrap_or(usize::MAX).saturating_add(base);
        let _ = writeln!(text, "rank {rank} {{");
        rank_text(&mut Bytes { all: file, at }, &mut text)?;
        text.push_str("}\n");
    }
    Ok(text)
}

fn rank_text(bytes: &mut Bytes<'_>, text: &mut String) -> Result<(), GoalError> {
    let (count, roots) = (bytes.number()?, bytes.number()?);
    bytes.at = bytes.at.saturating_add(4 * roots as usize);
    let list = bytes.at.saturating_add(OPERATION * count as usize);
    let mut waits: Vec<(u32, u32, u32, &str)> = Vec::new();
    let any = |number: u32| if number == ANY { "-1".to_owned() } else { number.to_string() };
    for place in 0..count {
        let at = bytes.at;
        bytes.number()?;
        let (kind, peer, size) = (bytes.byte()?, bytes.number()?, bytes.long()?);
        let tag = any(bytes.number()?);
        let [cpu, nic] = bytes.take::<2>()?;
        let on = |word: &str, number: u8| match number {
            0 => String::new(),
            _ => format!(" {word} {number}"),
        };
        let on = on("cpu", cpu) + &on("nic", nic);
        let _ = match kind {
            SEND => writeln!(text, "l{place}: send {size}b to {peer} tag {tag}{on}"),
            RECEIVE => writeln!(text, "l{place}: recv {size}b from {} tag {tag}{on}", any(peer)),
            CALC => writeln!(text, "l{place}: calc {size}{on}"),
            _ => return Err(GoalError::Binary { at, reason: "not a send, receive or calc" }),
        };
        for word in ["requires", "irequires"] {
            waits.push((place, bytes.number()?, bytes.number()?, word));
        }
    }
    for (place, number, first, word) in waits {
        let mut entries = Bytes { all: bytes.all, at: list.saturating_add(4 * first as usize) };
        for _ in 0..number {
            let _ = writeln!(text, "l{} {word} l{place}", entries.number()?);
        }
    }
    Ok(())
}

/// Resolves `irequires` into plain dependencies.
pub fn bytes_of(text: &str) -> Result<Vec<u8>, GoalError> {
    let reader = Reader::of(text)?;
    let ranks = reader.ranks.unwrap_or(0);
    let mut of_rank: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, operation) in reader.operations.iter().enumerate() {
        of_rank.entry(operation.rank).or_default().push(place);
    }
    let (mut table, mut body) = (Vec::new(), Vec::new());
    let first = 6 + 16 * u64::from(ranks);
    for rank in 0..ranks {
        let own = of_rank.remove(&rank).unwrap_or_default();
        table.extend((first + body.len() as u64).to_le_bytes());
        rank_bytes(&reader.operations, &own, &mut body);
        table.extend((first + body.len() as u64).to_le_bytes());
    }
    let mut file = COOKIE.to_le_bytes().to_vec();
    file.extend(ranks.to_le_bytes());
    let most = |of: fn(&GoalOperation) -> u8| reader.operations.iter().map(of).max().unwrap_or(0);
    file.extend([most(|operation| operation.cpu), most(|operation| operation.nic)]);
    file.extend(table);
    file.extend(body);
    Ok(file)
}

fn rank_bytes(operations: &[GoalOperation], own: &[usize], out: &mut Vec<u8>) {
    let place_of: BTreeMap<usize, u32> = own.iter().copied().zip(0..).collect();
    let mut dependents: Vec<Vec<u32>> = vec![Vec::new(); own.len()];
    for operation in own {
        for before in &operations[*operation].after {
            dependents[place_of[before] as usize].push(place_of[operation]);
        }
    }
    let roots: Vec<u32> =
        own.iter().filter(|at| operations[**at].after.is_empty()).map(|at| place_of[at]).collect();
    for number in [own.len() as u32, roots.len() as u32].into_iter().chain(roots) {
        out.extend(number.to_le_bytes());
    }
    let mut listed = 0u32;
    for (operation, dependents) in own.iter().map(|at| &operations[*at]).zip(&dependents) {
        let number_of = |tag: i64| u32::try_from(tag).unwrap_or(ANY);
        let (kind, peer, size, tag) = match operation.what {
            GoalVerb::Send { to, bytes, tag } => (SEND, to, bytes, number_of(tag)),
            GoalVerb::Receive { from, bytes, tag } => {
                (RECEIVE, from.unwrap_or(ANY), bytes, number_of(tag))
            }
            GoalVerb::Calc { nanos } => (CALC, 0, nanos, 0),
        };
        out.extend((operation.after.len() as u32).to_le_bytes());
        out.push(kind);
        out.extend(peer.to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend(tag.to_le_bytes());
        out.extend([operation.cpu, operation.nic]);
        let count = dependents.len() as u32;
        for number in [count, listed, 0, listed + count] {
            out.extend(number.to_le_bytes());
        }
        listed += count;
    }
    dependents.iter().flatten().for_each(|place| out.extend(place.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::super::{GoalStep, read};
    use super::*;

    const TEXT: &str = "num_ranks 2\nrank 0 {\nl1: calc 100 cpu 2\nl2: send 8b to 1 tag 7 cpu 2 nic 1\nl2 requires l1\n}\n\
                        rank 1 {\na: recv 8b from -1 tag -1\nb: calc 50\nc: calc 5\nb requires a\nc requires b\nc requires a\n}\n";

    #[test]
    fn binary_form_matches_the_text() {
        let file = bytes_of(TEXT).unwrap();
        assert_eq!(file.len(), 8 + 6 + 32 + (8 + 4 + 2 * 39 + 4) + (8 + 4 + 3 * 39 + 12));
        assert!(is_binary(&file) && !is_binary(TEXT.as_bytes()));
        let works = |text: &str| {
            let GoalStep { graph, ranks, .. } = read(text).unwrap();
            let tasks = graph.tasks().iter();
            (ranks, tasks.map(|task| (task.work.clone(), task.after.clone())).collect::<Vec<_>>())
        };
        assert_eq!(works(&text_of(&file).unwrap()), works(TEXT));
    }

    #[test]
    fn damaged_binary_file_error_names_the_byte() {
        let file = bytes_of(TEXT).unwrap();
        for end in 8..file.len() - 1 {
            assert!(matches!(text_of(&file[..end]), Err(GoalError::Binary { .. })), "{end}");
        }
        let mut other = file;
        other[8 + 6 + 32 + 12 + 4] = 9;
        let error = text_of(&other).unwrap_err().to_string();
        assert_eq!(error, "byte 58: not a send, receive or calc");
    }
}
