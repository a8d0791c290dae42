// SPDX-License-Identifier: Apache-2.0
//! Subscriptions. Subscribers with the same path and encoding share a feed.

use std::collections::BTreeMap;

use lightloom_gnmi::Status;
use lightloom_gnmi::message::{
    Encoding, ListMode, Notification, Path, SubscribeAnswer, SubscribeResponse, Subscription,
    SubscriptionList, SubscriptionMode, TypedValue, Update,
};
use lightloom_gnmi::path::{joined, text};
use lightloom_units::{Picoseconds, SimTime};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::state::State;
use super::tree::flat;
use crate::misbehave::Misbehaviour;

pub(crate) const SUBSCRIBERS_MAX: usize = 256;
/// The subscription ends if more messages than this are unread.
pub(crate) const UNREAD_MAX: usize = 1_024;
const SAMPLE_LEAST: Picoseconds = Picoseconds::from_millis(100);
const SAMPLE_USUAL: Picoseconds = Picoseconds::from_millis(1_000);

pub(crate) type FeedSender = mpsc::Sender<Result<SubscribeResponse, Status>>;

type Leaves = BTreeMap<String, (Path, TypedValue)>;

#[derive(Debug)]
struct Feed {
    path: Path,
    encoding: Encoding,
    last: Leaves,
    on_change: Vec<FeedSender>,
    samples: Vec<(SimTime, Picoseconds, FeedSender)>,
}

#[derive(Debug, Default)]
pub(crate) struct Feeds {
    feeds: Vec<Feed>,
    pub(crate) are_stale: bool,
}

fn leaves(state: &State, path: &Path, encoding: Encoding) -> Result<Leaves, Status> {
    let tree = state.tree(path);
    let found = match tree.select(path) {
        Ok(found) => found,
        // Only paths outside the model are errors.
        Err(status) if status.code() == lightloom_gnmi::Code::NotFound => Vec::new(),
        Err(status) => return Err(status),
    };
    let all = found.iter().flat_map(|(at, node)| flat(at, node, encoding));
    Ok(all.map(|(key, path, value)| (key, (path, value))).collect())
}

fn whole(state: &State, leaves: &Leaves) -> SubscribeResponse {
    let update = leaves.values().map(|(path, value)| update(path, value)).collect();
    let timestamp = state.spec.unix_nanos(state.now);
    let notification = Notification { timestamp, update, ..Notification::default() };
    SubscribeResponse { response: Some(SubscribeAnswer::Update(notification)) }
}

fn update(path: &Path, value: &TypedValue) -> Update {
    Update { path: Some(path.clone()), val: Some(value.clone()), duplicates: 0 }
}

pub(crate) fn snapshot(
    state: &State,
    list: &SubscriptionList,
) -> Result<Vec<SubscribeResponse>, Status> {
    let mut sent = Vec::new();
    for subscription in &list.subscription {
        let path = joined(list.prefix.as_ref(), subscription.path.as_ref());
        let leaves = leaves(state, &path, encoding_of(list)?)?;
        if !leaves.is_empty() {
            sent.push(whole(state, &leaves));
        }
    }
    sent.push(SubscribeResponse { response: Some(SubscribeAnswer::Sync(true)) });
    Ok(sent)
}

pub(crate) fn encoding_of(list: &SubscriptionList) -> Result<Encoding, Status> {
    super::target::encoding(list.encoding)
}

fn period(subscription: &Subscription) -> Result<Option<Picoseconds>, Status> {
    let mode = SubscriptionMode::try_from(subscription.mode)
        .map_err(|_| Status::invalid_argument("the mode of a subscription must be 0, 1 or 2"))?;
    if subscription.suppress_redundant {
        let why = "suppress_redundant is not supported: leave it out, or subscribe on change";
        return Err(Status::invalid_argument(why));
    }
    let nanos = match mode {
        SubscriptionMode::Sample if subscription.sample_interval == 0 => {
            return Ok(Some(SAMPLE_USUAL));
        }
        SubscriptionMode::Sample => subscription.sample_interval,
        SubscriptionMode::OnChange | SubscriptionMode::TargetDefined => {
            subscription.heartbeat_interval
        }
    };
    if nanos == 0 {
        return Ok(None);
    }
    let span = Picoseconds(nanos.saturating_mul(1_000));
    if span < SAMPLE_LEAST {
        let why = format!("the interval {span} is too short: the minimum is {SAMPLE_LEAST}");
        return Err(Status::invalid_argument(why));
    }
    Ok(Some(span))
}

impl Feeds {
    pub(crate) fn count(&self) -> usize {
        self.feeds.iter().map(|feed| feed.on_change.len() + feed.samples.len()).sum()
    }

    pub(crate) fn end(&mut self) {
        self.feeds.clear();
    }

