// SPDX-License-Identifier: Apache-2.0
//! Runs the controller: performs its actions in order, brings it answers and the time.
//!
//! ```text
//!   API ──calls──▶ ┌─────────┐ ──▶ journal (one sync for records that follow each other)
//!                  │ runtime │ ──▶ device tasks ──▶ drivers
//!   devices ─────▶ └─────────┘ ──▶ answers, metrics, watchers
//! ```
//!
//! One task owns the controller and the journal, so there is nothing to lock. When the journal
//! fails, the controller only reads (`Controller::only_read`): changes are refused, light stays, until the journal
//! can be written again.

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
use lightloom_control::policy::phases::{Refusal, Wish};
use lightloom_control::policy::{Control, NoJournal};
use lightloom_control::record::{Asked, Record};
use lightloom_control::state::{DeviceName, Micros, Op, Txn};
use lightloom_daemon_api::status::LostState;

/// Receives an answer that follows from stored records, or the reason why none can be given.
pub type AnswerSender = oneshot::Sender<Result<Stored<Answer>, NotStored>>;

/// The reason why the journal may or may not hold a request.
#[derive(Debug, thiserror::Error)]
#[error(
    "the journal may or may not hold this request ({0}): send it again with the same request id once the journal can be written; it acts once"
)]
pub struct NotStored(pub String);

/// A look at everything, by somebody who changes nothing.
pub type Look = Box<dyn FnOnce(&Runtime) + Send>;

/// What the API asks of the runtime.
pub enum Call {
    /// A request for the controller.
    Ask {
        /// Who, and under which id.
        asked: Asked,
        /// What.
        request: Request,
        /// The plan it comes from, kept for bypasses.
        plan: Option<Box<Plan>>,
        /// Where the answer goes.
        answer: AnswerSender,
    },
    /// Parts broke, or work again.
    Fault {
        /// Who says so.
        asked: Asked,
        /// What broke, and who or what says so.
        broken: Vec<(Part, String)>,
        /// What works again.
        repaired: Vec<Part>,
        /// Where the answer goes.
        answer: AnswerSender,
    },
    /// A job asks for a phase of the plan on the devices.
    Phase {
        /// Who asks.
        asked: Asked,
        /// For what.
        wish: Wish,
        /// Where the answer goes.
        answer: AnswerSender,
    },
    /// A job gives up its lease.
    Release {
        /// Who asks.
        asked: Asked,
        /// The job.
        job: String,
        /// Where the answer goes.
        answer: AnswerSender,
    },
    /// A look.
    Look(Look),
    /// What operations would send to a device.
    Preview(DeviceName, Vec<Op>, oneshot::Sender<Result<Vec<Vec<u8>>, NoPreview>>),
}

/// How a device is doing, beyond what the controller knows.
#[derive(Clone, Debug, Default)]
pub struct Contact {
    /// Who it says it is.
    pub identity: String,
    /// Why it cannot be talked to.
    pub trouble: Option<String>,
    /// Since when, on the monotonic clock.
    pub down_since: Option<Micros>,
}

