// SPDX-License-Identifier: Apache-2.0
//! A TCP connection, with TLS or without, or a serial line: opened, closed and written as a tender says.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_serial::{ClearBuffer, SerialPort, SerialPortBuilderExt, SerialStream};

const READ_BYTES: usize = 16 << 10;

/// Where a device is.
#[derive(Clone, Debug)]
pub enum Address {
    /// `host:port`.
    Tcp(String),
    /// The same, with TLS.
    Tls {
        /// `host:port`.
        address: String,
        /// The name in its certificate.
        name: ServerName<'static>,
        /// Whom to trust, and who this is.
        config: Arc<ClientConfig>,
    },
    /// A serial line or pty and its bits per second; 8N1, no flow control.
    Serial {
        /// Its path.
        path: String,
        /// Its rate.
        bits_per_second: u32,
    },
}

enum Link {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Serial(SerialStream),
}

impl Link {
    async fn open(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Address::Tls { address, name, config } => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let connector = TlsConnector::from(Arc::clone(config));
                let stream = connector.connect(name.clone(), stream).await?;
                Ok(Self::Tls(Box::new(stream)))
            }
            Address::Serial { path, bits_per_second } => {
                let line = tokio_serial::new(path, *bits_per_second).open_native_async();
                let line = line.map_err(io::Error::from)?;
                // A line outlives who used it: what a daemon that was killed had asked for would be taken for the
                // answer to the first question of this one, and each later answer for the next question's.
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

    /// How many of the bytes were written.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes).await,
            Self::Tls(stream) => stream.write(bytes).await,
            Self::Serial(line) => line.write(bytes).await,
        }
    }

    /// Only TLS keeps bytes back; flushing a serial line would block until the last bit is out.
    async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush().await,
            Self::Tcp(_) | Self::Serial(_) => Ok(()),
        }
    }
}

/// What a connection is doing.
enum State {
    Closed,
    Opening(Pin<Box<dyn Future<Output = io::Result<Link>> + Send>>),
    Open(Link),
}

/// What happened on a connection.
#[derive(Debug)]
pub(crate) enum Heard<'a> {
    /// Bytes arrived.
    Bytes(&'a [u8]),
    /// It broke, or could not be opened.
    Broke(String),
    /// This machine cannot open it.
    Unopened(String),
}

/// A connection that is opened and closed as a tender says.
pub(crate) struct Wire {
    address: Option<Address>,
    state: State,
    /// Not written yet.
    outgoing: Vec<u8>,
    /// TLS holds on to what is written until it is flushed.
    is_unflushed: bool,
    buffer: Box<[u8]>,
}

impl Wire {
    /// Closed.
    pub(crate) fn to(address: Option<Address>) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self { address, state: State::Closed, outgoing: Vec::new(), is_unflushed: false, buffer }
    }

    /// Opens a fresh connection.
    pub(crate) fn open(&mut self) {
        self.close();
        if let Some(address) = self.address.clone() {
            self.state = State::Opening(Box::pin(async move { Link::open(&address).await }));
        }
    }

    /// What is not written yet is lost.
    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
        self.outgoing.clear();
        self.is_unflushed = false;
    }

    /// Sends these bytes, after those that wait.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.outgoing.extend_from_slice(bytes);
    }

    /// Writes what waits, and returns when something is heard. Nothing is lost when it is dropped half-way.
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
                State::Open(link) if !self.outgoing.is_empty() => {
                    match link.write(&self.outgoing).await {
                        Ok(written) => {
                            self.outgoing.drain(..written);
                            self.is_unflushed = true;
                        }
                        Err(error) => return self.broke(format!("write: {error}")),
                    }
                }
                State::Open(link) if self.is_unflushed => {
                    if let Err(error) = link.flush().await {
                        return self.broke(format!("write: {error}"));
                    }
                    self.is_unflushed = false;
                }
                State::Open(link) => match link.read(&mut self.buffer).await {
                    Ok(0) => return self.broke("the device closed the connection".into()),
                    Ok(length) => return Heard::Bytes(&self.buffer[..length]),
                    Err(error) => return self.broke(format!("read: {error}")),
                },
            }
        }
    }

    /// Whether it is this machine that cannot open a connection: a line of it that is missing or in use, or its network.
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
