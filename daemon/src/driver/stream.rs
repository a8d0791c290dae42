// SPDX-License-Identifier: Apache-2.0
//! Byte stream of a device: TCP with or without TLS, or a serial line.
//!
//! A leader that was suspended between queueing and writing may have lost its lease, so the fence is checked
//! immediately before each write of a command. Closing a connection resets it, even when the process is killed, so the
//! kernel discards unsent data. A connection without acknowledgements is dropped after 2 s.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_tcp_user_timeout};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_serial::{ClearBuffer, SerialPort, SerialPortBuilderExt, SerialStream};

use crate::fence::Fence;

const READ_BYTES: usize = 16 << 10;
/// How late the kernel of a stopped or isolated daemon can still deliver a command. The default
/// `late_within` of optical switches has the same value.
const UNACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(2);
pub(crate) const OUT_OF_LEASE: &str =
    "etcd is not renewing the lease of this daemon, so the rest of the command is not sent";

#[derive(Clone, Debug)]
pub enum Address {
    Tcp(String),
    Tls { address: String, name: ServerName<'static>, config: Arc<ClientConfig> },
    Serial { path: String, bits_per_second: u32 },
}

enum Link {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Serial(SerialStream),
}

impl Link {
    async fn open(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => Ok(Self::Tcp(connect(address).await?)),
            Address::Tls { address, name, config } => {
                let connector = TlsConnector::from(Arc::clone(config));
                let stream = connector.connect(name.clone(), connect(address).await?).await?;
                Ok(Self::Tls(Box::new(stream)))
            }
            Address::Serial { path, bits_per_second } => {
                let line = tokio_serial::new(path, *bits_per_second).open_native_async();
                let line = line.map_err(io::Error::from)?;
                // Discard replies to a killed daemon, which this daemon could mistake for its own.
                line.clear(ClearBuffer::Input).map_err(io::Error::from)?;
                Ok(Self::Serial(line))
            }
        }
    }

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer).await,
            Self::Tls(stream) => stream.read(buffer).await,
            Self::Serial(line) => line.read(buffer).await,
        }
    }

    fn writer(&mut self) -> &mut (dyn AsyncWrite + Unpin) {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream,
            Self::Serial(line) => line,
        }
    }

    /// Only TLS buffers output, and flushing a serial line would block until the last bit is sent.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
            Self::Tcp(_) | Self::Serial(_) => Poll::Ready(Ok(())),
        }
    }
}

async fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    let milliseconds = u32::try_from(UNACKNOWLEDGED_WITHIN.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(&stream, milliseconds)?;
    Ok(stream)
}

enum State {
    Closed,
    Opening(Pin<Box<dyn Future<Output = io::Result<Link>> + Send>>),
    Open(Link),
}

#[derive(Debug)]
pub(crate) enum Heard<'a> {
    Bytes(&'a [u8]),
    Broke(String),
    Unopened(String),
}

pub(crate) struct Wire {
    address: Option<Address>,
    state: State,
    outgoing: Vec<u8>,
    is_unflushed: bool,
    commands: bool,
    fence: Fence,
    buffer: Box<[u8]>,
}

impl Wire {
    pub(crate) fn to(address: Option<Address>, fence: Fence) -> Self {
        Self {
            address,
            state: State::Closed,
            outgoing: Vec::new(),
            is_unflushed: false,
            commands: false,
            fence,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
        }
    }

    pub(crate) fn open(&mut self) {
        self.close();
        if let Some(address) = self.address.clone() {
            self.state = State::Opening(Box::pin(async move { Link::open(&address).await }));
        }
    }

    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
        self.outgoing.clear();
        (self.is_unflushed, self.commands) = (false, false);
    }

    pub(crate) fn send(&mut self, bytes: &[u8], is_command: bool) {
        self.outgoing.extend_from_slice(bytes);
        self.commands |= is_command;
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let State::Open(link) = &mut self.state else { return Poll::Pending };
        if self.commands && !self.fence.is_open() {
            return Poll::Ready(Err(OUT_OF_LEASE.to_owned()));
        }
        let written = match self.outgoing.is_empty() {
            false => ready!(Pin::new(link.writer()).poll_write(context, &self.outgoing)),
            true => ready!(link.poll_flush(context)).map(|()| 0),
        };
        let written = written.map_err(|error| format!("write: {error}"))?;
        self.outgoing.drain(..written);
        self.is_unflushed = written > 0;
        self.commands &= !self.outgoing.is_empty() || self.is_unflushed;
        Poll::Ready(Ok(()))
    }

    pub(crate) async fn heard(&mut self) -> Heard<'_> {
        loop {
            match &mut self.state {
                State::Closed => std::future::pending().await,
                State::Opening(opening) => match opening.await {
                    Ok(link) => self.state = State::Open(link),
                    Err(error) => {
                        let is_local = self.is_local(&error);
                        self.close();
                        return match is_local {
                            true => Heard::Unopened(error.to_string()),
                            false => Heard::Broke(error.to_string()),
                        };
                    }
                },
                State::Open(_) if !self.outgoing.is_empty() || self.is_unflushed => {
                    if let Err(why) = poll_fn(|context| self.poll_write(context)).await {
                        return self.broke(why);
                    }
                }
                State::Open(link) => match link.read(&mut self.buffer).await {
                    Ok(0) => return self.broke("the device closed the connection".into()),
                    Ok(length) => return Heard::Bytes(&self.buffer[..length]),
                    Err(error) => return self.broke(format!("read: {error}")),
                },
            }
        }
    }

    fn is_local(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{AddrNotAvailable, NetworkDown, NetworkUnreachable, PermissionDenied};
        let here = [AddrNotAvailable, NetworkDown, NetworkUnreachable, PermissionDenied];
        matches!(self.address, Some(Address::Serial { .. })) || here.contains(&error.kind())
    }

    fn broke(&mut self, why: String) -> Heard<'static> {
        self.close();
        Heard::Broke(why)
    }
}
