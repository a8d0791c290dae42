// SPDX-License-Identifier: Apache-2.0

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use lightloom_daemon::protocol::tls;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

const CONNECT_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct Certificates {
    /// CA certificates (PEM) for daemons at `https://HOST:PORT` [default: $LIGHTLOOM_CA].
    #[arg(long, global = true, display_order = 800, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Client certificate (PEM) [default: $LIGHTLOOM_CERTIFICATE].
    #[arg(long, global = true, display_order = 800, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Private key (PEM) of the client certificate [default: $LIGHTLOOM_KEY].
    #[arg(long, global = true, display_order = 800, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl Certificates {
    fn client(&self) -> anyhow::Result<Arc<ClientConfig>> {
        let authorities = tls::authorities(&file(&self.ca, "LIGHTLOOM_CA", "ca")?)?;
        let own = file(&self.certificate, "LIGHTLOOM_CERTIFICATE", "certificate")?;
        let key = file(&self.key, "LIGHTLOOM_KEY", "key")?;
        let identity = (tls::certificates(&own)?, tls::private_key(&key)?);
        Ok(Arc::new(tls::client(authorities, Some(identity))?))
    }
}

#[derive(Clone)]
pub(super) enum DaemonAddress {
    Socket(PathBuf),
    Tls { address: String, name: ServerName<'static>, config: Arc<ClientConfig> },
}

impl DaemonAddress {
    pub(super) fn all(named: &[String], certificates: &Certificates) -> anyhow::Result<Vec<Self>> {
        let mut config = None;
        let addresses = named.iter().map(|named| {
            if named.starts_with("http://") {
                bail!(
                    "`{named}` is not encrypted, and daemons accept TLS only: use `https://HOST:PORT` or the socket"
                );
            }
            let Some(address) = named.strip_prefix("https://") else {
                return Ok(Self::Socket(PathBuf::from(named)));
            };
            let address = address.trim_end_matches('/');
            if address.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                bail!("`{named}` has no port: expected `https://HOST:PORT`");
            }
            let config = match &config {
                Some(config) => Arc::clone(config),
                None => Arc::clone(config.insert(certificates.client()?)),
            };
            let name = tls::server_name(None, address)?;
            Ok(Self::Tls { address: address.to_owned(), name, config })
        });
        addresses.collect()
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Self::Socket(path) => path.display().to_string(),
            Self::Tls { address, .. } => format!("https://{address}"),
        }
    }

    pub(super) fn open(&self) -> anyhow::Result<Connection> {
        Ok(match self {
            Self::Socket(path) => Connection::Unix(UnixStream::connect(path)?),
            Self::Tls { address, name, config } => {
                let found = address.to_socket_addrs()?.next().context("no such host")?;
                let stream = TcpStream::connect_timeout(&found, CONNECT_WITHIN)?;
                stream.set_nodelay(true)?;
                let session = ClientConnection::new(Arc::clone(config), name.clone())?;
                Connection::Tls(Box::new(StreamOwned::new(session, stream)))
            }
        })
    }
}

pub(super) enum Connection {
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    pub(super) fn patience(&self, within: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(within)),
            Self::Tls(stream) => stream.sock.set_read_timeout(Some(within)),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            // Some peers close the connection without a TLS close_notify.
            Self::Tls(stream) => match stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                read => read,
            },
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

fn file(given: &Option<PathBuf>, name: &str, option: &str) -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(name).filter(|file| !file.is_empty()).map(PathBuf::from);
    given.clone().or(named).with_context(|| {
        format!("a daemon at `https://…` requires certificates: use --{option} FILE, or set {name}")
    })
}
