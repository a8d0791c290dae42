// SPDX-License-Identifier: Apache-2.0
//! A dialect over a TCP connection, with TLS or without, or a serial line.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_serial::{ClearBuffer, SerialPort, SerialPortBuilderExt, SerialStream};

use super::{Boxed, Driver, Idle};
use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::mover::Promise;
use lightloom_control::state::{Op, Outcome};
use lightloom_drivers::module::Module;
use lightloom_drivers::{Dialect, Reached, Session};

/// How long a connection and a hello may take.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(3);
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

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
            Self::Serial(line) => line.write_all(bytes).await,
        }
    }
}

/// A driver that speaks a dialect over a byte stream.
pub struct StreamDriver<D> {
    address: Address,
    session: Session<D>,
    link: Option<Link>,
    buffer: Box<[u8]>,
}

impl<D: Dialect> StreamDriver<D> {
    /// Not connected yet.
    pub fn new(address: Address, dialect: D) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self { address, session: Session::new(dialect), link: None, buffer }
    }

    /// Writes and reads until the session has come to something.
    async fn until_reached(&mut self, mut out: Vec<u8>) -> Reached {
        let Some(link) = &mut self.link else { return Reached::Lost("not connected".into()) };
        loop {
            if !out.is_empty()
                && let Err(error) = link.write(&out).await
            {
                return Reached::Lost(format!("write: {error}"));
            }
            out.clear();
            match link.read(&mut self.buffer).await {
                Ok(0) => return Reached::Lost("the device closed the connection".into()),
                Err(error) => return Reached::Lost(format!("read: {error}")),
                Ok(length) => {
                    let reached = self.session.received(&self.buffer[..length], &mut out);
                    if let Some(reached) = reached {
                        // What is left to send is an acknowledgement: if it is lost, the report comes again.
                        let _ = link.write(&out).await;
                        return reached;
                    }
                }
            }
        }
    }

    fn close(&mut self) {
        self.link = None;
        self.session.closed();
    }

    async fn hello(&mut self) -> Result<String, String> {
        self.close();
        let link = Link::open(&self.address).await.map_err(|error| error.to_string())?;
        self.link = Some(link);
        let mut out = Vec::new();
        self.session.connected(&mut out);
        match self.until_reached(out).await {
            Reached::Ready(identity) => Ok(identity),
            Reached::Lost(why) => Err(why),
            Reached::Ended(outcome) => Err(format!("{outcome:?} before it said who it is")),
        }
    }
}

impl<D: Dialect + Clone> Driver for StreamDriver<D> {
    fn connect(&mut self) -> Boxed<'_, Result<String, String>> {
        Box::pin(async move {
            let hello = tokio::time::timeout(CONNECT_WITHIN, self.hello()).await;
            let result = hello.unwrap_or_else(|_| Err("no answer to hello in time".into()));
            if result.is_err() {
                self.close();
            }
            result
        })
    }

    fn promise(&self) -> Option<Promise> {
        self.session.dialect().promise()
    }

    fn run<'a>(&'a mut self, op: &'a Op) -> Boxed<'a, Outcome> {
        Box::pin(async move {
            let mut out = Vec::new();
            if let Some(outcome) = self.session.start(op, &mut out) {
                return outcome;
            }
            match self.until_reached(out).await {
                Reached::Ended(outcome) => outcome,
                Reached::Lost(why) => {
                    self.close();
                    Outcome::Unknown(why)
                }
                Reached::Ready(_) => Outcome::Unknown("a hello out of turn".into()),
            }
        })
    }

    fn look(&mut self) -> Boxed<'_, Result<Module, Outcome>> {
        Box::pin(async move {
            let mut out = Vec::new();
            self.session.look(&mut out)?;
            match self.until_reached(out).await {
                Reached::Ended(Outcome::Done(_)) => {
                    let module = self.session.dialect().module();
                    module.ok_or_else(|| Outcome::Failed("its registers make no sense".into()))
                }
                Reached::Ended(outcome) => Err(outcome),
                Reached::Lost(why) => {
                    self.close();
                    Err(Outcome::Unknown(why))
                }
                Reached::Ready(_) => Err(Outcome::Unknown("a hello out of turn".into())),
            }
        })
    }

    fn idle(&mut self) -> Boxed<'_, Idle> {
        Box::pin(async move {
            let Some(link) = &mut self.link else { return Idle::Lost("not connected".into()) };
            let mut out = Vec::new();
            loop {
                if self.session.has_reports() {
                    return Idle::Reports;
                }
                match link.read(&mut self.buffer).await {
                    Ok(0) => return Idle::Lost("the device closed the connection".into()),
                    Err(error) => return Idle::Lost(error.to_string()),
                    Ok(length) => {
                        let reached = self.session.received(&self.buffer[..length], &mut out);
                        if let Some(Reached::Lost(why)) = reached {
                            return Idle::Lost(why);
                        }
                        if !out.is_empty()
                            && let Err(error) = link.write(&out).await
                        {
                            return Idle::Lost(format!("write: {error}"));
                        }
                        out.clear();
                    }
                }
            }
        })
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        self.session.foreign()
    }

    fn signals(&mut self) -> Vec<Signal> {
        self.session.signals()
    }

    fn disconnect(&mut self) {
        self.close();
    }

    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String> {
        lightloom_drivers::preview(self.session.dialect(), ops)
    }

    fn noise(&self) -> u64 {
        self.session.noise()
    }
}
