// SPDX-License-Identifier: Apache-2.0
//! Requests over equal replicas with continuous batching: when each has its first token and its last.
//!
//! ```text
//! waiting ──a replica has room──▶ prompt ──▶ a token each decode step ──last one──▶ ended
//! ```
//! A replica takes a request in between two decode steps, works on its prompt while the others wait, and decodes all that it
//! has together. A request goes to the replica with the fewest, and waits in one queue for all, first come first served. Its cache is
//! reserved for all the tokens it will have. Between two changes of a batch all steps are one sum, so a run takes as long as
//! it has requests, and not tokens.

mod costs;
mod prefixes;
mod staged;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub use costs::{ReplicaCosts, StepCosts};
pub use prefixes::{Prefix, PrefixCounts, PrefixSetup, PrefixSharing};
pub use staged::StagedCosts;

use prefixes::PrefixCaches;

/// What is asked of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Request {
    /// Seconds after the start.
    pub arrives: f64,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Tokens of its answer, at least 1.
    pub output: u32,
    /// Tokens of the answer that are there already, with their cache.
    pub done: u32,
    /// The replica that it has to go to; any where `None`.
    pub replica: Option<u32>,
}

impl Request {
    /// Tokens that it holds at its end.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        u64::from(self.prompt) + u64::from(self.output)
    }

    /// Tokens that it has not generated.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.output.saturating_sub(self.done)
    }
}

/// What came of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    /// By request: when it had its first token; not a number where it had none.
    pub first: Vec<f64>,
    /// By request: the replica that took it in last.
    pub replica: Vec<u32>,
    /// By request: when it ended; not a number where it did not.
    pub ended: Vec<f64>,
    /// When the run ended.
    pub seconds: f64,
    /// Tokens generated.
    pub tokens: u64,
    /// Seconds that replicas worked, added up.
    pub busy: f64,
    /// The most cache tokens that a replica had reserved.
    pub most_reserved: u64,
    /// Requests in the pool, waiting or running, over time: an integral in request seconds.
    pub waited: f64,
    /// What was not ended when the run was stopped, with the replica that has its cache.
    pub left: Vec<Request>,
    /// Requests that no replica can hold.
    pub refused: usize,
    /// What came of prefixes that requests share; `None` where they are not looked for.
    pub prefixes: Option<PrefixCounts>,
}

/// Runs `requests`, in order of arrival, on so many replicas until no more than `stop_at` are left.
///
/// # Panics
/// If there are no replicas.
#[must_use]
pub fn serve<C: StepCosts>(
    costs: &C,
    replicas: u32,
    requests: &[Request],
    stop_at: usize,
) -> Served {
    assert!(replicas > 0, "something has to serve");
    let mut pool = Pool::new(costs, replicas, requests);
    pool.run(stop_at, f64::INFINITY);
    pool.end()
}

/// The same of all requests, whose prompts begin with `prefixes`, on replicas that keep these.
///
/// # Panics
/// If there are no replicas, or more requests than prefixes.
#[must_use]
pub fn serve_prefixes<C: StepCosts>(
    costs: &C,
    replicas: u32,
    (requests, prefixes): (&[Request], &[Prefix]),
    setup: PrefixSetup,
) -> Served {
    assert!(replicas > 0 && prefixes.len() >= requests.len(), "something serves, each has one");
    let mut pool = Pool::new(costs, replicas, requests);
    pool.prefixes = Some((PrefixCaches::new(setup, replicas as usize), prefixes));
    pool.run(0, f64::INFINITY);
    pool.end()
}

/// The same until some instant, and the steps that are under way then.
///
/// # Panics
/// If there are no replicas.
#[must_use]
pub fn serve_until<C: StepCosts>(
    costs: &C,
    replicas: u32,
    requests: &[Request],
    until: f64,
) -> Served {
    assert!(replicas > 0, "something has to serve");
    let mut pool = Pool::new(costs, replicas, requests);
    pool.run(0, until);
    pool.end()
}

/// A replica between two changes of its batch.
#[derive(Clone, Debug, Default)]
struct Seat {
    /// By last decode step: who ends there.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Decode steps made, and when the last of them, or the prompt after it, ended.
    step: u64,
    since: f64,
    cached: u64,
    reserved: u64,
    /// Who waits for this one alone.
    own: VecDeque<usize>,
    /// Changes of its batch: an event planned before the last one is none.
    turn: u32,
}

/// An instant that can be put in order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct At(f64);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

struct Pool<'a, C> {
    costs: &'a C,
    requests: &'a [Request],
    seats: Vec<Seat>,
    queue: VecDeque<usize>,
    events: BinaryHeap<Reverse<(At, u32, u32)>>,
    /// By request that runs: the step of its replica after which it was taken.
    taken: Vec<Option<u64>>,
    now: f64,
    inside: usize,
    open: usize,
    prefixes: Option<(PrefixCaches, &'a [Prefix])>,
    served: Served,
}

