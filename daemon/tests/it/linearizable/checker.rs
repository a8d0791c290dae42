// SPDX-License-Identifier: Apache-2.0
//! Searches for an order of all requests that explains every response, with each request placed
//! between its transmission and its response. The algorithm is Wing and Gong's search with Lowe's
//! memoization, over a short specification.
//!
//! The checker uses only the clients' messages and not the daemon's state.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    /// A change of circuits, with the request id, a digest that distinguishes requests, the
    /// expected version, and whether it requires a confirmation.
    Apply {
        id: u32,
        digest: u32,
        expected: Option<u64>,
        confirm: bool,
        got: Got,
    },
    Confirm {
        id: u32,
        txn: u32,
        got: Got,
    },
    Rollback {
        id: u32,
        txn: u32,
        got: Got,
    },
    /// A status with its version, the open change, and the change that awaits confirmation.
    Read {
        version: u64,
        open: Option<u32>,
        pending: Option<u32>,
    },
    End {
        txn: u32,
        committed: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Accepted(u32),
    Done,
    /// Another change was made first, or the request is not possible.
    Refused,
    /// The connection was lost, so the request may be executed at any later time or never.
    Nothing,
}

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub sent: u64,
    pub answered: u64,
    pub did: Did,
}

impl Line {
    fn may_be_missing(&self) -> bool {
        self.answered == u64::MAX
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Stays,
    WaitsForConfirm,
    Undoes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Model {
    pub version: u64,
    open: Option<(u32, Kind)>,
    pending: Option<u32>,
    pub last: u32,
    requests: BTreeMap<u32, (u32, Option<u32>)>,
}

impl Model {
    fn after(&self, did: &Did) -> Option<Self> {
        let mut next = self.clone();
        let fits = match *did {
            Did::Apply { id, digest, expected, confirm, got } => {
                let kind = if confirm { Kind::WaitsForConfirm } else { Kind::Stays };
                let free = self.open.is_none()
                    && self.pending.is_none()
                    && expected.is_none_or(|version| version == self.version);
                next.asked(id, digest, kind, free, got)
            }
            Did::Rollback { id, txn, got } => {
                let digest = u32::MAX - txn;
                let known = self.requests.contains_key(&id);
                // The specification does not cover other reasons for a refusal.
                let refused = got == Got::Refused && !known;
                let free = self.open.is_none() && txn <= self.last;
                refused || next.asked(id, digest, Kind::Undoes, free, got)
            }
            Did::Confirm { id, txn, got } => {
                let digest = u32::MAX / 2 - txn;
                let undoes = matches!(self.open, Some((_, Kind::Undoes)));
                let waits = self.pending == Some(txn) && !undoes;
                match (self.requests.get(&id), got) {
                    (Some((known, _)), Got::Done) => *known == digest,
                    (Some((known, _)), Got::Refused) => *known != digest,
                    (None, Got::Refused) => !waits,
                    (None, Got::Done | Got::Nothing) => {
                        next.pending = None;
                        next.requests.insert(id, (digest, None));
                        waits
                    }
                    _ => false,
                }
            }
            Did::Read { version, open, pending } => {
                let undoes = matches!(self.open, Some((_, Kind::Undoes)));
                version == self.version
                    && open == self.open.map(|(txn, _)| txn)
                    && pending == self.pending.filter(|_| !undoes)
            }
            Did::End { txn, committed } => match self.open {
                Some((open, kind)) if open == txn => {
                    next.open = None;
                    if committed {
                        next.version += 1;
                        next.pending = (kind == Kind::WaitsForConfirm).then_some(txn);
                    }
                    true
                }
                _ => false,
            },
        };
        fits.then_some(next)
    }

    /// Applies a request for a change, which may start if the model is `free`.
    fn asked(&mut self, id: u32, digest: u32, kind: Kind, free: bool, got: Got) -> bool {
        match (self.requests.get(&id), got) {
            (Some((known, txn)), Got::Accepted(number)) => *known == digest && *txn == Some(number),
            (Some((known, _)), Got::Refused) => *known != digest,
            (None, Got::Refused) => !free,
            (None, Got::Accepted(_) | Got::Nothing) => {
                self.last += 1;
                self.open = Some((self.last, kind));
                self.requests.insert(id, (digest, Some(self.last)));
                free && (got == Got::Nothing || got == Got::Accepted(self.last))
            }
            _ => false,
        }
    }
}

/// Returns the number of search steps until an order was found.
///
/// # Errors
/// Returns the longest order found and the line that cannot follow it.
pub(crate) fn check(start: &Model, history: &[Line], steps_max: u64) -> Result<u64, String> {
    let mut lines = history.to_vec();
    lines.sort_by_key(|line| line.sent);
    let must = lines.iter().filter(|line| !line.may_be_missing()).count();
    let (mut seen, mut steps, mut best) = (BTreeSet::new(), 0, (0, String::new()));
    let mut work = vec![(vec![0_u64; lines.len().div_ceil(64)], start.clone(), 0)];
    while let Some((taken, model, count)) = work.pop() {
        if count == must {
            return Ok(steps);
        }
        steps += 1;
        if steps > steps_max {
            return Err(format!("not decided within {steps_max} steps"));
        }
        let is_taken = |at: usize| taken[at / 64] >> (at % 64) & 1 == 1;
        let left = || lines.iter().enumerate().filter(|(at, _)| !is_taken(*at));
        let first = left().map(|(_, line)| line.answered).min().unwrap_or(u64::MAX);
        if count >= best.0 {
            let next: Vec<&Line> = left().map(|(_, line)| line).take(8).collect();
            best =
                (count, format!("{count} of {must} explained, {model:?}, then none of {next:#?}"));
        }
        for (at, line) in left().take_while(|(_, line)| line.sent <= first) {
            if let Some(next) = model.after(&line.did) {
                let mut taken = taken.clone();
                taken[at / 64] |= 1 << (at % 64);
                if seen.insert((taken.clone(), next.clone())) {
                    work.push((taken, next, count + usize::from(!line.may_be_missing())));
                }
            }
        }
    }
    Err(best.1)
}
