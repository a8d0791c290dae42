// SPDX-License-Identifier: Apache-2.0
//! Simulates continuous batching over identical replicas.
//!
//! ```text
//! waiting ──a replica has room──▶ prompt ──▶ a token each decode step ──last one──▶ ended
//! ```
//! Between decode steps, a replica admits requests from a shared FIFO queue and prefills their prompts, up to a number
//! of tokens, while running requests wait. It then decodes the whole batch together. Requests go to the replica with
//! the smallest batch, and their cache is reserved up to their final length. Decode steps between two batch
//! changes are summed in closed form, so the run time depends on the number of requests rather than tokens.

mod costs;
mod staged;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub use costs::{ReplicaCosts, StepCosts};
pub use staged::StagedCosts;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Request {
    pub arrives: f64,
    pub prompt: u32,
    /// At least 1.
    pub output: u32,
    /// Answer tokens already in the cache.
    pub done: u32,
    /// The replica that must serve it, if any.
    pub replica: Option<u32>,
}

impl Request {
    pub fn tokens(&self) -> u64 {
        u64::from(self.prompt) + u64::from(self.output)
    }

    pub fn left(&self) -> u32 {
        self.output.saturating_sub(self.done)
    }
}

/// Times are seconds after the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    pub arrived: Vec<f64>,
    /// NaN without a first token.
    pub first: Vec<f64>,
    pub replica: Vec<u32>,
    /// NaN for requests that did not end.
    pub ended: Vec<f64>,
    pub seconds: f64,
    pub tokens: u64,
    pub busy: f64,
    pub most_reserved: u64,
    /// Integral over time of the number of waiting or running requests, in request-seconds.
    pub waited: f64,
    /// Requests still in the pool at the end, with the replica that holds their cache.
    pub left: Vec<Request>,
    pub refused: usize,
}

/// `requests` must be sorted by arrival. Stops when at most `stop_at` of them remain.
pub fn serve<C: StepCosts>(
    costs: &C,
    replicas: u32,
    requests: &[Request],
    stop_at: usize,
) -> Served {
    let mut pool = Pool::new(costs, replicas, requests);
    pool.run(stop_at, f64::INFINITY);
    pool.end()
}

/// Serves `requests` in a closed loop: `concurrency` of them at the start, and the next whenever one ends. Their times of
/// arrival are ignored.
pub fn serve_closed<C: StepCosts>(
    costs: &C,
    replicas: u32,
    requests: &[Request],
    concurrency: u32,
) -> Served {
    let mut pool = Pool::new(costs, replicas, requests);
    pool.concurrency = Some(concurrency as usize);
    pool.run(0, f64::INFINITY);
    pool.end()
}

/// Like [`serve`], but stops at `until` seconds and finishes the decode steps in progress.
pub fn serve_until<C: StepCosts>(
    costs: &C,
    replicas: u32,
    requests: &[Request],
    until: f64,
) -> Served {
    let mut pool = Pool::new(costs, replicas, requests);
    pool.run(0, until);
    pool.end()
}

#[derive(Clone, Debug, Default)]
struct Seat {
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Completed decode steps. `since` is the end of the last one, or of the following prefill.
    step: u64,
    since: f64,
    cached: u64,
    reserved: u64,
    prompted: u64,
    own: VecDeque<usize>,
    /// Decode step after which requests may change.
    planned: u64,
    /// Batch generation. Events of older generations are ignored.
    turn: u32,
}

struct Pool<'a, C> {
    costs: &'a C,
    requests: &'a [Request],
    concurrency: Option<usize>,
    ends: Vec<f64>,
    seats: Vec<Seat>,
    queue: VecDeque<usize>,
    /// By the bits of their times, which have the order of the times because none is negative.
    events: BinaryHeap<Reverse<(u64, u32, u32)>>,
    taken: Vec<Option<u64>>,
    now: f64,
    inside: usize,
    open: usize,
    served: Served,
}

