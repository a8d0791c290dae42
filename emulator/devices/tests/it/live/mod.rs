// SPDX-License-Identifier: Apache-2.0
//! Clients of served devices, with a time limit on every read.
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lightloom_devices::load;
use lightloom_devices::serve::{Options, ServedAddress, Server, Stopper};
use lightloom_firmware_api::frame::ENCODED_BYTES_MAX;
use lightloom_firmware_api::host::Host;
use lightloom_firmware_api::message::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

pub(crate) struct Served {
    pub(crate) addresses: Vec<ServedAddress>,
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Served {
    pub(crate) fn start(yaml: &str, options: &Options) -> Self {
        let (list, diagnostics) = load("devices.yaml", yaml.as_bytes());
        assert!(diagnostics.is_empty(), "{diagnostics:?}");
        let mut server =
            Server::start(list.expect("the list is valid"), options).expect("it starts");
        let (addresses, stopper) = (server.addresses().to_vec(), server.stopper());
        #[expect(
            clippy::disallowed_methods,
            reason = "a live test runs the device in another thread"
        )]
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { addresses, stopper, thread }
    }

    pub(crate) fn at(&self, name: &str, speaks: &str) -> &str {
        let address =
            self.addresses.iter().find(|address| address.name == name && address.speaks == speaks);
        &address.expect("the device is served").at
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().expect("started once").join();
        assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
    }
}

pub(crate) struct Client {
    fd: OwnedFd,
}

impl Client {
    pub(crate) fn pty(path: &str) -> Self {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Self { fd: rustix::fs::open(path, flags, Mode::empty()).expect("the pty opens") }
    }

    pub(crate) fn tcp(address: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a live test connects to the device")]
        let socket = std::net::TcpStream::connect(address).expect("the port is open");
        socket.set_nonblocking(true).expect("sockets can");
        socket.set_nodelay(true).expect("sockets can");
        Self { fd: socket.into() }
    }

    pub(crate) fn write(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match rustix::io::write(&self.fd, bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::OUT, Duration::from_secs(5)),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn wait(&self, flags: PollFlags, at_most: Duration) {
        let limit = Timespec {
            tv_sec: at_most.as_secs() as i64,
            tv_nsec: i64::from(at_most.subsec_nanos()),
        };
        let _ = poll(&mut [PollFd::new(&self.fd.as_fd(), flags)], Some(&limit));
    }

    pub(crate) fn read_until(
        &self,
        at_most: Duration,
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> Vec<u8> {
        let (began, mut seen, mut buffer) = (now(), Vec::new(), [0; 4096]);
        while !is_whole(&seen) && began.elapsed() < at_most {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => break,
                Ok(length) => seen.extend_from_slice(&buffer[..length]),
                Err(rustix::io::Errno::AGAIN) => {
                    self.wait(PollFlags::IN, at_most.saturating_sub(began.elapsed()));
                }
                Err(error) => panic!("{error}"),
            }
        }
        seen
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.wait(PollFlags::IN, Duration::from_secs(5));
        matches!(rustix::io::read(&self.fd, &mut [0; 1]), Ok(0))
    }

    pub(crate) fn say(&self, text: &str, end: &str) -> String {
        self.write(text.as_bytes());
        let end = end.as_bytes();
        let seen = self.read_until(Duration::from_secs(5), |seen| seen.ends_with(end));
        String::from_utf8(seen).expect("devices speak ASCII")
    }
}

pub(crate) struct Framed {
    pub(crate) client: Client,
    pub(crate) host: Host,
}

impl Framed {
    pub(crate) fn open(path: &str) -> Self {
        Self { client: Client::pty(path), host: Host::new() }
    }

    pub(crate) fn send(&mut self, request: &Request<'_>) {
        let mut line = [0; ENCODED_BYTES_MAX];
        let (_, length) = self.host.request(request, &mut line);
        self.client.write(&line[..length]);
    }

    pub(crate) fn reply<T>(
        &mut self,
        at_most: Duration,
        read: impl Fn(Reply<'_>) -> T,
    ) -> Option<T> {
        let ended = |seen: &[u8]| seen.len() > 2 && seen.ends_with(&[0]);
        let seen = self.client.read_until(at_most, ended);
        let mut reply = None;
        self.host.receive(&seen, |answer| {
            reply = Some(read(answer.expect("whole frames").reply));
        });
        reply
    }
}

#[expect(clippy::disallowed_methods, reason = "a live test measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
