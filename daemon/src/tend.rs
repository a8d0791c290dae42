// SPDX-License-Identifier: Apache-2.0
//! Tends one device: keeps it connected, hands it operations one at a time, reports what becomes of
//! them. One task a device.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use prometheus::Histogram;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::driver::{Driver, Idle};
use lightloom_control::controller::{Event, Ticket};
use lightloom_control::mover::RECONNECT;
use lightloom_control::state::{DeviceName, Op, Outcome};
use lightloom_drivers::module::Module;

const BACKOFF_FIRST: Duration = Duration::from_micros(RECONNECT.0);
/// The longest wait between two tries to connect.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// How long a transceiver may take to tell of itself.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// What the runtime tells a device's task.
#[derive(Debug)]
pub enum ToDevice {
    /// Perform this.
    Run(Ticket, Op),
    /// Nobody waits for this any more: start the connection afresh.
    Abandon(Ticket),
    /// Say what these would send.
    Preview(Vec<Op>, oneshot::Sender<Result<Vec<Vec<u8>>, NoPreview>>),
    /// Read a transceiver's own account of itself.
    Look(oneshot::Sender<Result<Module, Outcome>>),
}

/// Why it cannot be said what operations would send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPreview {
    /// They cannot be asked of this device at all.
    Refused(String),
    /// Nobody can tell now.
    NotNow(String),
}

/// What a device's task tells the runtime.
#[derive(Debug)]
pub enum FromDevice {
    /// For the controller.
    Event(Event),
    /// Who the device says it is.
    Identity(DeviceName, String),
    /// Messages that made no sense, so far.
    Noise(DeviceName, u64),
}

