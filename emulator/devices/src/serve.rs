// SPDX-License-Identifier: Apache-2.0
//! Serves emulated devices on real ptys and TCP ports, in real time, on one thread.
//!
//! ```text
//!   ptys, TCP clients, control socket ──▶ epoll ──▶ Rack ──▶ bytes back, connections closed
//!                                           ▲        │
//!                                           └────────┘ sleeps until the next wake-up of any device
//! ```
//!
//! An idle rack makes no system calls. The control socket accepts lines of the form `DEVICE FAULT`
//! and responds with `ok` or an error.

#![expect(clippy::disallowed_methods, reason = "the server opens sockets and reads the clock")]

mod eeproms;
mod fuse;

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use lightloom_units::{Picoseconds, SimTime};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, ioctl_tiocnxcl, tcgetattr, tcsetattr};
use serde::Serialize;

use super::fault::DeviceFault;
use super::light::LightChange;
use super::list::{DeviceList, Endpoint};
use super::rack::{Rack, RackSlot};
use super::{Line, Output, Port};

/// If more bytes are pending, a connection is closed, or a pty loses bytes.
const PENDING_BYTES_MAX: usize = 8 << 20;
const CONTROL_LINE_BYTES_MAX: usize = 4096;
const CLIENTS_MAX: usize = 1024;
const EVENTS_PER_WAIT: usize = 256;

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directory for links to the ptys, which are named after the devices with `-` instead of `/`.
    pub links: Option<PathBuf>,
    pub control: Option<PathBuf>,
    pub eeproms: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServedAddress {
    pub name: String,
    /// `transceiver`, `switch` or `gnmi-switch`.
    pub kind: &'static str,
    /// `frames`, `scpi`, `scpi-serial`, `tl1`, `gnmi` or `eeprom`.
    pub speaks: &'static str,
    /// Path of a pty (its link, if links are created) or `ADDRESS:PORT`.
    pub at: String,
}

enum Channel {
    Pty { slot: RackSlot, master: OwnedFd, client_side: OwnedFd, pending: Vec<u8> },
    Listener { slot: RackSlot, port: Port, socket: TcpListener },
    Client { slot: RackSlot, socket: TcpStream, pending: Vec<u8> },
    Control(UnixListener),
    ControlClient { socket: UnixStream, received: Vec<u8> },
    Stop(Arc<OwnedFd>),
    Eeproms(eeproms::Eeproms),
}

