// SPDX-License-Identifier: Apache-2.0
//! What the operations of one rank wait for.
//!
//! Where the profile has waits (`cuda_sync` events, which PyTorch writes with `enable_cuda_sync_events`), they are read: the
//! first operation that the host launched on a stream after a wait depends on the last that it launched on the other
//! stream before the event was recorded; what was launched after the host waited depends on what it waited for. Where it has
//! none, an operation depends on another stream only if its own stream was idle when the other's operation ended.

use std::collections::BTreeMap;

use super::document::{Category, Event};

/// One operation of a rank.
pub(super) struct ProfiledOperation<'e> {
    pub(super) event: &'e Event,
    /// What it runs on, one operation after the other.
    pub(super) stream: String,
}

/// What an operation waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Before {
    /// Operations of its rank, by place.
    pub(super) after: Vec<usize>,
    /// Operations that the host waited for, and microseconds from their end until it began, where nothing else held it up.
    pub(super) host: Option<(Vec<usize>, f64)>,
}

/// The resolution of a profile's clock, in microseconds.
const CLOCK: f64 = 1e-3;

/// What each of `operations`, in the order of their beginnings, waits for; `events` are all of the file.
pub(super) fn order(operations: &[ProfiledOperation<'_>], events: &[Event]) -> Vec<Before> {
    let waits = ProfiledWaits::of(operations, events);
    let begin = operations.first().map_or(0.0, |operation| operation.event.ts);
    // By stream: its last operation that ended, and the last of all.
    let mut ended: BTreeMap<&str, usize> = BTreeMap::new();
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    let end = |operation: &usize| operations[*operation].event.end();
    let mut all = Vec::with_capacity(operations.len());
    for (place, operation) in operations.iter().enumerate() {
        let start = operation.event.ts + CLOCK;
        for (stream, last) in &last {
            if end(last) <= start {
                ended.insert(stream, *last);
            }
        }
        let own = last.insert(&operation.stream, place);
        let before = match &waits {
            Some(waits) => waits.before(place, own, operations, begin),
            None => {
                let idle_since = own.as_ref().map_or(f64::MIN, end);
                let mut after: Vec<usize> = ended
                    .values()
                    .copied()
                    .filter(|other| end(other) > idle_since + CLOCK)
                    .collect();
                after.extend(own);
                let ready = after.iter().map(end).fold(begin, f64::max);
                let late = operation.event.ts - ready;
                match late > CLOCK {
                    true => Before { after: Vec::new(), host: Some((after, late)) },
                    false => Before { after, host: None },
                }
            }
        };
        all.push(before);
    }
    all
}

/// A wait of the host.
struct HostWait {
    /// When it returned.
    end: f64,
    /// What it waited for.
    after: Vec<usize>,
}

/// When and on what the host launched operations.
struct Launches<'e> {
    /// By operation: when.
    at: Vec<f64>,
    /// By stream: its operations in that order.
    streams: BTreeMap<i64, Vec<usize>>,
    /// Calls of the host by their correlation.
    calls: BTreeMap<i64, &'e Event>,
}

impl<'e> Launches<'e> {
    fn of(operations: &[ProfiledOperation<'_>], events: &'e [Event]) -> Self {
        let calls: BTreeMap<i64, &Event> = events
            .iter()
            .filter(|event| event.category == Category::Runtime)
            .filter_map(|event| Some((event.args.correlation?, event)))
            .collect();
        let launch = |operation: &ProfiledOperation<'_>| {
            let call = operation.event.args.correlation.and_then(|id| calls.get(&id));
            call.map_or(operation.event.ts, |call| call.ts)
        };
        let at: Vec<f64> = operations.iter().map(launch).collect();
        let mut streams: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (place, operation) in operations.iter().enumerate() {
            if let Some(stream) = stream_of(operation.event) {
                streams.entry(stream).or_default().push(place);
            }
        }
        for launches in streams.values_mut() {
            launches.sort_by(|a, b| at[*a].total_cmp(&at[*b]));
        }
        Self { at, streams, calls }
    }

    /// The last operation that was launched on a stream before `time`.
    fn last_before(&self, stream: i64, time: f64) -> Option<usize> {
        let launches = self.streams.get(&stream)?;
        let count = launches.partition_point(|place| self.at[*place] < time);
        launches.get(count.checked_sub(1)?).copied()
    }

