// SPDX-License-Identifier: Apache-2.0
//! Cases, verdicts and the runner, which all suites share.

use std::collections::BTreeMap;
use std::time::Duration;

use super::link::ExchangeError;
use super::target::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The id, with `_` or `-`.
    name: &'static str,
    pub clause: &'static str,
    pub says: &'static str,
}

pub const fn case(name: &'static str, clause: &'static str, says: &'static str) -> Case {
    Case { name, clause, says }
}

impl Case {
    pub fn id(&self) -> String {
        self.name.replace('_', "-")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseVerdict {
    Passed,
    Misbehaves(String),
    Fault(String),
    NotTested(String),
}

/// An [`ExchangeError`] is also a finding, because a missing reply violates the rule.
pub type CaseResult = Result<CaseVerdict, ExchangeError>;

pub fn found(what: impl Into<String>) -> CaseResult {
    Ok(CaseVerdict::Misbehaves(what.into()))
}

/// Ends a case early, because a step on the way to its test failed.
pub fn misbehaves(what: impl Into<String>) -> ExchangeError {
    ExchangeError::Judged(CaseVerdict::Misbehaves(what.into()))
}

pub fn holds(is_so: bool, what: impl FnOnce() -> String) -> CaseResult {
    Ok(if is_so { CaseVerdict::Passed } else { CaseVerdict::Misbehaves(what()) })
}

#[derive(Clone, Debug)]
pub struct SuiteResults {
    pub cases: Vec<(Case, CaseVerdict)>,
    pub set_ups: Vec<Duration>,
    /// Behaviour of the device where its protocol leaves a choice.
    pub observations: BTreeMap<&'static str, String>,
    /// Rules that a client cannot test, with the reasons.
    pub untestable: Vec<(&'static str, &'static str)>,
    pub is_interrupted: bool,
    state: u64,
}

impl SuiteResults {
    pub const fn new(seed: u64) -> Self {
        Self {
            cases: Vec::new(),
            set_ups: Vec::new(),
            observations: BTreeMap::new(),
            untestable: Vec::new(),
            is_interrupted: false,
            state: seed,
        }
    }

    /// Draws from a SplitMix64 generator.
    pub const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let at = usize::try_from(self.draw() % (last as u64 + 1)).unwrap_or(0);
            items.swap(at, last);
        }
    }

    /// Returns `false` if the device can no longer be queried.
    pub fn note(&mut self, case: Case, judged: CaseResult) -> bool {
        let (verdict, goes_on) = match judged {
            Ok(verdict) => (verdict, true),
            Err(ExchangeError::Interrupted) => {
                self.is_interrupted = true;
                (CaseVerdict::NotTested("interrupted".into()), false)
            }
            Err(ExchangeError::Judged(verdict)) => (verdict, true),
            Err(ExchangeError::Broken(what)) => (CaseVerdict::Fault(what), true),
            Err(ExchangeError::Lost(why)) => (CaseVerdict::Misbehaves(why), false),
            Err(trouble) => (CaseVerdict::Misbehaves(trouble.to_string()), true),
        };
        self.cases.push((case, verdict));
        goes_on
    }

    pub fn skip(&mut self, case: Case, why: impl Into<String>) {
        self.cases.push((case, CaseVerdict::NotTested(why.into())));
    }
}

pub type Pairs = Vec<(u32, u32)>;

/// Inputs and outputs in `--may-move`.
pub type FreePorts<P> = (Vec<P>, Vec<P>);

/// Returns the movable ports in random order, or why ports cannot be moved. `sort` adds a port to
/// its side.
pub fn free_ports<P>(
    plan: &Options,
    results: &mut SuiteResults,
    sort: impl Fn(&str, &mut FreePorts<P>) -> Result<(), String>,
) -> Result<FreePorts<P>, String> {
    if plan.may_move.is_empty() {
        return Err(
            "read-only; to permit changes, use --may-move with two inputs and two outputs".into()
        );
    }
    let mut free = (Vec::new(), Vec::new());
    plan.may_move.iter().try_for_each(|port| sort(port, &mut free))?;
    results.shuffle(&mut free.0);
    results.shuffle(&mut free.1);
    let (inputs, outputs) = (free.0.len(), free.1.len());
    if inputs < 2 || outputs < 2 {
        return Err(format!(
            "--may-move lists {inputs} inputs and {outputs} outputs: choose at least two of each"
        ));
    }
    Ok(free)
}

pub type Tested<S> = (Case, fn(&mut S) -> CaseResult);

pub const fn tested_as<S>(
    name: &'static str,
    clause: &'static str,
    says: &'static str,
    test: fn(&mut S) -> CaseResult,
) -> Tested<S> {
    (case(name, clause, says), test)
}

/// A case whose id is the name of its function.
macro_rules! tested {
    ($test:ident, $clause:expr, $says:expr) => {
        $crate::conform::case::tested_as(stringify!($test), $clause, $says, $test)
    };
}
pub(crate) use tested;

pub trait SuiteSession {
    fn reconnect(&mut self) -> Result<(), ExchangeError>;

    fn clear(&mut self) -> Result<(), ExchangeError>;
}

pub fn run_all<S: SuiteSession>(session: &mut S, cases: &[Tested<S>], results: &mut SuiteResults) {
    let mut unreachable: Option<String> = None;
    for (case, test) in cases {
        if results.is_interrupted {
            results.skip(*case, "interrupted");
            continue;
        }
        if let Some(why) = &unreachable {
            results.skip(*case, format!("the device was lost: {why}"));
            continue;
        }
        let judged = test(session);
        let mut goes_on = results.note(*case, judged);
        if !goes_on && !results.is_interrupted {
            goes_on = match session.reconnect() {
                Ok(()) => true,
                Err(trouble) => {
                    unreachable = Some(trouble.to_string());
                    false
                }
            };
        }
        if goes_on && let Err(ExchangeError::Interrupted) = session.clear() {
            results.is_interrupted = true;
        }
    }
}

pub const PUT_BACK: Case =
    case("put-back", "conform", "all circuits are the same as before the run");

pub fn percentile(spans: &[Duration], hundredths: usize) -> Option<Duration> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}
