// SPDX-License-Identifier: Apache-2.0
//! Waits in a profile. Stream waits come from `cuda_sync` events, and host waits come from these events or from calls.

use std::collections::BTreeMap;

use super::super::document::{Category, Event, Events};
use super::{CLOCK, ProfiledOperation};

pub(super) struct HostWait {
    pub(super) thread: u32,
    pub(super) begun: f64,
    pub(super) end: f64,
    pub(super) after: Vec<usize>,
}

pub(super) struct ProfiledWaits {
    /// Awaited operations of other streams. `None` without recorded stream waits.
    pub(super) streams: Option<BTreeMap<usize, Vec<usize>>>,
    pub(super) host: Vec<HostWait>,
}

const STREAM_WAIT: &str = "Stream Wait Event";

pub(super) struct Launches<'e> {
    at: Vec<f64>,
    streams: BTreeMap<u32, Vec<usize>>,
    calls: BTreeMap<u32, &'e Event>,
}

impl<'e> Launches<'e> {
    pub(super) fn of(operations: &[ProfiledOperation<'_>], events: &'e Events) -> Self {
        let calls = events.kept.iter().filter(|event| {
            let name = events.name(event);
            event.category == Category::Runtime
                && ["Event", "Synchronize"].iter().any(|part| name.contains(part))
        });
        let calls = calls.filter_map(|event| Some((event.correlation?, event))).collect();
        let at: Vec<f64> = operations.iter().map(ProfiledOperation::launched).collect();
        let mut streams: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, operation) in operations.iter().enumerate() {
            if let Some(stream) = operation.event.stream {
                streams.entry(stream).or_default().push(place);
            }
        }
        for launches in streams.values_mut() {
            launches.sort_by(|a, b| at[*a].total_cmp(&at[*b]));
        }
        Self { at, streams, calls }
    }

    fn last_before(&self, stream: u32, time: f64) -> Option<usize> {
        let launches = self.streams.get(&stream)?;
        let count = launches.partition_point(|place| self.at[*place] < time);
        launches.get(count.checked_sub(1)?).copied()
    }

    fn first_after(&self, stream: u32, time: f64) -> Option<usize> {
        let launches = self.streams.get(&stream)?;
        launches.get(launches.partition_point(|place| self.at[*place] <= time)).copied()
    }

    fn call(&self, wait: &Event) -> Option<&'e Event> {
        self.calls.get(&wait.correlation?).copied()
    }

    fn recorded(&self, wait: &Event) -> Option<usize> {
        let args = wait.args.as_ref()?;
        let stream = u32::try_from(args.wait_on_stream?).ok()?;
        let record = args.wait_on_record.and_then(|id| self.calls.get(&u32::try_from(id).ok()?));
        self.last_before(stream, record.map_or(wait.ts, |call| call.ts))
    }

    fn host_wait(&self, kind: &str, wait: &Event) -> Option<HostWait> {
        let call = self.call(wait).unwrap_or(wait);
        let (begun, end, thread) = (call.ts, call.end(), call.thread);
        let after: Vec<usize> = match kind {
            "Event Sync" => self.recorded(wait).into_iter().collect(),
            "Stream Sync" => self.last_before(wait.stream?, begun).into_iter().collect(),
            "Context Sync" => self.all_before(begun).collect(),
            _ => return None,
        };
        Some(HostWait { thread, begun, end, after })
    }

    fn all_before(&self, time: f64) -> impl Iterator<Item = usize> + '_ {
        self.streams.keys().filter_map(move |stream| self.last_before(*stream, time))
    }

    /// Assumes that the call waited for operations launched earlier that ended during it.
    fn ended_during(
        &self,
        call: &Event,
        name: &str,
        operations: &[ProfiledOperation<'_>],
    ) -> Option<HostWait> {
        let mut after: Vec<usize> = self.all_before(call.ts).collect();
        after.retain(|place| {
            let end = operations[*place].end;
            end > call.ts && end <= call.end() + CLOCK
        });
        if !name.contains("Device") && !name.contains("Ctx") {
            let last =
                after.into_iter().max_by(|a, b| operations[*a].end.total_cmp(&operations[*b].end));
            after = last.into_iter().collect();
        }
        let is_wait = !after.is_empty();
        is_wait.then_some(HostWait { thread: call.thread, begun: call.ts, end: call.end(), after })
    }
}

impl ProfiledWaits {
    pub(super) fn of(
        launches: &Launches<'_>,
        operations: &[ProfiledOperation<'_>],
        events: &Events,
    ) -> Self {
        let all = events.kept.iter().filter(|event| event.category == Category::Wait);
        let waits: Vec<(&str, &Event)> = all.map(|wait| (events.wait_kind(wait), wait)).collect();
        let mut streams: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let of_streams = waits.iter().filter(|(kind, _)| *kind == STREAM_WAIT);
        let mut has_streams = false;
        for (_, wait) in of_streams {
            has_streams = true;
            let begun = launches.call(wait).map_or(wait.ts, |call| call.ts);
            let next = wait.stream.and_then(|stream| launches.first_after(stream, begun));
            if let (Some(next), Some(before)) = (next, launches.recorded(wait)) {
                streams.entry(next).or_default().push(before);
            }
        }
        // Queries return immediately.
        let blocking = waits.iter().filter(|(_, wait)| {
            launches.call(wait).is_none_or(|call| !events.name(call).contains("Query"))
        });
        let mut host: Vec<HostWait> =
            blocking.filter_map(|(kind, wait)| launches.host_wait(kind, wait)).collect();
        if host.is_empty() {
            let calls = launches.calls.values().map(|call| (*call, events.name(call)));
            let calls = calls.filter(|(_, name)| name.contains("Synchronize"));
            host = calls
                .filter_map(|(call, name)| launches.ended_during(call, name, operations))
                .collect();
        }
        Self { streams: has_streams.then_some(streams), host }
    }
}