    pub(crate) fn next_wakeup(&self) -> Option<SimTime> {
        let samples = self.feeds.iter().flat_map(|feed| &feed.samples);
        samples.map(|(at, ..)| *at).min()
    }

    fn feed(&mut self, path: &Path, encoding: Encoding, now: Leaves) -> &mut Feed {
        let known =
            self.feeds.iter().position(|feed| feed.encoding == encoding && feed.path == *path);
        let at = known.unwrap_or_else(|| {
            let (on_change, samples) = (Vec::new(), Vec::new());
            self.feeds.push(Feed { path: path.clone(), encoding, last: now, on_change, samples });
            self.feeds.len() - 1
        });
        &mut self.feeds[at]
    }

    pub(crate) fn on_time(&mut self, state: &State) {
        let stale = std::mem::take(&mut self.are_stale);
        let now = state.now;
        for feed in &mut self.feeds {
            if stale && !feed.on_change.is_empty() {
                feed.tell_changes(state);
            }
            if feed.samples.iter().any(|(at, ..)| *at <= now) {
                let Ok(leaves) = leaves(state, &feed.path, feed.encoding) else { continue };
                let message = whole(state, &leaves);
                feed.samples.retain_mut(|(at, every, sender)| {
                    if *at > now {
                        return true;
                    }
                    *at = (*at + *every).max(now);
                    send(sender, message.clone())
                });
            }
        }
        self.feeds.retain(|feed| !feed.on_change.is_empty() || !feed.samples.is_empty());
    }
}

impl Feed {
    fn tell_changes(&mut self, state: &State) {
        let Ok(now) = leaves(state, &self.path, self.encoding) else { return };
        let news = now.iter().filter(|(key, (_, value))| {
            self.last.get(*key).is_none_or(|(_, before)| before != value)
        });
        let update: Vec<_> = news.map(|(_, (path, value))| update(path, value)).collect();
        let gone = self.last.iter().filter(|(key, _)| !now.contains_key(*key));
        let mut delete: Vec<_> = gone.map(|(_, (path, _))| path.clone()).collect();
        if state.breaks(Misbehaviour::MissesDeletes) {
            delete.clear();
        }
        self.last = now;
        if update.is_empty() && delete.is_empty() || state.breaks(Misbehaviour::MissesChanges) {
            return;
        }
        let timestamp = state.spec.unix_nanos(state.now);
        let notification = Notification { timestamp, update, delete, ..Notification::default() };
        let message = SubscribeResponse { response: Some(SubscribeAnswer::Update(notification)) };
        self.on_change.retain(|sender| send(sender, message.clone()));
    }
}

fn send(sender: &FeedSender, message: SubscribeResponse) -> bool {
    match sender.try_send(Ok(message)) {
        Ok(()) => true,
        Err(TrySendError::Closed(_) | TrySendError::Full(_)) => false,
    }
}

pub(crate) fn subscribe(
    state: &mut State,
    list: &SubscriptionList,
    sender: &FeedSender,
) -> Result<(), Status> {
    let encoding = encoding_of(list)?;
    if ListMode::try_from(list.mode) != Ok(ListMode::Stream) {
        return Err(Status::invalid_argument(
            "the mode of a list must be 0 (stream), 1 (once) or 2 (poll)",
        ));
    }
    if state.feeds.count() + list.subscription.len() > SUBSCRIBERS_MAX {
        let why = format!("at most {SUBSCRIBERS_MAX} subscriptions are supported: end one of them");
        return Err(Status::resource_exhausted(why));
    }
    let mut wanted = Vec::new();
    for subscription in &list.subscription {
        let path = joined(list.prefix.as_ref(), subscription.path.as_ref());
        let leaves = leaves(state, &path, encoding)?;
        wanted.push((path, leaves, period(subscription)?, subscription.mode));
    }
    let now = state.now;
    let mut feeds = std::mem::take(&mut state.feeds);
    for (path, leaves, period, mode) in wanted {
        if !list.updates_only && !leaves.is_empty() {
            send(sender, whole(state, &leaves));
        }
        let feed = feeds.feed(&path, encoding, leaves);
        if mode != SubscriptionMode::Sample as i32 {
            feed.on_change.push(sender.clone());
        }
        if let Some(every) = period {
            feed.samples.push((now + every, every, sender.clone()));
        }
    }
    state.feeds = feeds;
    if state.breaks(Misbehaviour::NoSync) {
        return Ok(());
    }
    send(sender, SubscribeResponse { response: Some(SubscribeAnswer::Sync(true)) });
    Ok(())
}

pub(crate) fn first_path(list: &SubscriptionList) -> String {
    let first = list.subscription.first().and_then(|subscription| subscription.path.as_ref());
    text(&joined(list.prefix.as_ref(), first))
}
