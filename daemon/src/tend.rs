// SPDX-License-Identifier: Apache-2.0

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use prometheus::Histogram;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::driver::Endpoint;
use crate::driver::stream::{Heard, OUT_OF_LEASE, Wire};
use crate::fence::Fence;
use lightloom_control::controller::{Event, Ticket};
use lightloom_control::state::{DeviceName, Micros, Op, Outcome};
use lightloom_drivers::module::Module;
use lightloom_drivers::tender::{Does, Tender};

pub use lightloom_drivers::tender::NoPreview;

#[derive(Debug)]
pub enum ToDevice {
    Run(Ticket, Op),
    Abandon(Ticket),
    Preview(Vec<Op>, oneshot::Sender<Result<Vec<Vec<u8>>, NoPreview>>),
    Look(oneshot::Sender<Result<Module, Outcome>>),
}

#[derive(Debug)]
pub enum FromDevice {
    Event(Box<Event>),
    Identity(DeviceName, String),
    Noise(DeviceName, u64),
}

pub(crate) struct Task {
    pub(crate) tender: Tender,
    wire: Wire,
    began: Instant,
    fence: Fence,
    commands: bool,
}

impl Task {
    pub(crate) fn new(name: DeviceName, endpoint: Endpoint, fence: Fence) -> Self {
        let tender = Tender::new(name, endpoint.conversation, Micros::default());
        let wire = Wire::to(endpoint.address, fence.clone());
        Self { tender, wire, began: Instant::now(), fence, commands: false }
    }

    pub(crate) fn now(&self) -> Micros {
        since(self.began)
    }

    pub(crate) async fn turn(&mut self, said: &mut Vec<Does>) {
        let mut does = Vec::new();
        let (began, deadline) = (self.began, self.tender.deadline());
        tokio::select! {
            biased;
            heard = self.wire.heard() => match heard {
                Heard::Bytes(bytes) => self.tender.received(since(began), bytes, &mut does),
                Heard::Broke(why) => self.tender.broke(since(began), why, &mut does),
                Heard::Unopened(why) => self.tender.unopened(since(began), why, &mut does),
            },
            () = until(began, deadline) => self.tender.on_time(since(began), &mut does),
        }
        self.act(does, said);
    }

    pub(crate) fn act(&mut self, does: Vec<Does>, said: &mut Vec<Does>) {
        for one in does {
            match one {
                Does::Open => {
                    self.commands = false;
                    self.wire.open();
                }
                Does::Send(bytes) => self.wire.send(&bytes, self.commands),
                Does::Close => {
                    self.wire.close();
                    said.push(one);
                }
                Does::Identity(_) | Does::Event(_) | Does::Account(_) => said.push(one),
            }
        }
    }
}

fn since(began: Instant) -> Micros {
    Micros(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX))
}

async fn until(began: Instant, deadline: Option<Micros>) {
    match deadline {
        Some(at) => {
            tokio::time::sleep_until((began + Duration::from_micros(at.0)).into()).await;
        }
        None => std::future::pending().await,
    }
}

struct Desk {
    events: UnboundedSender<FromDevice>,
    took: Histogram,
    started: Option<Instant>,
    asked: VecDeque<oneshot::Sender<Result<Module, Outcome>>>,
}

impl Desk {
    fn command(&mut self, task: &mut Task, command: ToDevice, said: &mut Vec<Does>) {
        let (now, mut does) = (task.now(), Vec::new());
        match command {
            ToDevice::Run(ticket, op) => {
                self.started = task.tender.is_idle().then(Instant::now);
                let goes_on = task.commands && !task.tender.is_idle();
                task.commands = goes_on || !matches!(op, Op::Observe { .. });
                match task.commands && !task.fence.is_open() {
                    true => {
                        does.push(task.tender.reply(ticket, Outcome::Refused(OUT_OF_LEASE.into())))
                    }
                    false => task.tender.run(now, ticket, &op, &mut does),
                }
            }
            ToDevice::Abandon(ticket) => task.tender.abandon(now, ticket, &mut does),
            ToDevice::Preview(ops, answer) => drop(answer.send(task.tender.preview(&ops))),
            ToDevice::Look(answer) => match task.tender.look(now, &mut does) {
                Ok(()) => self.asked.push_back(answer),
                Err(why) => drop(answer.send(Err(*why))),
            },
        }
        task.act(does, said);
    }