impl Channel {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pty { master, .. } => master.as_fd(),
            Self::Listener { socket, .. } => socket.as_fd(),
            Self::Client { socket, .. } => socket.as_fd(),
            Self::Control(socket) => socket.as_fd(),
            Self::ControlClient { socket, .. } => socket.as_fd(),
            Self::Stop(event) => event.as_fd(),
            Self::Eeproms(eeproms) => eeproms.fd(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    pub fn stop(&self) {
        let _full_means_already_woken = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

pub struct Server {
    rack: Rack,
    epoll: OwnedFd,
    channels: BTreeMap<u32, Channel>,
    next_channel: u32,
    client_count: usize,
    addresses: Vec<ServedAddress>,
    stop: Arc<OwnedFd>,
    started: Instant,
    watcher: Option<Watcher>,
    eeproms: Option<u32>,
}

pub type Watcher = Box<dyn FnMut(Vec<LightChange>) + Send>;

impl Server {
    pub fn start(list: DeviceList, options: &Options) -> io::Result<Self> {
        raise_file_limit();
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut server = Self {
            rack: list.rack,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            channels: BTreeMap::new(),
            next_channel: 0,
            client_count: 0,
            addresses: Vec::new(),
            stop: Arc::clone(&stop),
            started: now_instant(),
            watcher: None,
            eeproms: None,
        };
        server.add(Channel::Stop(stop), EventFlags::IN)?;
        for (slot, endpoint) in list.endpoints {
            server.open_endpoint(slot, endpoint, options.links.as_deref())?;
        }
        if let Some(path) = &options.control {
            remove_if_present(path, |kind| std::os::unix::fs::FileTypeExt::is_socket(&kind))?;
            let socket = UnixListener::bind(path)?;
            socket.set_nonblocking(true)?;
            server.add(Channel::Control(socket), EventFlags::IN)?;
        }
        if let Some(folder) = &options.eeproms {
            server.open_eeproms(folder)?;
        }
        Ok(server)
    }

    pub fn addresses(&self) -> &[ServedAddress] {
        &self.addresses
    }

    /// The callback runs on the thread that serves the devices, so it must return quickly.
    pub fn watch_light(&mut self, watcher: Watcher) {
        self.rack.watch_light();
        self.watcher = Some(watcher);
    }

    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    fn open_endpoint(
        &mut self,
        slot: RackSlot,
        endpoint: Endpoint,
        links: Option<&Path>,
    ) -> io::Result<()> {
        let (name, device) = self.rack.device(slot);
        let (name, kind) = (name.to_owned(), device.kind());
        let (port, at) = match endpoint {
            Endpoint::Pty(port) => (port, self.open_pty(slot, port, &name, links)?),
            Endpoint::Tcp(port, address) => {
                let socket = TcpListener::bind(address).map_err(|error| {
                    io::Error::new(error.kind(), format!("{name}: {address}: {error}"))
                })?;
                socket.set_nonblocking(true)?;
                let at = socket.local_addr()?.to_string();
                self.add(Channel::Listener { slot, port, socket }, EventFlags::IN)?;
                (port, at)
            }
        };
        self.addresses.push(ServedAddress { name, kind, speaks: speaks(port), at });
        Ok(())
    }

    fn open_pty(
        &mut self,
        slot: RackSlot,
        port: Port,
        name: &str,
        links: Option<&Path>,
    ) -> io::Result<String> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)
            .map_err(|error| io::Error::other(format!("{name}: cannot open a pty: {error}")))?;
        grantpt(&master)?;
        unlockpt(&master)?;
        rustix::fs::fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK)?;
        // Keep this end open, so that the pty does not hang up between clients.
        let client_side = ioctl_tiocgptpeer(&master, flags)?;
        let mut mode = tcgetattr(&client_side)?;
        mode.make_raw();
        tcsetattr(&client_side, OptionalActions::Now, &mode)?;
        let path = ptsname(&master, Vec::new())?.to_string_lossy().into_owned();
        let at = match links {
            Some(folder) => link(folder, name, Path::new(&path))?,
            None => path,
        };
        let channel = Channel::Pty { slot, master, client_side, pending: Vec::new() };
        let id = self.add(channel, EventFlags::IN)?;
        let now = self.now();
        let mut out = Vec::new();
        self.rack.open(now, slot, Line(id), port, &mut out);
        self.send(out);
        Ok(at)
    }

    fn open_eeproms(&mut self, folder: &Path) -> io::Result<()> {
        let modules = self
            .rack
            .devices()
            .enumerate()
            .filter(|(_, (_, device))| device.kind() == "transceiver");
        let modules: Vec<_> =
            modules.map(|(slot, (name, _))| (name.to_owned(), RackSlot(slot))).collect();
        let names: Vec<_> = modules.iter().map(|(name, _)| name.clone()).collect();
        let eeproms = eeproms::Eeproms::mount(folder, modules)?;
        for name in names {
            let at = eeproms.file(&name).display().to_string();
            let address = ServedAddress { name, kind: "transceiver", speaks: "eeprom", at };
            self.addresses.push(address);
        }
        self.eeproms = Some(self.add(Channel::Eeproms(eeproms), EventFlags::IN)?);
        Ok(())
    }

    fn advance_eeproms(&mut self, now: SimTime, out: &mut Vec<Output>) -> Option<SimTime> {
        let Some(Channel::Eeproms(eeproms)) = self.channels.get_mut(&self.eeproms?) else {
            return None;
        };
        eeproms.advance(now, &mut self.rack, out);
        eeproms.next_wakeup()
    }

    fn add(&mut self, channel: Channel, flags: EventFlags) -> io::Result<u32> {
        let id = self.next_channel;
        self.next_channel += 1;
        epoll::add(&self.epoll, channel.fd(), EventData::new_u64(u64::from(id)), flags)?;
        self.channels.insert(id, channel);
        Ok(id)
    }

