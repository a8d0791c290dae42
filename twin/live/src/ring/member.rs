// SPDX-License-Identifier: Apache-2.0
//! The two ring members in a node.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::RingStep;
use super::link::{Link, OUTWARD_PORT, RETURN_PORT, Seat, seats};
use super::reduce::{NO_STEP, agree, step};
use crate::ranks::{FILE, Ranks};
use crate::record::Folder;
use crate::{Error, unix_us};

const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub steps: u64,
    pub bytes: usize,
    pub pause: Duration,
}

/// Reports each step to `done`. A node without a group waits until all groups are done.
pub fn run(
    folder: &Folder,
    node: &str,
    options: &Options,
    done: &(dyn Fn(&RingStep) + Sync),
) -> Result<(), Error> {
    let [outward, back] = [OUTWARD_PORT, RETURN_PORT].map(|port| {
        let bound = TcpListener::bind(("0.0.0.0", port));
        let bound = bound.and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        bound.map_err(Error::cannot(format!("listen on port {port} of {node}")))
    });
    let listeners = [outward?, back?];
    let (next_step, generation) = (AtomicU64::new(NO_STEP), AtomicU64::new(0));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if let Ok(Some(ranks)) = folder.read::<Ranks>(FILE) {
                    generation.store(ranks.generation, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let job = Job { folder, node, options, done, next_step: &next_step, newest: &generation };
        let result = job.go_on(&listeners);
        ended.store(true, Ordering::Relaxed);
        result
    })
}

struct Job<'a> {
    folder: &'a Folder,
    node: &'a str,
    options: &'a Options,
    done: &'a (dyn Fn(&RingStep) + Sync),
    next_step: &'a AtomicU64,
    newest: &'a AtomicU64,
}

impl Job<'_> {
    fn go_on(&self, listeners: &[TcpListener; 2]) -> Result<(), Error> {
        loop {
            let ranks: Ranks = self.folder.read(FILE)?.unwrap_or_default();
            let mut working = ranks.groups.iter().filter(|group| group.job.is_some()).peekable();
            let is_done = |id: &str| self.folder.file("done").join(id).exists();
            let job = ranks.find(self.node).filter(|(group, _)| group.job.is_some());
            let Some((group, at)) = job else {
                if working.peek().is_some() && working.all(|group| is_done(&group.id)) {
                    return Ok(());
                }
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            let Some(seats) = seats(group, at) else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            match self.round(&ranks, &group.id, seats, listeners) {
                Ok(()) => {
                    let file = self.folder.file("done").join(&group.id);
                    return std::fs::write(&file, "")
                        .map_err(Error::cannot("report that the group is done"));
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Err(Error::system("sum over the ring", error));
                }
                // A neighbour was lost or the rank file changed; continue with the new file.
                Err(_) if is_done(&group.id) => return Ok(()),
                Err(_) => {}
            }
        }
    }

    fn round(
        &self,
        ranks: &Ranks,
        group: &str,
        seats: [Seat; 2],
        listeners: &[TcpListener; 2],
    ) -> io::Result<()> {
        let (lost, barrier) = (AtomicBool::new(false), Barrier::new(2));
        let is_over = || {
            lost.load(Ordering::Relaxed) || self.newest.load(Ordering::Relaxed) > ranks.generation
        };
        let member = |which: usize| {
            let result = self.member(ranks, group, which, seats[which], listeners, &is_over);
            if result.is_err() {
                lost.store(true, Ordering::Relaxed);
            }
            barrier.wait();
            result
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| member(1));
            let own = member(0);
            let other = other.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()));
            own.and(other)
        })
    }

    fn member(
        &self,
        ranks: &Ranks,
        group: &str,
        which: usize,
        seat: Seat,
        listeners: &[TcpListener; 2],
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut link = Link::meet(seat, &listeners[which], ranks.generation, is_over)?;
        let own = self.next_step.load(Ordering::SeqCst);
        let talk = &mut |send: &[u8], receive: &mut [u8]| link.exchange(send, receive, is_over);
        let mut number = agree(own, seat.members, talk)?;
        while number < self.options.steps {
            let start = Instant::now();
            step(&mut link, seat, number, self.options.bytes / 4, is_over)?;
            number += 1;
            if which == 0 {
                self.next_step.store(number, Ordering::SeqCst);
                (self.done)(&RingStep {
                    node: self.node.to_owned(),
                    group: group.to_owned(),
                    generation: ranks.generation,
                    step: number - 1,
                    members: seat.members,
                    unix_us: unix_us(),
                    step_us: start.elapsed().as_micros() as u64,
                });
            }
            std::thread::sleep(self.options.pause);
        }
        Ok(())
    }
}