/// Everything that runs.
pub struct Runtime {
    /// The controller and every policy.
    pub control: Control,
    /// Proof that the controller's records are stored, or the reason for its absence.
    proof: Result<Proof, String>,
    /// Who asked for what.
    pub audit: Audit,
    /// When the next try is to write again what could not be written.
    mend_at: Micros,
    /// When it is written next how many refusals are not in the audit log one by one.
    count_at: Micros,
    /// Where the journal is.
    pub place: JournalPlace,
    /// Who leads, where there are several daemons.
    pub leadership: Option<Leadership>,
    /// Where the journal was found damaged, when it was opened.
    pub damage: Option<Damage>,
    /// What an earlier version kept and cannot be read.
    pub lost: Vec<LostState>,
    /// There was no journal, though the audit log says that changes were made.
    pub journal_gone: bool,
    /// How many records the journal holds.
    pub records: u64,
    /// Contact with each device.
    pub contacts: BTreeMap<DeviceName, Contact>,
    /// Modules that are not talked to, and who is up by their serial number.
    namesakes: BTreeMap<DeviceName, DeviceName>,
    /// The checked daemon file.
    pub config: Config,
    /// The clocks.
    pub clock: Clock,
    journal: Journal<Record, Box<dyn Storage + Send>>,
    metrics: Metrics,
    devices: BTreeMap<DeviceName, UnboundedSender<ToDevice>>,
    answers: BTreeMap<u64, AnswerSender>,
    last_reply_to: u64,
    began: Option<(Txn, Instant)>,
    event_at: Option<Instant>,
    said_nothing_is_ours: bool,
    /// The journal begins anew at this length, in records and in bytes.
    shorten_at: (u64, usize),
    changes: watch::Sender<u64>,
    hooks: Hooks,
    traces: Traces,
}

/// A journal longer than this begins anew.
const JOURNAL_RECORDS_MAX: u64 = 10_000;
/// And one of more bytes, where it is twice what it came to the last time: plans are large.
const JOURNAL_BYTES_MAX: usize = 64 << 20;
/// What a change writes after its intent, of each device and at least.
const END_BYTES_OF_EACH: u64 = 1 << 10;
const END_BYTES_MIN: u64 = 64 << 10;

/// What a runtime is made of.
pub struct Parts {
    /// The controller and every policy, over what the journal remembers.
    pub control: Control,
    /// What it does first.
    pub first: Vec<Action>,
    /// Where the journal is.
    pub place: JournalPlace,
    /// Who leads, where there are several daemons.
    pub leadership: Option<Leadership>,
    /// The journal.
    pub journal: Journal<Record, Box<dyn Storage + Send>>,
    /// The audit log.
    pub audit: Audit,
    /// Where the journal is damaged: then changes are refused from the start.
    pub damage: Option<Damage>,
    /// Proof for the records before the damage.
    pub proof: Option<Proof>,
    /// What an earlier version kept and cannot be read.
    pub lost: Vec<LostState>,
    /// There was no journal, though the audit log says that changes were made.
    pub journal_gone: bool,
    /// The checked daemon file.
    pub config: Config,
    /// The clocks.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Metrics,
    /// The ways to the device tasks.
    pub devices: BTreeMap<DeviceName, UnboundedSender<ToDevice>>,
    /// Told with each change of anything.
    pub changes: watch::Sender<u64>,
    /// Commands around moves.
    pub hooks: Hooks,
    /// Traces of changes.
    pub traces: Traces,
}

impl Runtime {
    /// Performs what the controller wants first, and is ready to run.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let names = parts.devices.keys().map(|name| (name.clone(), Contact::default()));
        let mut runtime = Self {
            records: parts.journal.length(),
            contacts: names.collect(),
            control: parts.control,
            proof: parts.proof.ok_or_else(|| "the first record is not stored yet".to_owned()),
            audit: parts.audit,
            mend_at: Micros::default(),
            count_at: Micros::default(),
            place: parts.place,
            leadership: parts.leadership,
            damage: parts.damage,
            lost: parts.lost,
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
        if let Some(damage) = &runtime.damage {
            let why = format!("{damage}; {}", runtime.place.after_damage(damage));
            let why = NoJournal::Damaged(why);
            let ledger = runtime.control.controller().ledger().clone();
            runtime.control.only_read(ledger, why);
        }
        runtime.perform(parts.first);
        runtime
    }

