// SPDX-License-Identifier: Apache-2.0
//! Runs the controller: executes its actions in order, and passes it replies and the time.
//!
//! One task owns the controller and the journal. If the journal fails, the controller becomes
//! read-only (`Controller::only_read`) until the journal can be written again.

mod alarm;
pub mod contention;
mod namesakes;
mod notes;
mod writing;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender};
use tokio::sync::{oneshot, watch};

use crate::audit::Audit;
use crate::clock::Clock;
use crate::cluster::{JournalPlace, Leadership};
use crate::config::Config;
use crate::hooks::Hooks;
use crate::journal::{Damage, Journal, Proof, Storage, Stored};
use crate::metrics::Metrics;
use crate::tend::{FromDevice, NoPreview, ToDevice};
use crate::traces::Traces;
use alarm::Alarm;
use lightloom_control::controller::{Action, Answer, Event, Note, ReplyTo, Request};
use lightloom_control::policy::Control;
use lightloom_control::policy::phases::{Refusal, Wish};
use lightloom_control::record::{Asked, Record};
use lightloom_control::state::{DeviceName, Micros, Op, Txn};

pub type AnswerSender = oneshot::Sender<Result<Stored<Answer>, NotStored>>;

#[derive(Debug, thiserror::Error)]
#[error(
    "the journal may or may not contain this request ({0}); help: retry it with the same request \
        id once the journal accepts records; it takes effect only once"
)]
pub struct NotStored(pub String);

pub type Look = Box<dyn FnOnce(&Runtime) + Send>;

pub enum Call {
    Ask { asked: Asked, request: Request, plan: Option<Box<Plan>>, answer: AnswerSender },
    Fault { asked: Asked, broken: Vec<(Part, String)>, repaired: Vec<Part>, answer: AnswerSender },
    Phase { asked: Asked, wish: Wish, answer: AnswerSender },
    Release { asked: Asked, job: String, answer: AnswerSender },
    Look(Look),
    Preview(DeviceName, Vec<Op>, oneshot::Sender<Result<Vec<Vec<u8>>, NoPreview>>),
}

pub struct Runtime {
    pub control: Control,
    proof: Result<Proof, String>,
    pub audit: Audit,
    mend_at: Micros,
    count_at: Micros,
    pub place: JournalPlace,
    pub leadership: Option<Leadership>,
    pub damage: Option<Damage>,
    /// Whether the journal was missing although the audit log records changes.
    pub journal_gone: bool,
    pub records: u64,
    pub identities: BTreeMap<DeviceName, String>,
    /// Modules kept unreachable because a reachable module has the same serial number.
    namesakes: BTreeMap<DeviceName, DeviceName>,
    pub config: Config,
    pub clock: Clock,
    journal: Journal<Record, Box<dyn Storage + Send>>,
    metrics: Metrics,
    devices: BTreeMap<DeviceName, UnboundedSender<ToDevice>>,
    answers: BTreeMap<u64, AnswerSender>,
    last_reply_to: u64,
    began: Option<(Txn, Instant)>,
    event_at: Option<Instant>,
    said_nothing_is_ours: bool,
    shorten_at: (u64, usize),
    changes: watch::Sender<u64>,
    hooks: Hooks,
    traces: Traces,
}

const JOURNAL_RECORDS_MAX: u64 = 10_000;
/// Plans are large, so a journal above this size is compacted only when it has doubled.
const JOURNAL_BYTES_MAX: usize = 64 << 20;
/// Limit on a change's records after its intent: this per device, plus [`END_BYTES_MIN`].
const END_BYTES_OF_EACH: u64 = 1 << 10;
const END_BYTES_MIN: u64 = 64 << 10;

pub struct Parts {
    pub control: Control,
    pub first: Vec<Action>,
    pub place: JournalPlace,
    pub leadership: Option<Leadership>,
    pub journal: Journal<Record, Box<dyn Storage + Send>>,
    pub audit: Audit,
    pub damage: Option<Damage>,
    pub proof: Option<Proof>,
    pub journal_gone: bool,
    pub config: Config,
    pub clock: Clock,
    pub metrics: Metrics,
    pub devices: BTreeMap<DeviceName, UnboundedSender<ToDevice>>,
    pub changes: watch::Sender<u64>,
    pub hooks: Hooks,
    pub traces: Traces,
}

