// SPDX-License-Identifier: Apache-2.0
//! A thread a module: a bus that hangs holds up the requests of its own module and of no other.
//!
//! A request of a connection that is over is not done: a fire that was given up never moves light later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use lightloom_firmware_api::message::{REGISTER_BYTES_MAX, Reply, Request, RequestRefusal};
use tokio::sync::mpsc::UnboundedSender;

use crate::frames::{AskedFrame, encode};
use crate::module::ServedModule;

/// Requests that wait for a module; more are refused as busy.
const WAITING_MAX: usize = 8;

/// Whether the connection of a request is open still.
#[derive(Clone, Debug, Default)]
pub struct ConnectionOpen(Arc<AtomicBool>);

impl ConnectionOpen {
    /// It is.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// It is no more.
    pub fn close(&self) {
        self.0.store(false, Ordering::Release);
    }

    fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A reply on its way.
#[derive(Clone, Debug)]
pub struct SaidFrame {
    /// As it goes on the line.
    pub bytes: Vec<u8>,
    /// Whether the connection is over then: another module is there, and has to be greeted.
    pub is_last: bool,
}

impl SaidFrame {
    fn new(asked: &AskedFrame, reply: &Reply<'_>) -> Self {
        let is_last = matches!(reply, Reply::Refused(RequestRefusal::OtherModule));
        Self { bytes: encode(asked, reply), is_last }
    }
}

struct ModuleJob {
    asked: AskedFrame,
    open: ConnectionOpen,
    out: UnboundedSender<SaidFrame>,
}

/// The way to a module.
#[derive(Clone, Debug)]
pub struct Worker {
    jobs: SyncSender<ModuleJob>,
}

impl Worker {
    /// Starts the thread of a module. It ends with the program.
    ///
    /// # Errors
    /// The system's.
    pub fn start(module: ServedModule) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let name = module.name().to_owned();
        std::thread::Builder::new().name(name).spawn(move || work(module, &waiting))?;
        Ok(Self { jobs })
    }

    /// Hands a request on; its reply goes to `out`.
    pub fn ask(&self, asked: AskedFrame, open: &ConnectionOpen, out: &UnboundedSender<SaidFrame>) {
        let job = ModuleJob { asked, open: open.clone(), out: out.clone() };
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) =
            self.jobs.try_send(job)
        {
            let busy = SaidFrame::new(&job.asked, &Reply::Refused(RequestRefusal::Busy));
            let _whoever_asked_is_gone = job.out.send(busy);
        }
    }
}

fn work(mut module: ServedModule, waiting: &Receiver<ModuleJob>) {
    while let Ok(job) = waiting.recv() {
        if !job.open.is_open() {
            continue;
        }
        let mut registers = [0; REGISTER_BYTES_MAX];
        let reply = match Request::decode(job.asked.command, &job.asked.payload) {
            Ok(request) => module.answer(&request, &mut registers),
            Err(refusal) => Reply::Refused(refusal),
        };
        let _whoever_asked_is_gone = job.out.send(SaidFrame::new(&job.asked, &reply));
    }
}
