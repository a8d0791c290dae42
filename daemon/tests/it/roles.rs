// SPDX-License-Identifier: Apache-2.0
//! Tests access over TCP with mutual TLS. S10: each API verb requires its role, and all attempts
//! are in the audit log. S9: the daemon disconnects clients that send nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lightloom_daemon::config::{self, Role};
use lightloom_daemon::{api, serve, start};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName,
};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const VERBS: [(&str, &str, Role); 23] = [
    ("GET", "/v1/status", Role::Read),
    ("GET", "/v1/plan", Role::Read),
    ("GET", "/v1/drift", Role::Read),
    ("GET", "/v1/transactions/1", Role::Read),
    ("GET", "/v1/journal", Role::Read),
    ("GET", "/v1/log", Role::Read),
    ("GET", "/metrics", Role::Read),
    ("GET", "/v1/phases", Role::Read),
    ("GET", "/v1/phase/r1", Role::Read),
    ("GET", "/v1/module/n1/b0", Role::Firmware),
    ("POST", "/v1/diff", Role::Plan),
    ("POST", "/v1/rollback/diff", Role::Plan),
    ("POST", "/v1/faults/diff", Role::Plan),
    ("POST", "/v1/phase", Role::Phase),
    ("POST", "/v1/phase/release", Role::Phase),
    ("POST", "/v1/apply", Role::Apply),
    ("POST", "/v1/rollback", Role::Apply),
    ("POST", "/v1/adopt", Role::Apply),
    ("POST", "/v1/drain", Role::Apply),
    ("POST", "/v1/undrain", Role::Apply),
    ("POST", "/v1/resume", Role::Apply),
    ("POST", "/v1/faults", Role::Apply),
    ("POST", "/v1/confirm", Role::Confirm),
];

