// SPDX-License-Identifier: Apache-2.0
//! Connections from daemons. After the mutual TLS handshake, the daemon names a module and then exchanges frames of the
//! serial protocol with it. A new connection to a module replaces the previous one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use lightloom_daemon::protocol::tls;
use lightloom_firmware_api::frame::{FrameKind, Reassembler, VERSION};
use lightloom_firmware_api::message::{Reply, Request, RequestRefusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::eeprom::Eeprom;
use crate::file::{AgentFile, HostTlsFile, I2cFile, ModuleFile};
use crate::frames::{AskedFrame, encode};
use crate::i2c::I2c;
use crate::linux_i2c::LinuxWire;
use crate::memory::ModuleMemory;
use crate::module::{AgentState, ServedModule};
use crate::moves::MoveLog;
use crate::profile::{self, ModuleProfile};
use crate::worker::{ConnectionOpen, SaidFrame, Worker};

const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
const NAME_WITHIN: Duration = Duration::from_secs(5);
const CONNECTIONS_MAX: usize = 4096;

#[derive(Debug)]
pub struct AgentServer {
    modules: BTreeMap<String, Cage>,
}

#[derive(Debug)]
struct Cage {
    worker: Worker,
    holder: Mutex<Arc<Notify>>,
}

impl AgentServer {
    pub fn start(file: &AgentFile) -> anyhow::Result<Self> {
        let profiles = profiles(file)?;
        let shared = Arc::new(AgentState::new(MoveLog::open(&file.state_dir)?, file.allow_moves));
        let mut modules = BTreeMap::new();
        for (module, profile) in file.cages.iter().zip(profiles) {
            let memory = reach(module)?;
            let (name, serial) = (module.name.clone(), module.serial.clone());
            let served =
                ServedModule::new(name.clone(), serial, profile, memory, Arc::clone(&shared));
            let worker = Worker::start(served).with_context(|| format!("module {name}"))?;
            modules.insert(name, Cage { worker, holder: Mutex::default() });
        }
        Ok(Self { modules })
    }

    pub async fn serve(self, listener: TcpListener, acceptor: TlsAcceptor) -> anyhow::Result<()> {
        let agent = Arc::new(self);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let permit = Arc::clone(&room).acquire_owned().await?;
            let (stream, peer) = listener.accept().await?;
            let (agent, acceptor) = (Arc::clone(&agent), acceptor.clone());
            tokio::spawn(async move {
                if let Err(error) = agent.connection(stream, acceptor).await {
                    tracing::warn!(%peer, "{error:#}");
                }
                drop(permit);
            });
        }
    }

    async fn connection(&self, stream: TcpStream, acceptor: TlsAcceptor) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let stream = tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream))
            .await
            .context("no handshake")?
            .context("the handshake failed; help: is it a daemon of this cluster?")?;
        let (out, outgoing) = unbounded_channel();
        let mut line = DaemonLine { stream, reassembler: Reassembler::new(), outgoing };
        let named = tokio::time::timeout(NAME_WITHIN, line.asked()).await;
        let Some(first) = named.context("the client did not request a module")?? else {
            return Ok(());
        };
        let name = match Request::decode(first.command, &first.payload) {
            Ok(Request::Module { name }) => String::from_utf8_lossy(name).into_owned(),
            _ => anyhow::bail!("the client did not request a module"),
        };
        let Some(place) = self.modules.get(&name) else {
            line.say(&encode(&first, &Reply::Refused(RequestRefusal::NoSuchModule))).await?;
            anyhow::bail!("this agent has no module `{name}`");
        };
        line.say(&encode(&first, &Reply::Done)).await?;
        let (taken, open) = (place.take(), ConnectionOpen::new());
        let ended = tokio::select! {
            ended = line.serve(place, &open, &out) => ended,
            () = taken.notified() => Ok(()),
        };
        open.close();
        ended
    }
}

impl Cage {
    fn take(&self) -> Arc<Notify> {
        let taken = Arc::new(Notify::new());
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *holder, Arc::clone(&taken)).notify_one();
        taken
    }
}

struct DaemonLine {
    stream: TlsStream<TcpStream>,
    reassembler: Reassembler,
    outgoing: UnboundedReceiver<SaidFrame>,
}

impl DaemonLine {
    async fn asked(&mut self) -> anyhow::Result<Option<AskedFrame>> {
        loop {
            let mut byte = [0];
            if self.stream.read(&mut byte).await? == 0 {
                return Ok(None);
            }
            let mut found = None;
            take(&mut self.reassembler, &byte, |heard| match heard {
                HeardFrame::Request(asked) => found = Some(asked),
                HeardFrame::Acknowledgement(_) => {}
            });
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    async fn say(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }

    async fn serve(
        &mut self,
        place: &Cage,
        open: &ConnectionOpen,
        out: &UnboundedSender<SaidFrame>,
    ) -> anyhow::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            tokio::select! {
                read = self.stream.read(&mut buffer) => {
                    let length = read?;
                    if length == 0 {
                        return Ok(());
                    }
                    take(&mut self.reassembler, &buffer[..length], |heard| match heard {
                        HeardFrame::Request(asked) => place.worker.ask(asked, open, out),
                        HeardFrame::Acknowledgement(number) => place.worker.acknowledge(number, open, out),
                    });
                }
                Some(said) = self.outgoing.recv() => {
                    self.say(&said.bytes).await?;
                    if said.is_last {
                        return Ok(());
                    }
                }
            }
        }
    }
}

enum HeardFrame {
    Request(AskedFrame),
    Acknowledgement(u16),
}

fn take(reassembler: &mut Reassembler, bytes: &[u8], mut on: impl FnMut(HeardFrame)) {
    for byte in bytes {
        let Some(Ok(frame)) = reassembler.push(*byte) else { continue };
        let (sequence, command) = (frame.sequence, frame.command);
        match frame.kind {
            _ if frame.version != VERSION => {}
            FrameKind::Request => {
                on(HeardFrame::Request(AskedFrame {
                    sequence,
                    command,
                    payload: frame.payload.to_vec(),
                }));
            }
            FrameKind::Acknowledge => on(HeardFrame::Acknowledgement(sequence)),
            FrameKind::Reply | FrameKind::Event => {}
        }
    }
}

fn reach(module: &ModuleFile) -> anyhow::Result<Box<dyn ModuleMemory>> {
    Ok(match (&module.eeprom, &module.i2c) {
        (Some(eeprom), _) => Box::new(Eeprom::new(eeprom.clone())),
        (None, Some(I2cFile { bus, address })) => {
            let wire = LinuxWire::open(bus, *address);
            Box::new(I2c::new(wire.with_context(|| format!("cannot open {}", bus.display()))?))
        }
        (None, None) => anyhow::bail!("module {}: neither `eeprom` nor `i2c` is set", module.name),
    })
}

pub fn profiles(file: &AgentFile) -> anyhow::Result<Vec<Arc<ModuleProfile>>> {
    let mut known: BTreeMap<&std::path::Path, Arc<ModuleProfile>> = BTreeMap::new();
    let mut found = Vec::new();
    for module in &file.cages {
        let path = module.profile.as_path();
        if !known.contains_key(path) {
            known.insert(path, Arc::new(profile::read(path)?));
        }
        found.push(Arc::clone(&known[path]));
    }
    Ok(found)
}

pub fn acceptor(file: &HostTlsFile) -> anyhow::Result<TlsAcceptor> {
    let certificates = tls::certificates(&file.certificate)?;
    let key = tls::private_key(&file.key)?;
    let config = tls::server(tls::authorities(&file.client_ca)?, certificates, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
