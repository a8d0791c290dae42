// SPDX-License-Identifier: Apache-2.0
//! API listeners: a Unix socket, and TCP with mutual TLS. The daemon determines a client's identity
//! and roles before it reads any HTTP.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{ClientFile, Role, TlsFile};
use crate::protocol::tls as pem;
use lightloom_control::journal::hex;

/// Above it, a new connection replaces the longest idle one, or is closed if all are busy.
const CONNECTIONS_MAX: usize = 256;
const HEAD_WITHIN: Duration = Duration::from_secs(5);
const CONNECTION_WITHIN: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct Client {
    pub name: String,
    pub roles: BTreeSet<Role>,
}

impl Client {
    pub fn must_have(&self, role: Role) -> Result<(), Role> {
        let implied = role == Role::Phase && self.roles.contains(&Role::Apply);
        if implied || self.roles.contains(&role) { Ok(()) } else { Err(role) }
    }

    /// The daemon's own user and root have all roles; other local users may read and plan.
    fn of_user(uid: u32) -> Self {
        let own = rustix::process::geteuid().as_raw();
        let mut roles = BTreeSet::from([Role::Read, Role::Plan]);
        if uid == 0 || uid == own {
            roles.extend([Role::Apply, Role::Confirm, Role::Firmware]);
        }
        Self { name: format!("uid:{uid}"), roles }
    }
}

const CONNECTIONS_OF_ONE_MAX: usize = CONNECTIONS_MAX / 2;

#[derive(Debug, Default)]
struct Places(VecDeque<Place>);

#[derive(Debug)]
struct Place {
    task: AbortHandle,
    busy: Busy,
    of: String,
}

impl Place {
    fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }
}

/// Requests in progress on a connection, except those with an incomplete body.
pub type Busy = Arc<AtomicUsize>;

impl Places {
    fn give(&mut self, of: String, busy: Busy, serving: impl Future<Output = ()> + Send + 'static) {
        if self.0.len() >= CONNECTIONS_OF_ONE_MAX {
            self.0.retain(|place| !place.task.is_finished());
        }
        if self.count(&of) >= CONNECTIONS_OF_ONE_MAX {
            if !self.take_from(&of) {
                return;
            }
        } else if self.0.len() >= CONNECTIONS_MAX && !self.take_from_most() {
            return;
        }
        let task = tokio::spawn(serving).abort_handle();
        self.0.push_back(Place { task, busy, of });
    }

    fn take_from_most(&mut self) -> bool {
        let of = self.0.iter().filter(|place| place.is_idle()).map(|place| place.of.as_str());
        let most = of.max_by_key(|of| self.count(of)).map(str::to_owned);
        most.is_some_and(|most| self.take_from(&most))
    }

    fn count(&self, of: &str) -> usize {
        self.0.iter().filter(|place| place.of == of).count()
    }

    fn take_from(&mut self, of: &str) -> bool {
        let idle = self.0.iter().position(|place| place.of == of && place.is_idle());
        let idle = idle.and_then(|idle| self.0.remove(idle));
        idle.map(|place| place.task.abort()).is_some()
    }
}

pub(crate) struct Answering(Busy);

impl Answering {
    pub(crate) fn new(busy: &Busy) -> Self {
        busy.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(busy))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub async fn unix(listener: UnixListener, router: Router) {
    let mut places = Places::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let client = match stream.peer_cred() {
            Ok(credentials) => Client::of_user(credentials.uid()),
            Err(_) => continue,
        };
        let (router, busy, of) = (router.clone(), Busy::default(), client.name.clone());
        let serving = connection(stream, router, client, Arc::clone(&busy));
        places.give(of, busy, serving);
    }
}

pub async fn tls(listener: TcpListener, tls: TlsFile, config: ServerConfig, router: Router) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let clients: BTreeMap<String, ClientFile> =
        tls.clients.iter().map(|c| (c.sha256.to_lowercase(), c.clone())).collect();
    let clients = Arc::new(clients);
    let mut places = Places::default();
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (acceptor, clients, router) = (acceptor.clone(), clients.clone(), router.clone());
        let busy = Busy::default();
        let answering = Arc::clone(&busy);
        let serving = async move {
            let stream = tokio::time::timeout(HEAD_WITHIN, acceptor.accept(stream)).await;
            let Ok(Ok(stream)) = stream else {
                tracing::info!(%address, "no TLS handshake");
                return;
            };
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let client = client_of(certificate, &clients);
            connection(stream, router, client, answering).await;
        };
        places.give(address.ip().to_string(), busy, serving);
    }
}

fn client_of(
    certificate: Option<&CertificateDer<'_>>,
    clients: &BTreeMap<String, ClientFile>,
) -> Client {
    let hash = certificate.map(|certificate| hex(&Sha256::digest(certificate)));
    let hash = hash.unwrap_or_default();
    match clients.get(&hash) {
        Some(client) => Client { name: client.name.clone(), roles: client.roles.clone() },
        None => Client { name: format!("certificate:{hash}"), roles: BTreeSet::new() },
    }
}

pub async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    client: Client,
    busy: Busy,
) {
    let router = router.layer(Extension(client)).layer(Extension(busy));
    let service = TowerToHyperService::new(router);
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(CONNECTION_WITHIN, serving).await;
}

pub fn tls_config(tls: &TlsFile) -> io::Result<ServerConfig> {
    read_tls(tls).map_err(|error| io::Error::other(format!("TLS: {error:#}")))
}

fn read_tls(tls: &TlsFile) -> anyhow::Result<ServerConfig> {
    let certificates = pem::certificates(&tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)?;
    pem::server(pem::authorities(&tls.client_ca)?, certificates, key)
}