fn body(path: &str, id: usize) -> String {
    match path {
        "/v1/diff" => r#"{"target": {}}"#.into(),
        "/v1/apply" => format!(r#"{{"request_id": "r{id}", "target": {{}}}}"#),
        "/v1/rollback" | "/v1/rollback/diff" | "/v1/confirm" => {
            format!(r#"{{"request_id": "r{id}", "txn": 1}}"#)
        }
        "/v1/phase" => format!(
            r#"{{"request_id": "r{id}", "phase": "experts", "for_ms": 10, "lease_ms": 10}}"#
        ),
        "/v1/phase/release" | "/v1/resume" => format!(r#"{{"request_id": "r{id}"}}"#),
        "/v1/faults" | "/v1/faults/diff" => {
            format!(r#"{{"request_id": "r{id}", "broken": ["n1"]}}"#)
        }
        _ => format!(r#"{{"request_id": "r{id}", "devices": []}}"#),
    }
}

struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    fn signed_by(issuer: &Issuer<'_, KeyPair>) -> (Self, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()])
            .unwrap()
            .signed_by(&key, issuer)
            .unwrap();
        let identity = Self { certificate: certificate.der().clone(), key: key.serialize_der() };
        (identity, certificate.pem() + &key.serialize_pem())
    }

    fn sha256(&self) -> String {
        Sha256::digest(&self.certificate).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn connector(&self, roots: RootCertStore) -> TlsConnector {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![self.certificate.clone()], key)
            .unwrap();
        TlsConnector::from(Arc::new(config))
    }
}

async fn ask(
    connector: &TlsConnector,
    port: u16,
    verb: &str,
    path: &str,
    body: &str,
) -> Option<u16> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await.ok()?;
    let head = format!(
        "{verb} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // The peer may close the connection without a TLS close_notify.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

fn file(folder: &Path, clients: &[(Role, String)]) -> String {
    let shown = folder.display();
    let clients: Vec<String> = clients
        .iter()
        .map(|(role, sha256)| {
            let word = format!("{role:?}").to_lowercase();
            format!("    - {{name: {word}er, sha256: \"{sha256}\", roles: [{word}]}}\n")
        })
        .collect();
    format!(
        "state_dir: {shown}/state\ntls:\n  listen: \"127.0.0.1:0\"\n  certificate: {shown}/server.pem\n  \
         key: {shown}/server.pem\n  client_ca: {shown}/ca.pem\n  clients:\n{}",
        clients.concat()
    )
}

struct Door {
    folder: tempfile::TempDir,
    clients: Vec<(Role, TlsConnector)>,
    stranger: TlsConnector,
    forged: TlsConnector,
    port: u16,
}

impl Door {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&key).unwrap();
        let issuer = Issuer::from_params(&ca, key);
        let (_, server) = Identity::signed_by(&issuer);
        std::fs::write(folder.path().join("server.pem"), server).unwrap();
        std::fs::write(folder.path().join("ca.pem"), ca_certificate.pem()).unwrap();
        let roles =
            [Role::Read, Role::Plan, Role::Phase, Role::Apply, Role::Confirm, Role::Firmware];
        let identities: Vec<(Role, Identity)> =
            roles.iter().map(|role| (*role, Identity::signed_by(&issuer).0)).collect();
        let listed: Vec<_> = identities.iter().map(|(role, i)| (*role, i.sha256())).collect();
        let (config, mistakes) =
            config::load("daemon.yaml", file(folder.path(), &listed).as_bytes());
        let config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
        let mut roots = RootCertStore::empty();
        roots.add(ca_certificate.der().clone()).unwrap();
        let tls = config.file.tls.clone().unwrap();
        let server = serve::tls_config(&tls).unwrap();
        let listener = TcpListener::bind(tls.listen).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let daemon = start::start(config, None).unwrap();
        tokio::spawn(serve::tls(listener, tls, server, api::router(daemon.shared.clone())));
        tokio::spawn(daemon.runtime.run(daemon.calls, daemon.events));
        let other = Issuer::new(ca.clone(), KeyPair::generate().unwrap());
        let connector = |identity: &Identity| identity.connector(roots.clone());
        Self {
            folder,
            clients: identities.iter().map(|(role, i)| (*role, connector(i))).collect(),
            stranger: connector(&Identity::signed_by(&issuer).0),
            forged: connector(&Identity::signed_by(&other).0),
            port,
        }
    }

    fn everybody(&self) -> impl Iterator<Item = (BTreeSet<Role>, &TlsConnector)> {
        let listed = self.clients.iter().map(|(role, client)| (BTreeSet::from([*role]), client));
        let listed = listed.map(|(mut roles, client)| {
            // A client with the role `apply` may also request phases.
            roles.extend(roles.contains(&Role::Apply).then_some(Role::Phase));
            (roles, client)
        });
        listed.chain([(BTreeSet::new(), &self.stranger)])
    }

    fn client(&self, role: Role) -> &TlsConnector {
        &self.clients.iter().find(|(of, _)| *of == role).unwrap().1
    }

    fn written(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join("state").join(file)).unwrap()
    }

    async fn ask(&self, client: &TlsConnector, verb: &str, path: &str, body: &str) -> Option<u16> {
        ask(client, self.port, verb, path, body).await
    }
}

fn on_a_runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn s10_role_matrix_covers_every_api_verb() {
    let document: serde_json::Value = serde_json::from_str(&api::openapi()).unwrap();
    let mut verbs = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path
                .replace("{txn}", "1")
                .replace("{device}", "n1/b0")
                .replace("{request_id}", "r1");
            let verb = method.to_uppercase();
            let there = VERBS.iter().any(|(v, p, _)| (*v, *p) == (verb.as_str(), path.as_str()));
            assert!(there, "{verb} {path}");
            verbs += 1;
        }
    }
    assert!(verbs > 10, "{verbs}");
}

#[test]
fn s10_every_verb_requires_its_role_and_is_audited() {
    on_a_runtime(async {
        let door = Door::open().await;
        let (mut asked, mut changes, mut forbidden) = (0, 0, 0);
        for (roles, client) in door.everybody() {
            for (verb, path, role) in VERBS {
                asked += 1;
                changes += usize::from(verb == "POST" && !path.ends_with("/diff"));
                let journal = door.written("journal.log");
                let code = door.ask(client, verb, path, &body(path, asked)).await.unwrap();
                assert_eq!(code == 403, !roles.contains(&role), "{roles:?} {path}: {code}");
                if code == 403 {
                    forbidden += 1;
                    assert_eq!(door.written("journal.log"), journal, "{path} changed something");
                }
            }
        }
        assert_eq!(door.written("audit.log").lines().count(), changes, "one line for each attempt");
        // Clients without a certificate of the CA are rejected before the request.
        assert_eq!(door.ask(&door.forged, "GET", "/v1/status", "").await, None);
        println!(
            "S10: {asked} requests of 7 clients, {forbidden} forbidden, {changes} on the record"
        );
    });
}