/// Tends `driver` until the runtime goes away.
pub async fn tend(
    name: DeviceName,
    mut driver: Box<dyn Driver>,
    mut commands: UnboundedReceiver<ToDevice>,
    events: UnboundedSender<FromDevice>,
    took: Histogram,
) {
    let mut backoff = BACKOFF_FIRST;
    let mut reported = None;
    loop {
        let connected = tokio::select! {
            // What comes in the same moment in which the connection stands is asked of the device.
            biased;
            connected = driver.connect() => connected,
            () = decline(&name, &mut commands, &events) => return,
        };
        match connected {
            Ok(identity) => {
                backoff = BACKOFF_FIRST;
                reported = None;
                let _ = events.send(FromDevice::Identity(name.clone(), identity));
                report(&name, &mut *driver, &events);
                if let Some(promise) = driver.promise() {
                    let _ = events.send(FromDevice::Event(Event::Promised(name.clone(), promise)));
                }
                let _ = events.send(FromDevice::Event(Event::Up(name.clone())));
                let ended = serve(&name, &mut *driver, &mut commands, &events, &took).await;
                let Some(why) = ended else {
                    return;
                };
                driver.disconnect();
                let _ = events.send(FromDevice::Noise(name.clone(), driver.noise()));
                let _ = events.send(FromDevice::Event(Event::Down(name.clone(), why)));
            }
            Err(why) if reported.as_ref() == Some(&why) => {}
            Err(why) => {
                reported = Some(why.clone());
                let _ = events.send(FromDevice::Event(Event::Down(name.clone(), why)));
            }
        }
        tokio::select! {
            () = sleep(backoff) => {}
            () = decline(&name, &mut commands, &events) => return,
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Answers for a device that is not there. Returns when the runtime is gone.
async fn decline(
    name: &DeviceName,
    commands: &mut UnboundedReceiver<ToDevice>,
    events: &UnboundedSender<FromDevice>,
) {
    while let Some(command) = commands.recv().await {
        match command {
            ToDevice::Run(ticket, _) => {
                let outcome = Outcome::Unknown("not connected".into());
                let _ = events.send(reply(name, ticket, outcome));
            }
            ToDevice::Abandon(_) => {}
            ToDevice::Preview(_, answer) => {
                let _ = answer.send(Err(NoPreview::NotNow("not connected".into())));
            }
            ToDevice::Look(answer) => {
                let _ = answer.send(Err(Outcome::Unknown("not connected".into())));
            }
        }
    }
}

fn reply(name: &DeviceName, ticket: Ticket, outcome: Outcome) -> FromDevice {
    FromDevice::Event(Event::Reply { device: name.clone(), ticket, outcome })
}

/// Hands on what the device reported unasked.
fn report(name: &DeviceName, driver: &mut dyn Driver, events: &UnboundedSender<FromDevice>) {
    for what in driver.foreign() {
        let _ = events.send(FromDevice::Event(Event::Foreign(name.clone(), what)));
    }
    for signal in driver.signals() {
        let _ = events.send(FromDevice::Event(Event::Signalled(name.clone(), signal)));
    }
}

/// Why the connection is over, or nothing when the runtime is gone.
async fn serve(
    name: &DeviceName,
    driver: &mut dyn Driver,
    commands: &mut UnboundedReceiver<ToDevice>,
    events: &UnboundedSender<FromDevice>,
    took: &Histogram,
) -> Option<String> {
    // Questions about the device that came while it was busy.
    let mut asked = Asked::default();
    loop {
        let command = match asked.0.pop_front() {
            Some(answer) => ToDevice::Look(answer),
            None => tokio::select! {
                biased;
                command = commands.recv() => command?,
                idle = driver.idle() => match idle {
                    Idle::Lost(why) => return Some(why),
                    Idle::Reports => {
                        report(name, driver, events);
                        continue;
                    }
                },
            },
        };
        match command {
            ToDevice::Run(ticket, op) => {
                let started = Instant::now();
                let outcome = tokio::select! {
                    outcome = driver.run(&op) => outcome,
                    () = abandoned(ticket, commands, &mut asked) => return Some("no answer in time".into()),
                };
                took.observe(started.elapsed().as_secs_f64());
                let lost = match &outcome {
                    Outcome::Unknown(why) => Some(why.clone()),
                    _ => None,
                };
                report(name, driver, events);
                let _ = events.send(reply(name, ticket, outcome));
                if lost.is_some() {
                    return lost;
                }
            }
            ToDevice::Abandon(_) => {}
            ToDevice::Preview(ops, answer) => {
                let _ = answer.send(driver.preview(&ops).map_err(NoPreview::Refused));
            }
            ToDevice::Look(answer) => {
                let occupied = |is| FromDevice::Event(Event::Occupied(name.clone(), is));
                let _ = events.send(occupied(true));
                let late = |_| Err(Outcome::Unknown("no answer in time".into()));
                let told = tokio::time::timeout(LOOK_WITHIN, driver.look()).await;
                let told = told.unwrap_or_else(late);
                let lost = match &told {
                    Err(Outcome::Unknown(why)) => Some(why.clone()),
                    _ => None,
                };
                report(name, driver, events);
                let _ = events.send(occupied(false));
                let _ = answer.send(told);
                if lost.is_some() {
                    return lost;
                }
            }
        }
    }
}

/// So many questions about a device wait for an operation of it.
const ASKED_MAX: usize = 8;

/// Who waits for a device's account of itself.
#[derive(Default)]
struct Asked(VecDeque<oneshot::Sender<Result<Module, Outcome>>>);

impl Drop for Asked {
    fn drop(&mut self) {
        for answer in self.0.drain(..) {
            let _ = answer.send(Err(Outcome::Unknown("the connection was lost".into())));
        }
    }
}

async fn abandoned(ticket: Ticket, commands: &mut UnboundedReceiver<ToDevice>, asked: &mut Asked) {
    loop {
        match commands.recv().await {
            Some(ToDevice::Abandon(abandoned)) if abandoned == ticket => return,
            Some(ToDevice::Preview(_, answer)) => {
                let _ = answer.send(Err(NoPreview::NotNow("busy with an operation".into())));
            }
            Some(ToDevice::Look(answer)) if asked.0.len() < ASKED_MAX => asked.0.push_back(answer),
            Some(ToDevice::Look(answer)) => {
                let busy = "busy with an operation: ask again in a moment";
                let _ = answer.send(Err(Outcome::Refused(busy.into())));
            }
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::driver::Boxed;
    use lightloom_control::state::Neighbours;

    /// Takes its time for an operation.
    struct Slow;

    impl Driver for Slow {
        fn connect(&mut self) -> Boxed<'_, Result<String, String>> {
            Box::pin(async { Ok("slow".into()) })
        }
        fn run<'a>(&'a mut self, _: &'a Op) -> Boxed<'a, Outcome> {
            Box::pin(async {
                sleep(Duration::from_millis(50)).await;
                Outcome::Done(None)
            })
        }
        fn idle(&mut self) -> Boxed<'_, Idle> {
            Box::pin(std::future::pending())
        }
        fn disconnect(&mut self) {}
        fn preview(&self, _: &[Op]) -> Result<Vec<Vec<u8>>, String> {
            Ok(Vec::new())
        }
        fn noise(&self) -> u64 {
            0
        }
    }

    /// A question about a device that is busy is asked after the operation that is under way, and the controller hears
    /// when the device begins and ends to answer it: what is asked meanwhile is not late.
    #[tokio::test]
    async fn a_question_waits_for_the_operation_that_is_under_way() {
        let (commands, receiver) = tokio::sync::mpsc::unbounded_channel();
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let took = Histogram::with_opts(prometheus::HistogramOpts::new("took", "took")).unwrap();
        tokio::spawn(tend("n0/b0".into(), Box::new(Slow), receiver, sender, took));
        let read = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };
        commands.send(ToDevice::Run(Ticket(1), read)).unwrap();
        let (answer, answered) = oneshot::channel();
        commands.send(ToDevice::Look(answer)).unwrap();
        let answered = answered.await.unwrap();
        let no_module = Outcome::Refused(lightloom_drivers::module::NO_MODULE.into());
        assert_eq!(answered.err(), Some(no_module), "it was asked, and not refused as busy");
        let mut order = Vec::new();
        while let Ok(event) = events.try_recv() {
            match event {
                FromDevice::Event(Event::Reply { .. }) => order.push("reply"),
                FromDevice::Event(Event::Occupied(_, true)) => order.push("asked"),
                FromDevice::Event(Event::Occupied(_, false)) => order.push("free"),
                _ => {}
            }
        }
        assert_eq!(order, ["reply", "asked", "free"]);
    }
}
