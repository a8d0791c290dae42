// SPDX-License-Identifier: Apache-2.0
//! One thread per module, so that a hung bus delays only requests to that module.
//!
//! The thread skips requests of closed connections, which must not switch a module later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};

use lightloom_firmware_api::message::{REGISTER_BYTES_MAX, Reply, Request, RequestRefusal};
use tokio::sync::mpsc::UnboundedSender;

use crate::frames::{AskedFrame, encode, encode_event};
use crate::module::ServedModule;
use crate::watch::LOOK_EVERY;

const WAITING_MAX: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct ConnectionOpen(Arc<AtomicBool>);

impl ConnectionOpen {
    pub fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub fn close(&self) {
        self.0.store(false, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Clone, Debug)]
pub struct SaidFrame {
    pub bytes: Vec<u8>,
    pub is_last: bool,
}

impl SaidFrame {
    fn new(asked: &AskedFrame, reply: &Reply<'_>) -> Self {
        let is_last = matches!(reply, Reply::Refused(RequestRefusal::OtherModule));
        Self { bytes: encode(asked, reply), is_last }
    }
}

struct ModuleJob {
    what: ModuleTask,
    open: ConnectionOpen,
    out: UnboundedSender<SaidFrame>,
}

enum ModuleTask {
    Answer(AskedFrame),
    Acknowledge(u16),
}

#[derive(Clone, Debug)]
pub struct Worker {
    jobs: SyncSender<ModuleJob>,
}

impl Worker {
    pub fn start(module: ServedModule) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let name = module.name().to_owned();
        std::thread::Builder::new().name(name).spawn(move || work(module, &waiting))?;
        Ok(Self { jobs })
    }

    pub fn ask(&self, asked: AskedFrame, open: &ConnectionOpen, out: &UnboundedSender<SaidFrame>) {
        let what = ModuleTask::Answer(asked);
        let job = ModuleJob { what, open: open.clone(), out: out.clone() };
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
            self.jobs.try_send(job)
            && let ModuleTask::Answer(asked) = job.what
        {
            let busy = SaidFrame::new(&asked, &Reply::Refused(RequestRefusal::Busy));
            let _whoever_asked_is_gone = job.out.send(busy);
        }
    }

    pub fn acknowledge(
        &self,
        number: u16,
        open: &ConnectionOpen,
        out: &UnboundedSender<SaidFrame>,
    ) {
        let what = ModuleTask::Acknowledge(number);
        let _no_room = self.jobs.try_send(ModuleJob { what, open: open.clone(), out: out.clone() });
    }
}

fn work(mut module: ServedModule, waiting: &Receiver<ModuleJob>) {
    let mut listener: Option<(ConnectionOpen, UnboundedSender<SaidFrame>)> = None;
    loop {
        let next = match module.watches() {
            true => waiting.recv_timeout(LOOK_EVERY),
            false => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some((_, out)) = listener.as_ref().filter(|(open, _)| open.is_open()) else {
                    module.ends_watch();
                    continue;
                };
                if let Some((number, event)) = module.look() {
                    let bytes = encode_event(number, &event);
                    let _whoever_listened_is_gone = out.send(SaidFrame { bytes, is_last: false });
                }
            }
            Ok(job) if !job.open.is_open() => {}
            Ok(ModuleJob { what: ModuleTask::Acknowledge(number), .. }) => {
                module.acknowledged(number)
            }
            Ok(ModuleJob { what: ModuleTask::Answer(asked), open, out }) => {
                let mut registers = [0; REGISTER_BYTES_MAX];
                let reply = match Request::decode(asked.command, &asked.payload) {
                    Ok(request) => module.answer(&request, &mut registers),
                    Err(refusal) => Reply::Refused(refusal),
                };
                let said = SaidFrame::new(&asked, &reply);
                if matches!(reply, Reply::Events(_)) {
                    listener = Some((open, out.clone()));
                }
                let _whoever_asked_is_gone = out.send(said);
            }
        }
    }
}
