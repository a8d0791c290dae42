// SPDX-License-Identifier: Apache-2.0

use lightloom_control::controller::{Event, Foreign, Ticket};
use lightloom_control::state::{Op, Outcome};
use lightloom_drivers::Dialect;
use lightloom_drivers::tender::{Does, NoPreview};

use super::Endpoint;
use super::stream::Address;
use crate::fence::Fence;
use crate::tend::Task;

pub struct Alone {
    task: Task,
    tickets: u64,
    foreign: Vec<Foreign>,
    why: String,
}

impl Alone {
    pub fn new(endpoint: Endpoint) -> Self {
        let task = Task::new("device".into(), endpoint, Fence::default());
        Self { task, tickets: 0, foreign: Vec::new(), why: String::new() }
    }

    pub fn speaking<D: Dialect + Clone + 'static>(address: Address, dialect: D) -> Self {
        Self::new(Endpoint::speaking(address, dialect))
    }

    pub async fn connect(&mut self) -> Result<String, String> {
        self.disconnect();
        let mut identity = String::new();
        loop {
            for one in self.turn().await {
                match one {
                    Does::Identity(who) => identity = who,
                    Does::Event(event) if matches!(*event, Event::Reachable(_)) => {
                        return Ok(identity);
                    }
                    Does::Close => return Err(self.why.clone()),
                    _ => {}
                }
            }
        }
    }

    pub async fn run(&mut self, op: &Op) -> Outcome {
        self.tickets += 1;
        let (mut does, mut said) = (Vec::new(), Vec::new());
        self.task.tender.run(self.task.now(), Ticket(self.tickets), op, &mut does);
        self.task.act(does, &mut said);
        self.note(&said);
        loop {
            for one in said {
                if let Does::Event(event) = one
                    && let Event::Reply { outcome, .. } = *event
                {
                    return outcome;
                }
            }
            said = self.turn().await;
        }
    }

    pub fn disconnect(&mut self) {
        let mut does = Vec::new();
        self.task.tender.broke(self.task.now(), "given up".into(), &mut does);
        self.task.act(does, &mut Vec::new());
    }

    pub fn foreign(&mut self) -> Vec<Foreign> {
        std::mem::take(&mut self.foreign)
    }

    pub fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, NoPreview> {
        self.task.tender.preview(ops)
    }

    async fn turn(&mut self) -> Vec<Does> {
        let mut said = Vec::new();
        self.task.turn(&mut said).await;
        self.note(&said);
        said
    }

    fn note(&mut self, said: &[Does]) {
        for one in said {
            let Does::Event(event) = one else { continue };
            match &**event {
                Event::Foreign(_, what) => self.foreign.push(what.clone()),
                Event::Unreachable(_, why) => why.why().clone_into(&mut self.why),
                _ => {}
            }
        }
    }
}