impl<'a, C: StepCosts> Pool<'a, C> {
    fn new(costs: &'a C, replicas: u32, requests: &'a [Request]) -> Self {
        let none = vec![f64::NAN; requests.len()];
        Self {
            costs,
            requests,
            seats: vec![Seat::default(); replicas as usize],
            queue: VecDeque::new(),
            events: BinaryHeap::new(),
            taken: vec![None; requests.len()],
            now: 0.0,
            inside: 0,
            open: requests.len(),
            prefixes: None,
            served: Served {
                first: none.clone(),
                ended: none,
                replica: vec![0; requests.len()],
                ..Served::default()
            },
        }
    }

    fn run(&mut self, stop_at: usize, until: f64) {
        let mut next = 0;
        while self.open > stop_at {
            let arrival = self.requests.get(next).map(|request| request.arrives);
            let event = self.events.peek().map(|Reverse((at, ..))| at.0);
            let next_at = arrival.into_iter().chain(event).fold(f64::INFINITY, f64::min);
            if next_at > until {
                self.pass(until);
                break;
            }
            match (arrival, event) {
                (Some(arrival), event) if event.is_none_or(|event| arrival <= event) => {
                    // All that arrive together are shared out before anything runs.
                    let until = next;
                    while self.requests.get(next).is_some_and(|one| one.arrives <= arrival) {
                        next += 1;
                    }
                    self.pass(arrival);
                    self.arrive(until..next);
                }
                (_, Some(_)) => {
                    let Some(Reverse((at, seat, turn))) = self.events.pop() else { break };
                    if self.seats[seat as usize].turn == turn {
                        self.pass(at.0);
                        self.batch_ends(seat as usize);
                    }
                }
                _ => break,
            }
        }
    }

    fn pass(&mut self, to: f64) {
        self.served.waited += self.inside as f64 * (to - self.now).max(0.0);
        self.now = self.now.max(to);
    }

    fn arrive(&mut self, new: std::ops::Range<usize>) {
        let mut changed: Vec<usize> = Vec::new();
        for one in new {
            let request = &self.requests[one];
            if request.tokens() > self.costs.longest() {
                self.served.refused += 1;
                self.open -= 1;
                continue;
            }
            self.inside += 1;
            let chosen = request.replica.map(|seat| seat as usize).or_else(|| self.route(one));
            let seat = match chosen {
                Some(seat) => {
                    self.seats[seat].own.push_back(one);
                    Some(seat)
                }
                None => {
                    self.queue.push_back(one);
                    let room = |at: &usize| self.has_room(*at, one);
                    let fewest = |at: &usize| self.seats[*at].ends.len();
                    let free = self.queue.len() == 1;
                    (0..self.seats.len()).filter(|at| free && room(at)).min_by_key(fewest)
                }
            };
            let Some(seat) = seat else { continue };
            if !changed.contains(&seat) {
                changed.push(seat);
                self.finish_step(seat);
            }
            self.admit(seat, 1);
        }
        changed.into_iter().for_each(|seat| self.plan(seat));
    }

    /// The replica that a request waits for because of its prefix.
    fn route(&mut self, one: usize) -> Option<usize> {
        let (caches, prefixes) = self.prefixes.as_mut()?;
        let load = |seat: &Seat| seat.ends.len() + seat.own.len();
        caches.route(prefixes[one], &self.seats.iter().map(load).collect::<Vec<_>>())
    }

    /// The step that is under way ends before anything changes.
    fn finish_step(&mut self, seat: usize) {
        let (now, costs) = (self.now, self.costs);
        let seat = &mut self.seats[seat];
        let batch = seat.ends.len();
        if batch == 0 {
            seat.since = seat.since.max(now);
            return;
        }
        let seconds = now - seat.since;
        let steps = if seconds > 0.0 { costs.whole_steps(batch, seat.cached, seconds) } else { 0 };
        let took = costs.steps_seconds(steps, batch, seat.cached);
        let steps = if seat.since + took < now { steps + 1 } else { steps };
        self.served.busy += seat.advance(costs, steps);
    }

    fn has_room(&self, seat: usize, one: usize) -> bool {
        let seat = &self.seats[seat];
        seat.ends.len() < self.costs.most()
            && seat.reserved + self.requests[one].tokens() <= self.costs.cache_tokens()
    }