#[test]
fn s10_no_path_bypasses_the_roles() {
    const PATHS: [&str; 10] = [
        "/../../etc/passwd",
        "/v1/../../etc/passwd",
        "/v1/status/../apply",
        "/v1/%2e%2e/apply",
        "/v1/transactions/..%2f..%2fjournal.log",
        "/v1/transactions/../apply",
        "/v1/transactions/%00",
        "//v1/apply",
        "/V1/APPLY",
        "/state/journal.log",
    ];
    on_a_runtime(async {
        let door = Door::open().await;
        let (journal, mut asked) = (door.written("journal.log"), 0);
        for (roles, client) in door.everybody() {
            for (verb, path) in PATHS.iter().flat_map(|path| [("GET", path), ("POST", path)]) {
                asked += 1;
                let code = door.ask(client, verb, path, &body("/v1/apply", asked)).await.unwrap();
                assert!((400..500).contains(&code), "{roles:?} {verb} {path}: {code}");
            }
        }
        assert_eq!(door.written("journal.log"), journal, "nothing was changed");
        println!("S10: {asked} requests along {} paths, none answered", PATHS.len());
    });
}

#[test]
fn s10_replayed_request_acts_once_and_requires_its_role() {
    on_a_runtime(async {
        let door = Door::open().await;
        let request = r#"{"request_id": "the same", "devices": []}"#;
        let adopt = async |client| door.ask(client, "POST", "/v1/adopt", request).await.unwrap();
        assert_eq!(adopt(door.client(Role::Apply)).await, 200);
        let journal = door.written("journal.log");
        for (roles, client) in door.everybody() {
            let code = adopt(client).await;
            assert_eq!(code == 403, !roles.contains(&Role::Apply), "{roles:?}: {code}");
        }
        assert_eq!(door.written("journal.log"), journal, "it acted once");
        assert_eq!(
            door.written("audit.log").lines().count(),
            8,
            "and each attempt is on the record"
        );
    });
}

async fn until_closed(stream: &mut (impl AsyncReadExt + Unpin), since: Instant) -> Duration {
    let mut bytes = [0; 256];
    while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    since.elapsed()
}

#[test]
fn s9_disconnects_silent_clients_and_serves_others() {
    on_a_runtime(async {
        let door = Door::open().await;
        let (port, name) = (door.port, ServerName::try_from("localhost").unwrap());
        let began = Instant::now();
        let mut shown_out = tokio::task::JoinSet::new();
        for client in 0..100 {
            let connector = door.client(Role::Read).clone();
            let name = name.clone();
            shown_out.spawn(async move {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                match client % 4 {
                    0 => ("silent", until_closed(&mut stream, began).await),
                    1 => {
                        let _ = stream.write_all(b"\x16\x03\x01\x02\x00\x01").await;
                        ("half a handshake", until_closed(&mut stream, began).await)
                    }
                    2 => {
                        let stream = connector.connect(name, stream).await.unwrap();
                        let (mut reads, mut writes) = tokio::io::split(stream);
                        let drip = tokio::spawn(async move {
                            for byte in b"GET /v1/status HTTP/1.1\r\nx-slow: ".iter().cycle() {
                                let _ = writes.write_all(&[*byte]).await;
                                let _ = writes.flush().await;
                                tokio::time::sleep(Duration::from_millis(200)).await;
                            }
                        });
                        let closed = until_closed(&mut reads, began).await;
                        drip.abort();
                        ("a byte at a time", closed)
                    }
                    _ => {
                        let mut stream = connector.connect(name, stream).await.unwrap();
                        let _ =
                            stream.write_all(b"GET /v1/drift HTTP/1.1\r\nhost: x\r\n\r\n").await;
                        ("answered, then gone", until_closed(&mut stream, began).await)
                    }
                }
            });
        }
        let mut waits = Vec::new();
        for _ in 0..100 {
            let asked = Instant::now();
            assert_eq!(door.ask(door.client(Role::Read), "GET", "/v1/status", "").await, Some(200));
            waits.push(asked.elapsed());
        }
        waits.sort();
        let mut longest = BTreeMap::<&str, Duration>::new();
        while let Some(one) = shown_out.join_next().await {
            let (what, after) = one.unwrap();
            let longest = longest.entry(what).or_default();
            *longest = after.max(*longest);
        }
        println!(
            "S9: beside 100 such clients answers took {:.1?} at the median, {:.1?} at p99; shown out after {longest:.1?}",
            waits[50], waits[98]
        );
        assert!(waits[50] < Duration::from_millis(50), "{waits:?}");
        assert!(waits[98] < Duration::from_secs(2), "{waits:?}");
        assert!(longest.values().all(|after| *after < Duration::from_secs(8)), "{longest:?}");
    });
}