    fn hand_on(&mut self, task: &Task, said: Vec<Does>) {
        for one in said {
            let from = match one {
                Does::Event(event) => {
                    if let (Event::Reply { .. }, Some(started)) = (&*event, self.started) {
                        self.started = None;
                        self.took.observe(started.elapsed().as_secs_f64());
                    }
                    FromDevice::Event(event)
                }
                Does::Identity(who) => FromDevice::Identity(task.tender.name().clone(), who),
                Does::Close => FromDevice::Noise(task.tender.name().clone(), task.tender.noise()),
                Does::Account(account) => {
                    if let Some(answer) = self.asked.pop_front() {
                        let _ = answer.send(*account);
                    }
                    continue;
                }
                Does::Open | Does::Send(_) => continue,
            };
            let _ = self.events.send(from);
        }
    }
}

pub async fn tend(
    name: DeviceName,
    endpoint: Endpoint,
    mut commands: UnboundedReceiver<ToDevice>,
    events: UnboundedSender<FromDevice>,
    took: Histogram,
    fence: Fence,
) {
    let mut task = Task::new(name, endpoint, fence);
    let mut desk = Desk { events, took, started: None, asked: VecDeque::new() };
    loop {
        let mut said = Vec::new();
        tokio::select! {
            biased;
            // Poll the connection first, so that commands that arrive during its setup are run.
            () = task.turn(&mut said) => {}
            command = commands.recv() => match command {
                Some(command) => desk.command(&mut task, command, &mut said),
                None => return,
            },
        }
        // Limit the reads, because a device that sends continuously must not block commands.
        loop {
            match commands.try_recv() {
                Ok(command) => desk.command(&mut task, command, &mut said),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        desk.hand_on(&task, said);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use lightloom_control::state::Neighbours;
    use lightloom_drivers::Reached;
    use lightloom_drivers::conversation::Conversation;

    struct Slow;

    impl Conversation for Slow {
        fn connected(&mut self, _: &mut Vec<u8>) -> Option<Reached> {
            Some(Reached::Ready("slow".into()))
        }
        fn start(&mut self, _: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
            out.push(b'?');
            None
        }
        fn received(&mut self, _: &[u8], _: &mut Vec<u8>) -> Option<Reached> {
            Some(Reached::Ended(Outcome::Done(None)))
        }
        fn closed(&mut self) {}
        fn preview(&self, _: &[Op]) -> Result<Vec<Vec<u8>>, String> {
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn query_waits_for_the_operation_in_progress() {
        let (commands, receiver) = tokio::sync::mpsc::unbounded_channel();
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let took = Histogram::with_opts(prometheus::HistogramOpts::new("took", "took")).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let address = Some(crate::driver::stream::Address::Tcp(address));
        let endpoint = Endpoint { address, conversation: Box::new(Slow) };
        tokio::spawn(tend("n0/b0".into(), endpoint, receiver, sender, took, Fence::default()));
        let (mut device, _) = listener.accept().await.unwrap();
        let read = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };
        commands.send(ToDevice::Run(Ticket(1), read)).unwrap();
        let (answer, answered) = oneshot::channel();
        commands.send(ToDevice::Look(answer)).unwrap();
        tokio::io::AsyncReadExt::read_u8(&mut device).await.unwrap();
        tokio::io::AsyncWriteExt::write_u8(&mut device, b'!').await.unwrap();
        let answered = answered.await.unwrap();
        let no_module = Outcome::Refused(lightloom_drivers::module::NO_MODULE.into());
        assert_eq!(answered.err(), Some(no_module), "the query was not refused as busy");
        let mut order = Vec::new();
        while let Ok(event) = events.try_recv() {
            let FromDevice::Event(event) = event else { continue };
            match *event {
                Event::Reply { .. } => order.push("reply"),
                Event::Occupied(_, true) => order.push("asked"),
                Event::Occupied(_, false) => order.push("free"),
                _ => {}
            }
        }
        assert_eq!(order, ["reply", "asked", "free"]);
    }
}
