//! S10: every verb of the API times every role, over TCP with mutual TLS. A client without the role
//! changes nothing, and each attempt to change something is in the audit log.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

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

const VERBS: [(&str, &str, Role); 15] = [
    ("GET", "/v1/status", Role::Read),
    ("GET", "/v1/drift", Role::Read),
    ("GET", "/v1/journal", Role::Read),
    ("GET", "/v1/log", Role::Read),
    ("GET", "/metrics", Role::Read),
    ("POST", "/v1/diff", Role::Plan),
    ("POST", "/v1/rollback/diff", Role::Plan),
    ("POST", "/v1/faults/diff", Role::Plan),
    ("POST", "/v1/apply", Role::Apply),
    ("POST", "/v1/rollback", Role::Apply),
    ("POST", "/v1/adopt", Role::Apply),
    ("POST", "/v1/drain", Role::Apply),
    ("POST", "/v1/undrain", Role::Apply),
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
    // The peer may close without a TLS goodbye.
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

#[test]
fn s10_no_verb_without_its_role_and_every_attempt_on_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&key).unwrap();
    let issuer = Issuer::from_params(&ca, key);
    let (_, server) = Identity::signed_by(&issuer);
    std::fs::write(folder.path().join("server.pem"), server).unwrap();
    std::fs::write(folder.path().join("ca.pem"), ca_certificate.pem()).unwrap();
    let roles = [Role::Read, Role::Plan, Role::Apply, Role::Confirm, Role::Firmware];
    let identities: Vec<(Role, Identity)> =
        roles.iter().map(|role| (*role, Identity::signed_by(&issuer).0)).collect();
    let stranger = Identity::signed_by(&issuer).0;
    let listed: Vec<_> = identities.iter().map(|(role, i)| (*role, i.sha256())).collect();
    let text = file(folder.path(), &listed);
    let (config, mistakes) = config::load("daemon.yaml", text.as_bytes());
    let config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
    let mut roots = RootCertStore::empty();
    roots.add(ca_certificate.der().clone()).unwrap();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tls = config.file.tls.clone().unwrap();
        let server = serve::tls_config(&tls).unwrap();
        let listener = TcpListener::bind(tls.listen).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let daemon = start::start(config, None).unwrap();
        tokio::spawn(serve::tls(listener, tls, server, api::router(daemon.shared.clone())));
        tokio::spawn(daemon.runtime.run(daemon.calls, daemon.events));
        let (mut asked, mut changes, mut forbidden) = (0, 0, 0);
        let everybody = identities.iter().map(|(role, i)| (BTreeSet::from([*role]), i));
        for (roles, identity) in everybody.chain([(BTreeSet::new(), &stranger)]) {
            let connector = identity.connector(roots.clone());
            for (verb, path, role) in VERBS {
                asked += 1;
                changes += usize::from(verb == "POST" && !path.ends_with("/diff"));
                let code = ask(&connector, port, verb, path, &body(path, asked)).await.unwrap();
                assert_eq!(code == 403, !roles.contains(&role), "{roles:?} {path}: {code}");
                forbidden += usize::from(code == 403);
            }
        }
        let audit = std::fs::read_to_string(folder.path().join("state/audit.log")).unwrap();
        assert_eq!(audit.lines().count(), changes, "one line for each attempt");
        // A certificate of another authority, or none, does not even get to ask.
        let other = Issuer::new(ca.clone(), KeyPair::generate().unwrap());
        let forged = Identity::signed_by(&other).0.connector(roots.clone());
        assert_eq!(ask(&forged, port, "GET", "/v1/status", "").await, None);
        println!(
            "S10: {asked} requests of 6 clients, {forbidden} forbidden, {changes} on the record"
        );
    });
}