impl<'a, C: StepCosts> Pool<'a, C> {
    fn new(costs: &'a C, replicas: u32, requests: &'a [Request]) -> Self {
        assert!(replicas > 0, "at least one replica is required");
        let none = vec![f64::NAN; requests.len()];
        Self {
            costs,
            requests,
            concurrency: None,
            ends: Vec::new(),
            seats: vec![Seat::default(); replicas as usize],
            queue: VecDeque::new(),
            events: BinaryHeap::new(),
            taken: vec![None; requests.len()],
            now: 0.0,
            inside: 0,
            open: requests.len(),
            served: Served {
                arrived: none.clone(),
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
            let arrival = self.arrival(next);
            let event = self.events.peek().map(|Reverse((at, ..))| f64::from_bits(*at));
            let next_at = arrival.into_iter().chain(event).fold(f64::INFINITY, f64::min);
            if next_at > until {
                self.pass(until);
                break;
            }
            match (arrival, event) {
                (Some(arrival), event) if event.is_none_or(|event| arrival <= event) => {
                    let until = next;
                    while self.arrival(next).is_some_and(|at| at <= arrival) {
                        self.served.arrived[next] = arrival;
                        next += 1;
                    }
                    self.pass(arrival);
                    self.arrive(until..next);
                }
                (_, Some(_)) => {
                    let Some(Reverse((at, seat, turn))) = self.events.pop() else { break };
                    if self.seats[seat as usize].turn == turn {
                        self.pass(f64::from_bits(at));
                        self.batch_ends(seat as usize);
                    }
                }
                _ => break,
            }
        }
    }

    fn arrival(&self, next: usize) -> Option<f64> {
        let request = self.requests.get(next)?;
        match self.concurrency {
            None => Some(request.arrives),
            Some(most) if next < most => Some(0.0),
            Some(most) => self.ends.get(next - most).copied(),
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
                self.ends.push(self.now);
                self.open -= 1;
                continue;
            }
            self.inside += 1;
            let chosen = request.replica.map(|seat| seat as usize);
            let seat = match chosen {
                Some(seat) => {
                    self.seats[seat].own.push_back(one);
                    Some(seat)
                }
                None => {
                    self.queue.push_back(one);
                    let is_next = self.queue.len() == 1;
                    (0..self.seats.len())
                        .filter(|at| {
                            is_next && self.has_room(*at, one) && self.may_prefill(*at, one)
                        })
                        .min_by_key(|at| self.seats[*at].ends.len())
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
        let (seat, request) = (&self.seats[seat], &self.requests[one]);
        seat.ends.len() < self.costs.most()
            && seat.reserved + request.tokens() <= self.costs.cache_tokens()
    }

    fn may_prefill(&self, seat: usize, one: usize) -> bool {
        let prompted = self.seats[seat].prompted;
        let request = &self.requests[one];
        let prompt = if request.done == 0 { u64::from(request.prompt) } else { 0 };
        prompted == 0 || prompted + prompt <= self.costs.prompt_tokens()
    }

    fn front(&self, seat: usize) -> Option<usize> {
        self.seats[seat].own.front().or_else(|| self.queue.front()).copied()
    }

    fn admit(&mut self, seat: usize, most: usize) {
        for _ in 0..most {
            let Some(one) = self.front(seat) else { return };
            if !self.has_room(seat, one) || !self.may_prefill(seat, one) {
                return;
            }
            if self.seats[seat].own.pop_front().is_none() {
                self.queue.pop_front();
            }
            let request = &self.requests[one];
            let is_new = request.done == 0;
            let prompt = if is_new { self.costs.prompt_seconds(request.prompt) } else { 0.0 };
            let here = &mut self.seats[seat];
            here.since += prompt;
            here.prompted += if is_new { u64::from(request.prompt) } else { 0 };
            self.served.busy += prompt;
            if is_new {
                self.served.first[one] = here.since;
                self.served.tokens += 1;
            }
            // Prefill yields the first token.
            let done = request.done.max(1);
            here.ends.push(Reverse((here.step + u64::from(request.output - done), one)));
            here.cached += u64::from(request.prompt) + u64::from(done);
            here.reserved += request.tokens();
            self.served.most_reserved = self.served.most_reserved.max(here.reserved);
            self.taken[one] = Some(here.step);
            self.served.replica[one] = seat as u32;
        }
    }

    fn batch_ends(&mut self, seat: usize) {
        let costs = self.costs;
        let here = &mut self.seats[seat];
        let steps = here.planned - here.step;
        self.served.busy += here.advance(costs, steps);
        here.prompted = 0;
        self.let_go(seat);
        self.admit(seat, usize::MAX);
        self.plan(seat);
    }

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
            self.ends.push(here.since);
            self.served.tokens += u64::from(request.output - request.done.max(1));
            self.served.seconds = self.served.seconds.max(here.since);
            self.taken[one] = None;
            self.inside -= 1;
            self.open -= 1;
        }
    }

    fn plan(&mut self, seat: usize) {
        let waits = self.front(seat).is_some_and(|one| self.has_room(seat, one));
        let here = &mut self.seats[seat];
        here.turn += 1;
        let Some(Reverse((last, _))) = here.ends.peek() else { return };
        here.planned = if waits { (here.step + 1).min(*last) } else { *last };
        let steps = here.planned - here.step;
        let took = self.costs.steps_seconds(steps, here.ends.len(), here.cached);
        self.events.push(Reverse(((here.since + took).to_bits(), seat as u32, here.turn)));
    }

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
        self.served
    }
}

impl Seat {
    fn advance(&mut self, costs: &impl StepCosts, steps: u64) -> f64 {
        let batch = self.ends.len();
        let took = costs.steps_seconds(steps, batch, self.cached);
        if steps > 0 {
            self.prompted = 0;
        }
        self.step += steps;
        self.since += took;
        self.cached += steps * batch as u64;
        took
    }
}

#[cfg(test)]
mod tests;
