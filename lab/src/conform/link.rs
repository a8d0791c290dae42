// SPDX-License-Identifier: Apache-2.0

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lightloom_drivers::INPUT_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, QueueSelector, tcflush, tcgetattr, tcsetattr};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error as TlsError,
    StreamOwned,
};

use super::case::CaseVerdict;

const SLICE: Duration = Duration::from_millis(50);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    #[error("{0}")]
    Lost(String),
    #[error("{0}")]
    Silent(String),
    #[error("{0}")]
    Nonsense(String),
    #[error("{0}")]
    Broken(String),
    #[error("interrupted")]
    Interrupted,
    /// The case ends early with this verdict.
    #[error("{0:?}")]
    Judged(CaseVerdict),
}

pub trait Link {
    fn open(&mut self) -> Result<(), ExchangeError>;

    fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeError>;

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, ExchangeError>;

    fn now(&self) -> Duration;

    /// Ignores later interruptions, so that the suite can undo its changes.
    fn shield(&mut self);

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Returns another connection to the device, which is not open yet. `None` for a serial line.
    fn another(&self) -> Option<Box<dyn Link>> {
        None
    }

    /// Restarts the device with a command of the operator.
    fn restart(&mut self, command: &str) -> Result<(), ExchangeError> {
        let status = Command::new("sh").args(["-c", command]).status();
        let is_done = status.is_ok_and(|status| status.success());
        is_done.then_some(()).ok_or_else(|| ExchangeError::Broken(format!("`{command}` failed")))
    }
}

/// Receives until `take` finds a message in the bytes. `None` if none arrives in time.
pub(super) fn receive_until<T>(
    link: &mut dyn Link,
    received: &mut Vec<u8>,
    within: Duration,
    take: impl Fn(&mut Vec<u8>) -> Option<T>,
) -> Result<Option<T>, ExchangeError> {
    let deadline = link.now() + within;
    loop {
        let found = take(received);
        let left = deadline.saturating_sub(link.now());
        if found.is_some() || left.is_zero() || received.len() > INPUT_BYTES_MAX {
            return Ok(found);
        }
        received.extend(link.receive(left)?);
    }
}

pub struct RealDevice {
    address: LinkAddress,
    stream: Option<LinkStream>,
    started: Instant,
    interrupted: Arc<AtomicBool>,
    is_shielded: bool,
}

#[derive(Clone, Debug)]
pub enum LinkAddress {
    Tcp(String),
    Tls(String, ServerName<'static>, Arc<ClientConfig>),
    /// Serial device or pty with its bit rate, 8N1, without flow control.
    Serial(String, u32),
}

enum LinkStream {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Serial(OwnedFd),
}

impl RealDevice {
    pub fn new(address: LinkAddress, interrupted: Arc<AtomicBool>) -> Self {
        Self { address, stream: None, started: Instant::now(), interrupted, is_shielded: false }
    }

    fn is_interrupted(&self) -> bool {
        !self.is_shielded && self.interrupted.load(Ordering::Relaxed)
    }
}

fn tcp(address: &str) -> io::Result<TcpStream> {
    let mut why = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for at in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&at, CONNECT_WITHIN) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SLICE))?;
                stream.set_write_timeout(Some(CONNECT_WITHIN))?;
                return Ok(stream);
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn serial(path: &str, bits_per_second: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let line = rustix::fs::open(path, flags, Mode::empty())?;
    let mut mode = tcgetattr(&line)?;
    mode.make_raw();
    mode.set_speed(bits_per_second)?;
    tcsetattr(&line, OptionalActions::Now, &mode)?;
    tcflush(&line, QueueSelector::IFlush)?;
    Ok(line)
}

fn open(address: &LinkAddress) -> io::Result<LinkStream> {
    Ok(match address {
        LinkAddress::Tcp(address) => LinkStream::Tcp(tcp(address)?),
        LinkAddress::Tls(address, name, config) => {
            let connection = ClientConnection::new(Arc::clone(config), name.clone())
                .map_err(io::Error::other)?;
            let mut stream = tcp(address)?;
            stream.set_read_timeout(Some(CONNECT_WITHIN))?;
            let mut connection = connection;
            while connection.is_handshaking() {
                connection.complete_io(&mut stream)?;
            }
            stream.set_read_timeout(Some(SLICE))?;
            LinkStream::Tls(Box::new(StreamOwned::new(connection, stream)))
        }
        LinkAddress::Serial(path, rate) => LinkStream::Serial(serial(path, *rate)?),
    })
}