    /// Runs until every caller is gone.
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
                // Without any device there is nobody to hear from, and the API goes on.
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
                    // What has arrived meanwhile is heard before anything counts as late.
                    tokio::task::yield_now().await;
                    if let Ok(event) = events.try_recv() {
                        self.take_events(event, &mut events);
                    }
                    false
                }
            };
            let ticked = self.tick();
            // Who waits for a change looks when it comes: if his look counted, he would wake himself for ever.
            if ticked || !looked {
                self.changes.send_modify(|count| *count += 1);
            }
        }
    }

    /// Counts what was seen and done. Never ahead of it: who waits with this count misses nothing.
    pub(crate) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Evaluates `of`, whose result becomes an acknowledgement.
    ///
    /// # Errors
    /// The controller's records may not be stored.
    pub fn stored<T>(&self, of: impl FnOnce(&Self) -> T) -> Result<Stored<T>, NotStored> {
        let proof = self.proof.as_ref().map_err(|why| NotStored(why.clone()))?;
        Ok(Stored::by(proof, of(self)))
    }

    fn wait(&self) -> Duration {
        let now = self.clock.now();
        let deadline = self.control.deadline(&now);
        let wait = deadline.map_or(Micros::from_secs(1), |deadline| deadline - now.mono);
        // Rounded up to the timer's millisecond, and never longer than a heartbeat check.
        Duration::from_micros(wait.0).min(Duration::from_secs(1))
    }

    /// Does what it is time for; whether the controller had any of it.
    pub fn tick(&mut self) -> bool {
        let now = self.clock.now();
        let actions = self.control.tick(&now);
        let acted = !actions.is_empty();
        let bypasses = |action: &Action| {
            matches!(action, Action::Note(Note::Bypassing(..) | Note::TooMany(_)))
        };
        if actions.iter().any(bypasses) {
            self.event_at = Some(Instant::now());
        }
        self.perform(actions);
        self.mend();
        self.shorten_journal();
        let pending = self.control.controller().ledger().pending.as_ref();
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

    /// Takes in what a device reports.
    pub fn take_event(&mut self, event: FromDevice) {
        match event {
            FromDevice::Event(event) => self.one_name_each(*event),
            FromDevice::Identity(device, identity) => {
                self.contacts.entry(device).or_default().identity = identity;
            }
            FromDevice::Noise(device, noise) => {
                #[expect(clippy::cast_precision_loss, reason = "a metric")]
                self.metrics.device_noise.with_label_values(&[device.as_str()]).set(noise as f64);
            }
        }
    }

    /// Takes in what a client asks.
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
        let (goes_on, leave) = (records.iter().any(Record::goes_on), self.bytes_to_end());
        let journal = &mut self.journal;
        let result = match (sync, goes_on) {
            (false, _) => journal.write(records).map(|()| None),
            (true, true) => journal.append(records).map(Some),
            // What begins is begun only if it can be written to its end.
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

    /// What the change that is on its way writes still, at most.
    fn bytes_to_end(&self) -> u64 {
        let open = self.control.controller().ledger().open.as_ref();
        let devices = open.map_or(0, |open| open.intent.goal.len().max(open.intent.after.len()));
        END_BYTES_MIN + END_BYTES_OF_EACH * devices as u64
    }

    /// A journal that has grown long begins anew with what it came to, so that neither the file nor
    /// the time of a recovery grows for ever. When that fails, it goes on as it was.
    fn shorten_journal(&mut self) {
        let (records, bytes) = self.shorten_at;
        let long = self.journal.length() >= records || self.journal.bytes() >= bytes;
        if !long || self.control.failed().is_some() || self.control.controller().is_busy() {
            return;
        }
        let after = self.journal.head().to_owned();
        let first = self.control.controller().ledger().begun_anew(after);
        match self.journal.restart(&first) {
            Ok(()) => tracing::info!("the journal begins anew; the old one is beside it"),
            Err(error) => tracing::warn!(%error, "the journal could not be shortened"),
        }
        self.records = self.journal.length();
        let bytes = JOURNAL_BYTES_MAX.max(2 * self.journal.bytes());
        self.shorten_at = (self.records + JOURNAL_RECORDS_MAX, bytes);
    }
}

/// Why nothing new is begun.
fn full_disk(why: &str) -> String {
    format!(
        "the disk is full ({why}), so nothing new is begun: free space, and it goes on automatically"
    )
}
