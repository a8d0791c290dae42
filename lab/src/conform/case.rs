// SPDX-License-Identifier: Apache-2.0
//! What every suite shares: a promise to test, what came of it, and the order of things.

use std::time::Duration;

use super::link::ExchangeError;
use super::target::Options;

/// One promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name.
    pub id: &'static str,
    /// Where the promise is made.
    pub clause: &'static str,
    /// The promise, in one line.
    pub says: &'static str,
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseVerdict {
    /// The promise was kept.
    Passed,
    /// The device does not do what is promised.
    Misbehaves(String),
    /// The device says itself that a part of it is broken.
    Fault(String),
    /// It could not be tested.
    NotTested(String),
}

/// What a case says at its end. `?` on [`ExchangeError`] is a finding: no answer is an answer, too.
pub type CaseResult = Result<CaseVerdict, ExchangeError>;

/// A misbehaviour, for the end of a case.
///
/// # Errors
/// Never: the result is what a case returns.
pub fn found(what: impl Into<String>) -> CaseResult {
    Ok(CaseVerdict::Misbehaves(what.into()))
}

/// Passed, or misbehaves as `what` says.
///
/// # Errors
/// Never: the result is what a case returns.
pub fn holds(is_so: bool, what: impl FnOnce() -> String) -> CaseResult {
    Ok(if is_so { CaseVerdict::Passed } else { CaseVerdict::Misbehaves(what()) })
}

/// What a suite may do.
#[derive(Clone, Copy, Debug)]
pub struct SuiteScope<'a> {
    /// Ports whose light may be moved.
    pub ports: &'a [String],
    /// Circuits that are made to measure set-up times.
    pub rounds: u32,
    /// Everything that was asked for.
    pub options: &'a Options,
}

/// What has been found so far.
#[derive(Clone, Debug)]
pub struct SuiteResults {
    /// In the order of testing.
    pub cases: Vec<(Case, CaseVerdict)>,
    /// From a request until the device says that light passes.
    pub set_ups: Vec<Duration>,
    /// What cannot be tested from outside, and why.
    pub untestable: Vec<(&'static str, &'static str)>,
    /// An operator ended it.
    pub is_interrupted: bool,
    state: u64,
}

impl SuiteResults {
    /// Nothing yet; draws follow `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            cases: Vec::new(),
            set_ups: Vec::new(),
            untestable: Vec::new(),
            is_interrupted: false,
            state: seed,
        }
    }

    /// The next draw (SplitMix64).
    pub const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In an order of the seed.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let at = usize::try_from(self.draw() % (last as u64 + 1)).unwrap_or(0);
            items.swap(at, last);
        }
    }

    /// Notes what came of a case. Says whether the device can be asked more.
    pub fn note(&mut self, case: Case, judged: CaseResult) -> bool {
        let (verdict, goes_on) = match judged {
            Ok(verdict) => (verdict, true),
            Err(ExchangeError::Interrupted) => {
                self.is_interrupted = true;
                (CaseVerdict::NotTested("interrupted".into()), false)
            }
            Err(ExchangeError::Broken(what)) => (CaseVerdict::Fault(what), true),
            Err(ExchangeError::Lost(why)) => (CaseVerdict::Misbehaves(why), false),
            Err(trouble) => (CaseVerdict::Misbehaves(trouble.to_string()), true),
        };
        self.cases.push((case, verdict));
        goes_on
    }

    /// Notes a case that could not be tested.
    pub fn skip(&mut self, case: Case, why: impl Into<String>) {
        self.cases.push((case, CaseVerdict::NotTested(why.into())));
    }
}

/// A case and how it is tested with a session of type `S`.
pub type Tested<S> = (Case, fn(&mut S) -> CaseResult);

/// What a suite can do with its device between cases.
pub trait SuiteSession {
    /// Connects again after the connection was lost.
    ///
    /// # Errors
    /// It cannot be reached.
    fn reconnect(&mut self) -> Result<(), ExchangeError>;

    /// Takes away what a case has made.
    ///
    /// # Errors
    /// It could not.
    fn clear(&mut self) -> Result<(), ExchangeError>;
}

/// Runs cases one after the other. After each of those that move light, what it made is taken away.
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

/// The end of every suite that has moved light.
pub const PUT_BACK: Case = Case {
    id: "put-back",
    clause: "conform",
    says: "after the suite every circuit is as it was before",
};

/// A number of the sorted `spans` that `share` (0 to 1) of them do not exceed; `None` without any.
#[must_use]
pub fn percentile(spans: &[Duration], hundredths: usize) -> Option<Duration> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}