    /// Takes in up to so many of those that wait, as long as there is room.
    fn admit(&mut self, seat: usize, most: usize) {
        for _ in 0..most {
            let own = self.seats[seat].own.front().copied();
            let Some(one) = own.or_else(|| self.queue.front().copied()) else { return };
            if !self.has_room(seat, one) {
                return;
            }
            match own {
                Some(_) => self.seats[seat].own.pop_front(),
                None => self.queue.pop_front(),
            };
            let request = &self.requests[one];
            let prompt = self.work_on_prompt(seat, one);
            let here = &mut self.seats[seat];
            here.since += prompt;
            self.served.busy += prompt;
            if request.done == 0 {
                self.served.first[one] = here.since;
                self.served.tokens += 1;
            }
            // A forward pass over the prompt gives the first token.
            let done = request.done.max(1);
            here.ends.push(Reverse((here.step + u64::from(request.output - done), one)));
            here.cached += u64::from(request.prompt) + u64::from(done);
            here.reserved += request.tokens();
            self.served.most_reserved = self.served.most_reserved.max(here.reserved);
            self.taken[one] = Some(here.step);
            self.served.replica[one] = seat as u32;
        }
    }

    /// Seconds until a request that a replica takes in can decode.
    fn work_on_prompt(&mut self, seat: usize, one: usize) -> f64 {
        let request = &self.requests[one];
        if request.done > 0 {
            return 0.0;
        }
        let Some((caches, prefixes)) = &mut self.prefixes else {
            return self.costs.prompt_seconds(request.prompt, 0);
        };
        let begins = self.seats[seat].since;
        let (found, there) = caches.take(seat, prefixes[one], [self.now, begins]);
        caches.counts.prefilled[seat] += u64::from(request.prompt - found);
        let waits = (there - begins).max(0.0);
        let seconds = waits + self.costs.prompt_seconds(request.prompt, found);
        caches.keep(seat, prefixes[one], found, begins + seconds);
        seconds
    }

    /// The next request of a replica ends.
    fn batch_ends(&mut self, seat: usize) {
        let costs = self.costs;
        let here = &mut self.seats[seat];
        let Some(Reverse((last, _))) = here.ends.peek().copied() else { return };
        let steps = last - here.step;
        self.served.busy += here.advance(costs, steps);
        self.let_go(seat);
        self.admit(seat, usize::MAX);
        self.plan(seat);
    }

    /// Those that have all their tokens leave.
    fn let_go(&mut self, seat: usize) {
        while let Some(Reverse((at, one))) = self.seats[seat].ends.peek().copied() {
            if at > self.seats[seat].step {
                break;
            }
            let request = &self.requests[one];
            let here = &mut self.seats[seat];
            here.ends.pop();
            here.cached -= request.tokens();
            here.reserved -= request.tokens();
            self.served.ended[one] = here.since;
            self.served.tokens += u64::from(request.output - request.done.max(1));
            self.served.seconds = self.served.seconds.max(here.since);
            self.taken[one] = None;
            self.inside -= 1;
            self.open -= 1;
        }
    }

    fn plan(&mut self, seat: usize) {
        let here = &mut self.seats[seat];
        here.turn += 1;
        let Some(Reverse((last, _))) = here.ends.peek() else { return };
        let took = self.costs.steps_seconds(last - here.step, here.ends.len(), here.cached);
        self.events.push(Reverse((At(here.since + took), seat as u32, here.turn)));
    }

    /// What is left, as it is at the end of the step that is under way on each replica.
    fn end(mut self) -> Served {
        if self.open > 0 {
            let mut end = self.now;
            for seat in 0..self.seats.len() {
                self.finish_step(seat);
                if !self.seats[seat].ends.is_empty() {
                    end = end.max(self.seats[seat].since);
                }
                self.let_go(seat);
            }
            for (one, request) in self.requests.iter().enumerate() {
                let is_refused = request.tokens() > self.costs.longest();
                if self.served.ended[one].is_finite() || is_refused {
                    continue;
                }
                let seat = self.served.replica[one];
                let (done, replica) = match self.taken[one] {
                    Some(step) => {
                        let made = self.seats[seat as usize].step - step;
                        self.served.tokens += made;
                        (request.done.max(1) + made as u32, Some(seat))
                    }
                    None => (request.done, request.replica),
                };
                self.served.left.push(Request { arrives: 0.0, done, replica, ..*request });
            }
            self.served.seconds = end;
        }
        self.served.prefixes = self.prefixes.map(|(caches, _)| caches.counts);
        self.served
    }
}

impl Seat {
    /// Makes so many steps; how long they took.
    fn advance(&mut self, costs: &impl StepCosts, steps: u64) -> f64 {
        let batch = self.ends.len();
        let took = costs.steps_seconds(steps, batch, self.cached);
        self.step += steps;
        self.since += took;
        self.cached += steps * batch as u64;
        took
    }
}

#[cfg(test)]
mod tests;