impl Runtime {
    pub fn new(parts: Parts) -> Self {
        let names = parts.devices.keys().map(|name| (name.clone(), String::new()));
        let mut runtime = Self {
            records: parts.journal.length(),
            identities: names.collect(),
            control: parts.control,
            proof: parts.proof.ok_or_else(|| "the first record is not durable yet".to_owned()),
            audit: parts.audit,
            mend_at: Micros::default(),
            count_at: Micros::default(),
            place: parts.place,
            leadership: parts.leadership,
            damage: None,
            journal_gone: parts.journal_gone,
            namesakes: BTreeMap::new(),
            config: parts.config,
            clock: parts.clock,
            journal: parts.journal,
            metrics: parts.metrics,
            devices: parts.devices,
            answers: BTreeMap::new(),
            last_reply_to: 0,
            began: None,
            event_at: None,
            said_nothing_is_ours: false,
            shorten_at: (JOURNAL_RECORDS_MAX, JOURNAL_BYTES_MAX),
            changes: parts.changes,
            hooks: parts.hooks,
            traces: parts.traces,
        };
        if let Some(damage) = parts.damage {
            runtime.mark_damaged(damage);
        }
        runtime.perform(parts.first);
        runtime
    }

    pub async fn run(
        mut self,
        mut calls: Receiver<Call>,
        mut events: UnboundedReceiver<FromDevice>,
    ) {
        let mut alarm = Alarm::new();
        loop {
            let wait = self.wait();
            let looked = tokio::select! {
                biased;
                // `events` is closed without devices, but the API must still work.
                Some(event) = events.recv() => {
                    self.take_events(event, &mut events);
                    false
                }
                call = calls.recv() => {
                    let Some(call) = call else { return };
                    let looked = matches!(call, Call::Look(_) | Call::Preview(..));
                    self.take_call(call);
                    looked
                }
                () = alarm.sleep(wait) => {
                    // Process all received events before treating any reply as late.
                    tokio::task::yield_now().await;
                    if let Ok(event) = events.try_recv() {
                        self.take_events(event, &mut events);
                    }
                    false
                }
            };
            let ticked = self.tick();
            // Queries must not increment the counter, or a watcher would wake itself forever.
            if ticked || !looked {
                self.changes.send_modify(|count| *count += 1);
            }
        }
    }

    /// Returns the number of changes. The state is at least as new as this number, so a client that
    /// waits for the next change cannot miss one.
    pub(crate) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    pub fn stored<T>(&self, of: impl FnOnce(&Self) -> T) -> Result<Stored<T>, NotStored> {
        let proof = self.proof.as_ref().map_err(|why| NotStored(why.clone()))?;
        Ok(Stored::by(proof, of(self)))
    }

    fn wait(&self) -> Duration {
        let now = self.clock.now();
        let deadline = self.control.deadline(&now);
        let wait = deadline.map_or(Micros::from_secs(1), |deadline| deadline - now.mono);
        Duration::from_micros(wait.0).min(Duration::from_secs(1))
    }

    pub fn tick(&mut self) -> bool {
        let now = self.clock.now();
        let actions = self.control.tick(&now);
        let acted = !actions.is_empty();
        if actions.iter().any(|action: &Action| {
            matches!(action, Action::Note(Note::Bypassing(..) | Note::TooMany(_)))
        }) {
            self.event_at = Some(Instant::now());
        }
        self.perform(actions);
        self.mend();
        self.shorten_journal();
        let pending = self.control.ledger().pending.as_ref();
        let left = pending.map_or(Micros(0), |pending| pending.deadline(&now) - now.mono);
        self.metrics.confirm_pending_seconds.set(left.as_secs_f64());
        acted
    }

    fn take_events(&mut self, first: FromDevice, more: &mut UnboundedReceiver<FromDevice>) {
        let mut next = Some(first);
        while let Some(event) = next {
            self.take_event(event);
            next = more.try_recv().ok();
        }
    }

    pub fn take_event(&mut self, event: FromDevice) {
        match event {
            FromDevice::Event(event) => namesakes::one_name_each(self, *event),
            FromDevice::Identity(device, identity) => {
                self.identities.insert(device, identity);
            }
            FromDevice::Noise(device, noise) => {
                #[expect(clippy::cast_precision_loss, reason = "a metric")]
                self.metrics.device_noise.with_label_values(&[device.as_str()]).set(noise as f64);
            }
        }
    }

    pub fn take_call(&mut self, call: Call) {
        match call {
            Call::Look(look) => look(self),
            Call::Ask { asked, request, plan, answer } => self.ask(asked, request, plan, answer),
            Call::Fault { asked, broken, repaired, answer } => {
                self.event_at = Some(Instant::now());
                let reply_to = self.answer_to(answer);
                let now = self.clock.now();
                let actions = self.control.fault(&now, asked, &broken, &repaired, reply_to);
                self.perform(actions);
            }
            Call::Phase { asked, wish, answer } => {
                if let Some(why) = self.short_of_space() {
                    let refusal = Refusal::NoJournal(full_disk(&why)).answer();
                    let _ = answer.send(self.stored(|_| refusal));
                    return;
                }
                let reply_to = self.answer_to(answer);
                let actions = self.control.book(&self.clock.now(), asked, wish, reply_to);
                self.perform(actions);
            }
            Call::Release { asked, job, answer } => {
                let reply_to = self.answer_to(answer);
                let actions = self.control.release(&self.clock.now(), asked, &job, reply_to);
                self.perform(actions);
            }
            Call::Preview(device, ops, answer) => {
                let _ = match self.devices.get(&device) {
                    Some(task) => task.send(ToDevice::Preview(ops, answer)).map_err(|_| ()),
                    None => {
                        let why = NoPreview::Refused("no such device".into());
                        answer.send(Err(why)).map_err(|_| ())
                    }
                };
            }
        }
    }