fn named(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    let write = match tls {
        Some(TlsError::InvalidCertificate(why)) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "the CA in --ca did not sign it: use the CA that did"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "it is for a different name: pass that name with --name"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "it has expired: renew it, or correct the clock of this machine"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "it is not valid yet: compare the clocks of both machines"
            }
            _ => return error.to_string(),
        },
        Some(TlsError::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
        )) => "the device may require a client certificate: use --certificate and --key",
        Some(TlsError::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificate,
        )) => "the device does not trust --certificate: use one signed by a CA that it trusts",
        Some(TlsError::InvalidMessage(_)) => {
            "this port does not use TLS: use --plaintext if that is intended"
        }
        _ => return error.to_string(),
    };
    format!("{error} ({write})")
}

fn write_serial(line: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut waits = [PollFd::new(line, PollFlags::OUT)];
        let slice = Timespec { tv_sec: 2, tv_nsec: 0 };
        if poll(&mut waits, Some(&slice))? == 0 {
            return Err(io::Error::new(ErrorKind::TimedOut, "the serial device accepts no bytes"));
        }
        let written = rustix::io::write(line, bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

fn read_serial(line: &OwnedFd, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
    let mut waits = [PollFd::new(line, PollFlags::IN)];
    let slice = Timespec::try_from(within).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    if poll(&mut waits, Some(&slice))? == 0 {
        return Err(ErrorKind::WouldBlock.into());
    }
    Ok(rustix::io::read(line, buffer)?)
}

impl Link for RealDevice {
    fn open(&mut self) -> Result<(), ExchangeError> {
        self.stream = None;
        let stream = open(&self.address).map_err(|error| {
            let at = match &self.address {
                LinkAddress::Tcp(at) | LinkAddress::Tls(at, ..) | LinkAddress::Serial(at, _) => at,
            };
            ExchangeError::Lost(format!("cannot connect to {at}: {}", named(&error)))
        })?;
        self.stream = Some(stream);
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        let sent = match &mut self.stream {
            None => Err(io::Error::other("not connected")),
            Some(LinkStream::Tcp(stream)) => stream.write_all(bytes),
            Some(LinkStream::Tls(stream)) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Some(LinkStream::Serial(line)) => write_serial(line, bytes),
        };
        sent.map_err(|error| ExchangeError::Lost(format!("write: {}", named(&error))))
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, ExchangeError> {
        let deadline = self.now() + within;
        let mut buffer = [0; 16 << 10];
        loop {
            if self.is_interrupted() {
                return Err(ExchangeError::Interrupted);
            }
            let left = deadline.saturating_sub(self.now()).clamp(Duration::from_millis(1), SLICE);
            let read = match &mut self.stream {
                None => Err(io::Error::other("not connected")),
                Some(LinkStream::Tcp(stream)) => {
                    stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer))
                }
                Some(LinkStream::Tls(stream)) => {
                    stream.sock.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer))
                }
                Some(LinkStream::Serial(line)) => read_serial(line, &mut buffer, left),
            };
            match read {
                Ok(0) => {
                    return Err(ExchangeError::Lost("the device closed the connection".into()));
                }
                Ok(length) => return Ok(buffer[..length].to_vec()),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) =>
                {
                    if self.now() >= deadline {
                        return Ok(Vec::new());
                    }
                }
                Err(error) => return Err(ExchangeError::Lost(format!("read: {}", named(&error)))),
            }
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn shield(&mut self) {
        self.is_shielded = true;
    }

    fn another(&self) -> Option<Box<dyn Link>> {
        let (address, interrupted) = (self.address.clone(), Arc::clone(&self.interrupted));
        let is_line = matches!(address, LinkAddress::Serial(..));
        (!is_line).then(|| Box::new(Self::new(address, interrupted)) as _)
    }
}