    fn now(&self) -> SimTime {
        let nanos = self.started.elapsed().as_nanos();
        SimTime::START + Picoseconds::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 1_000))
    }

    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        loop {
            let now = self.now();
            let mut out = Vec::new();
            self.rack.on_time(now, &mut out);
            let file_due = self.advance_eeproms(now, &mut out);
            self.send(out);
            if let Some(watcher) = &mut self.watcher {
                let changes = self.rack.light_changes(now);
                if !changes.is_empty() {
                    watcher(changes);
                }
            }
            let due = self.rack.next_wakeup().into_iter().chain(file_due).min();
            let timeout = due.map(|at| timespec(at.0.saturating_sub(now.0)));
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (id, flags) = (event.data.u64() as u32, event.flags);
                if matches!(self.channels.get(&id), Some(Channel::Stop(_))) {
                    return Ok(());
                }
                self.serve_channel(id, flags);
            }
        }
    }

    fn serve_channel(&mut self, id: u32, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.flush(id);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        match self.channels.get(&id) {
            Some(Channel::Pty { .. } | Channel::Client { .. }) => self.receive(id),
            Some(Channel::Listener { .. } | Channel::Control(_)) => self.accept(id),
            Some(Channel::ControlClient { .. }) => self.receive_control(id),
            Some(Channel::Stop(_)) | None => {}
            Some(Channel::Eeproms(_)) => {
                let Some(Channel::Eeproms(eeproms)) = self.channels.get_mut(&id) else { return };
                // The folder was unmounted or the kernel ended the connection. Other channels continue.
                if !eeproms.take() {
                    self.hang_up(id);
                }
            }
        }
    }

    fn receive(&mut self, id: u32) {
        let mut buffer = [0; 4096];
        let (slot, read) = match self.channels.get(&id) {
            Some(Channel::Pty { slot, master, client_side, .. }) => {
                // A client that died with exclusive access must not lock out its successor.
                let _only_a_courtesy = ioctl_tiocnxcl(client_side);
                (*slot, rustix::io::read(master, &mut buffer))
            }
            Some(Channel::Client { slot, socket, .. }) => {
                (*slot, rustix::io::read(socket, &mut buffer))
            }
            _ => return,
        };
        match read {
            Ok(0) => self.hang_up(id),
            Ok(length) => {
                let now = self.now();
                let mut out = Vec::new();
                self.rack.on_bytes(now, slot, Line(id), &buffer[..length], &mut out);
                self.send(out);
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::IO) => {}
            Err(_) => self.hang_up(id),
        }
    }

    fn accept(&mut self, id: u32) {
        match self.channels.get(&id) {
            Some(Channel::Listener { slot, port, socket }) => {
                let (slot, port) = (*slot, *port);
                let Ok((socket, _)) = socket.accept() else { return };
                if self.client_count >= CLIENTS_MAX || socket.set_nonblocking(true).is_err() {
                    return;
                }
                let _only_slower_without = socket.set_nodelay(true);
                let channel = Channel::Client { slot, socket, pending: Vec::new() };
                let Ok(id) = self.add(channel, EventFlags::IN) else { return };
                self.client_count += 1;
                let now = self.now();
                let mut out = Vec::new();
                self.rack.open(now, slot, Line(id), port, &mut out);
                self.send(out);
            }
            Some(Channel::Control(socket)) => {
                let Ok((socket, _)) = socket.accept() else { return };
                if self.client_count >= CLIENTS_MAX || socket.set_nonblocking(true).is_err() {
                    return;
                }
                let channel = Channel::ControlClient { socket, received: Vec::new() };
                if self.add(channel, EventFlags::IN).is_ok() {
                    self.client_count += 1;
                }
            }
            _ => {}
        }
    }

    fn receive_control(&mut self, id: u32) {
        let mut buffer = [0; 4096];
        let Some(Channel::ControlClient { socket, received }) = self.channels.get_mut(&id) else {
            return;
        };
        match rustix::io::read(&*socket, &mut buffer) {
            Ok(length) if length > 0 => received.extend_from_slice(&buffer[..length]),
            Err(Errno::AGAIN | Errno::INTR) => return,
            _ => return self.hang_up(id),
        }
        let mut lines = Vec::new();
        while let Some(end) = received.iter().position(|&byte| byte == b'\n') {
            lines.push(String::from_utf8_lossy(&received[..end]).trim().to_owned());
            received.drain(..=end);
        }
        if received.len() > CONTROL_LINE_BYTES_MAX {
            return self.hang_up(id);
        }
        for line in lines {
            let answer = self.obey(&line);
            if let Some(Channel::ControlClient { socket, .. }) = self.channels.get(&id) {
                let _a_deaf_client_gets_no_answer =
                    rustix::io::write(socket, format!("{answer}\n").as_bytes());
            }
        }
    }

    fn obey(&mut self, line: &str) -> String {
        let (name, fault) = line.split_once(' ').unwrap_or((line, ""));
        let slots = self.rack.slots_of(name);
        if slots.is_empty() {
            return format!("error: device `{name}` does not exist");
        }
        match fault.parse::<DeviceFault>() {
            Ok(fault) => {
                let now = self.now();
                let mut out = Vec::new();
                if let Some(why) = slots.iter().find_map(|slot| self.rack.objection(*slot, fault)) {
                    return format!("error: {why}");
                }
                for slot in slots {
                    self.rack.apply(now, slot, fault, &mut out);
                }
                self.send(out);
                "ok".to_owned()
            }
            Err(error) => format!("error: {error}"),
        }
    }

    fn send(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Bytes(Line(id), bytes) => {
                    if let Some(Channel::Pty { pending, .. } | Channel::Client { pending, .. }) =
                        self.channels.get_mut(&id)
                    {
                        pending.extend_from_slice(&bytes);
                        self.flush(id);
                    }
                }
                Output::Close(Line(id)) => {
                    if matches!(self.channels.get(&id), Some(Channel::Client { .. })) {
                        self.hang_up(id);
                    }
                }
            }
        }
    }

    fn flush(&mut self, id: u32) {
        let (pending, written, is_pty) = match self.channels.get_mut(&id) {
            Some(Channel::Pty { master, pending, .. }) => {
                let written = rustix::io::write(&*master, pending);
                (pending, written, true)
            }
            Some(Channel::Client { socket, pending, .. }) => {
                let written = rustix::io::write(&*socket, pending);
                (pending, written, false)
            }
            _ => return,
        };
        match written {
            Ok(length) => {
                pending.drain(..length);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) if is_pty => pending.clear(),
            Err(_) => return self.hang_up(id),
        }
        if pending.len() > PENDING_BYTES_MAX {
            if !is_pty {
                return self.hang_up(id);
            }
            pending.clear();
        }
        let flags =
            if pending.is_empty() { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT };
        if let Some(channel) = self.channels.get(&id) {
            let data = EventData::new_u64(u64::from(id));
            let _the_channel_is_registered = epoll::modify(&self.epoll, channel.fd(), data, flags);
        }
    }

    fn hang_up(&mut self, id: u32) {
        let Some(channel) = self.channels.remove(&id) else { return };
        let _closing_does_it_too = epoll::delete(&self.epoll, channel.fd());
        match channel {
            Channel::Client { slot, .. } => {
                self.client_count -= 1;
                let now = self.now();
                self.rack.close(now, slot, Line(id));
            }
            Channel::ControlClient { .. } => self.client_count -= 1,
            _ => {}
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

const fn speaks(port: Port) -> &'static str {
    match port {
        Port::Frames => "frames",
        Port::Scpi => "scpi",
        Port::ScpiSerial => "scpi-serial",
        Port::Tl1 => "tl1",
        Port::Gnmi => "gnmi",
    }
}

fn now_instant() -> Instant {
    Instant::now()
}

/// Each pty needs two files, so the usual soft limit of 1,024 would allow only 500 modules.
pub fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _the_old_limit_may_do = setrlimit(Resource::Nofile, limit);
}

fn timespec(picoseconds: u64) -> Timespec {
    let nanos = picoseconds.div_ceil(1_000);
    Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (nanos % 1_000_000_000) as _,
    }
}

fn link(folder: &Path, name: &str, target: &Path) -> io::Result<String> {
    let path = folder.join(name.replace('/', "-"));
    remove_if_present(&path, |kind| kind.is_symlink())?;
    std::os::unix::fs::symlink(target, &path)?;
    Ok(path.to_string_lossy().into_owned())
}

fn remove_if_present(path: &Path, is_ours: fn(std::fs::FileType) -> bool) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if is_ours(found.file_type()) => std::fs::remove_file(path),
        _ => Ok(()),
    }
}