    /// The first after it.
    fn first_after(&self, stream: i64, time: f64) -> Option<usize> {
        let launches = self.streams.get(&stream)?;
        launches.get(launches.partition_point(|place| self.at[*place] <= time)).copied()
    }

    /// When the call of a wait began and ended.
    fn call(&self, wait: &Event) -> (f64, f64) {
        let call = wait.args.correlation.and_then(|id| self.calls.get(&id).copied());
        call.map_or((wait.ts, wait.end()), |call| (call.ts, call.end()))
    }

    /// The operation after which the event was recorded that `wait` is for.
    fn recorded(&self, wait: &Event) -> Option<usize> {
        let record = wait.args.wait_on_record.and_then(|id| self.calls.get(&id));
        self.last_before(wait.args.wait_on_stream?, record.map_or(wait.ts, |call| call.ts))
    }

    /// What the host waits for; `None` if it does not.
    fn host_wait(&self, wait: &Event) -> Option<HostWait> {
        let (begun, end) = self.call(wait);
        let after: Vec<usize> = match wait.wait_kind() {
            "Event Sync" => self.recorded(wait).into_iter().collect(),
            "Stream Sync" => self.last_before(stream_of(wait)?, begun).into_iter().collect(),
            "Context Sync" => {
                let all = self.streams.keys();
                all.filter_map(|stream| self.last_before(*stream, begun)).collect()
            }
            _ => return None,
        };
        Some(HostWait { end, after })
    }
}

/// What the profile says of waits.
struct ProfiledWaits {
    /// By operation: operations of other streams.
    streams: BTreeMap<usize, Vec<usize>>,
    /// In the order of their ends.
    host: Vec<HostWait>,
    /// By operation: when the host launched it.
    launched: Vec<f64>,
}

impl ProfiledWaits {
    /// `None` if the profile has no waits of streams.
    fn of(operations: &[ProfiledOperation<'_>], events: &[Event]) -> Option<Self> {
        let is_wait = |event: &&Event| event.category == Category::Wait;
        let waits: Vec<&Event> = events.iter().filter(is_wait).collect();
        if !waits.iter().any(|wait| wait.wait_kind() == STREAM_WAIT) {
            return None;
        }
        let launches = Launches::of(operations, events);
        let mut streams: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for wait in waits.iter().filter(|wait| wait.wait_kind() == STREAM_WAIT) {
            let begun = launches.call(wait).0;
            let next = stream_of(wait).and_then(|stream| launches.first_after(stream, begun));
            if let (Some(next), Some(before)) = (next, launches.recorded(wait)) {
                streams.entry(next).or_default().push(before);
            }
        }
        let mut host: Vec<HostWait> =
            waits.iter().filter_map(|wait| launches.host_wait(wait)).collect();
        host.sort_by(|a, b| a.end.total_cmp(&b.end));
        Some(Self { streams, host, launched: launches.at })
    }

    fn before(
        &self,
        place: usize,
        own: Option<usize>,
        operations: &[ProfiledOperation<'_>],
        begin: f64,
    ) -> Before {
        let launched = self.launched[place];
        let waits = self.host.partition_point(|wait| wait.end <= launched);
        let host = waits.checked_sub(1).map(|last| &self.host[last]);
        let mut after: Vec<usize> = own.into_iter().collect();
        after.extend(self.streams.get(&place).into_iter().flatten());
        let host_after: Vec<usize> = host.map_or_else(Vec::new, |wait| wait.after.clone());
        after.extend(&host_after);
        // A cycle cannot be in what happened; clocks that disagree must not make one.
        after.retain(|before| *before < place);
        let ready =
            after.iter().map(|before| operations[*before].event.end()).fold(begin, f64::max);
        let start = operations[place].event.ts;
        let late = start - ready;
        if late <= CLOCK {
            return Before { after, host: None };
        }
        if launched < ready {
            return Before { after: Vec::new(), host: Some((after, late)) };
        }
        // The host was late: it counts from what it last waited for, whatever the device did meanwhile.
        let since = host.map_or(begin, |wait| wait.end).min(start);
        let host_after = host_after.into_iter().filter(|before| *before < place).collect();
        Before { after, host: Some((host_after, start - since)) }
    }
}

const STREAM_WAIT: &str = "Stream Wait Event";

fn stream_of(event: &Event) -> Option<i64> {
    event.args.stream.or_else(|| event.tid.as_i64())
}