    fn ask(
        &mut self,
        asked: Asked,
        request: Request,
        plan: Option<Box<Plan>>,
        answer: AnswerSender,
    ) {
        if let Some(why) = self.short_of_space().filter(|_| request.can_wait_for_room()) {
            let refusal = Answer::Refused { reasons: vec![full_disk(&why)] };
            let _ = answer.send(self.stored(|_| refusal));
            return;
        }
        let reply_to = self.answer_to(answer);
        let actions = self.control.ask(&self.clock.now(), asked, request, plan, reply_to);
        self.perform(actions);
    }

    fn answer_to(&mut self, answer: AnswerSender) -> ReplyTo {
        self.last_reply_to += 1;
        self.answers.insert(self.last_reply_to, answer);
        ReplyTo(self.last_reply_to)
    }

    fn handle(&mut self, event: Event) {
        if let Event::Reply { device, ticket, outcome } = &event {
            self.traces.answered(device, *ticket, outcome);
        }
        let actions = self.control.handle(&self.clock.now(), event);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        let mut actions = actions.into_iter();
        while let Some(action) = actions.next() {
            match action {
                Action::Append(records) => {
                    if !self.append(&records) {
                        self.control.not_sent(actions.as_slice());
                        return;
                    }
                }
                Action::Send(device, ticket, op) => {
                    self.traces.asked(&device, ticket, &op);
                    self.tell(&device, ToDevice::Run(ticket, op));
                }
                Action::Abandon(device, ticket) => self.tell(&device, ToDevice::Abandon(ticket)),
                Action::Answer(ReplyTo(reply_to), answer) => {
                    if let Some(sender) = self.answers.remove(&reply_to) {
                        let _ = sender.send(self.stored(|_| answer));
                    }
                }
                Action::Note(note) => self.note(note),
            }
        }
        if let Ok(proof) = &self.proof {
            self.control.stored(proof);
        }
    }

    fn tell(&self, device: &DeviceName, command: ToDevice) {
        if let Some(task) = self.devices.get(device) {
            let _ = task.send(command);
        }
    }

    fn append(&mut self, records: &[Record]) -> bool {
        let began = SystemTime::now();
        let (started, sync) = (Instant::now(), records.iter().any(Record::is_waited_for));
        let (goes_on, leave) = (records.iter().all(Record::goes_on), self.bytes_to_end());
        let journal = &mut self.journal;
        let result = match (sync, goes_on) {
            (false, _) => journal.write(records).map(|()| None),
            (true, true) => journal.append(records).map(Some),
            // Start a change only if the journal has enough space for all its records.
            (true, false) => journal.begin(records, leave).map(Some),
        };
        if sync {
            self.metrics.journal_seconds.observe(started.elapsed().as_secs_f64());
        }
        self.traces.written(records, began, result.is_ok());
        self.records = self.journal.length();
        self.metrics.journal_records.set(i64::try_from(self.records).unwrap_or(i64::MAX));
        match result {
            Ok(Some(proof)) => self.proof = Ok(proof),
            Ok(None) => {}
            Err(error) => {
                self.journal_failed(&error);
                return false;
            }
        }
        true
    }

    fn bytes_to_end(&self) -> u64 {
        let open = self.control.ledger().open.as_ref();
        let devices = open.map_or(0, |open| open.intent.goal.len().max(open.intent.after.len()));
        END_BYTES_MIN + END_BYTES_OF_EACH * devices as u64
    }

    fn shorten_journal(&mut self) {
        let (records, bytes) = self.shorten_at;
        let long = self.journal.length() >= records || self.journal.bytes() >= bytes;
        if !long
            || self.control.journal_failure().is_some()
            || self.control.transactions().is_busy()
        {
            return;
        }
        let after = self.journal.head().to_owned();
        let first = self.control.ledger().begun_anew(after);
        match self.journal.restart(&first) {
            Ok(()) => tracing::info!("the journal was restarted; the previous one is kept"),
            Err(error) => tracing::warn!(%error, "cannot shorten the journal"),
        }
        self.records = self.journal.length();
        let bytes = JOURNAL_BYTES_MAX.max(2 * self.journal.bytes());
        self.shorten_at = (self.records + JOURNAL_RECORDS_MAX, bytes);
    }
}

fn full_disk(why: &str) -> String {
    format!(
        "the disk is full ({why}), so no change can start: free space, and changes resume \
            automatically"
    )
}
