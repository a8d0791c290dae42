// SPDX-License-Identifier: Apache-2.0
//! Runs the suite against an emulated switch behind a TLS server with new certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lightloom_devices::load;
use lightloom_devices::serve::{Options as Serving, Server, Stopper};
use lightloom_lab::conform;
use lightloom_lab::conform::link::RealDevice;
use lightloom_lab::conform::report::SuiteReport;
use lightloom_lab::conform::target::{Options, Protocol, Target, Tls, address};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

struct Authority(Issuer<'static, KeyPair>, String);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    /// Returns a certificate for `name` that expires on the first day of `until`, and its key.
    fn sign(&self, name: &str, until: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

struct Secured {
    at: String,
    stopper: Stopper,
    _end: oneshot::Sender<()>,
}

fn settings((certificate, key): (String, String), clients: Option<&Authority>) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.1.as_bytes()).unwrap()).unwrap();
            let provider = Arc::new(ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

async fn relay(listener: TcpListener, acceptor: TlsAcceptor, behind: String) {
    while let Ok((socket, _)) = listener.accept().await {
        let (acceptor, behind) = (acceptor.clone(), behind.clone());
        tokio::spawn(async move {
            let Ok(mut front) = acceptor.accept(socket).await else { return };
            let mut back = TcpStream::connect(behind).await.unwrap();
            let _either_side_may_end_it = copy_bidirectional(&mut front, &mut back).await;
        });
    }
}

impl Secured {
    fn start(own: (String, String), clients: Option<&Authority>) -> Self {
        let yaml = "switches: [{name: ocs0, ingress: 4, egress: 4, boot: 0ms, \
                    gnmi: {listen: \"127.0.0.1:0\"}}]";
        let (list, diagnostics) = load("devices.yaml", yaml.as_bytes());
        assert!(diagnostics.is_empty(), "{diagnostics:?}");
        let mut server = Server::start(list.unwrap(), &Serving::default()).unwrap();
        let (behind, stopper) = (server.addresses()[0].at.clone(), server.stopper());
        std::thread::spawn(move || server.run());

        let config = settings(own, clients);
        let acceptor = TlsAcceptor::from(Arc::new(config));

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let (end, ended) = oneshot::channel();
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! { _ = ended => {}, () = relay(listener, acceptor, behind) => {} }
            });
        });
        Self { at, stopper, _end: end }
    }

    fn conform(&self, tls: &Tls) -> Result<SuiteReport, String> {
        let target: Target = format!("gnmi://{}", self.at).parse().unwrap();
        let address = address(&target, tls, None).unwrap();
        let link = RealDevice::new(address, Arc::new(AtomicBool::new(false)));
        let options = Options { target: self.at.clone(), rounds: 1, ..Options::default() };
        conform::run(Protocol::Gnmi, Box::new(link), &options).map_err(|why| why.to_string())
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn refused(device: &Secured, tls: &Tls, words: &[&str]) {
    let why = device.conform(tls).expect_err("the connection is refused");
    for word in words {
        assert!(why.contains(word), "{word} is not in: {why}");
    }
}

#[test]
fn untrusted_certificate_is_named_with_its_defect() {
    let (folder, site, other) = (tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    let ca = file(folder.path(), "site.pem", &site.1);
    let tls = Tls { ca: Some(ca), ..Tls::default() };

    let good = Secured::start(site.sign("127.0.0.1", 2200), None);
    let report = good.conform(&tls).expect("it is reached");
    assert!(report.is_good() && report.count("passed") > 10, "{}", report.text());
    let wrong = file(folder.path(), "other.pem", &other.1);
    refused(&good, &Tls { ca: Some(wrong), ..Tls::default() }, &["--ca", "did not sign it"]);

    let named = Secured::start(site.sign("ocs0.example", 2200), None);
    refused(&named, &tls, &["a different name", "--name", "ocs0.example"]);
    let by_name = Tls { name: Some("ocs0.example".into()), ..tls.clone() };
    assert!(named.conform(&by_name).expect("it is reached").is_good());

    let expired = Secured::start(site.sign("127.0.0.1", 2020), None);
    refused(&expired, &tls, &["expired"]);
}

#[test]
fn device_requesting_a_client_certificate_receives_ours() {
    let (folder, site, other) = (tempfile::tempdir().unwrap(), Authority::new(), Authority::new());
    let ca = file(folder.path(), "site.pem", &site.1);
    let device = Secured::start(site.sign("127.0.0.1", 2200), Some(&site));
    let tls = Tls { ca: Some(ca), ..Tls::default() };
    refused(&device, &tls, &["--certificate", "--key"]);

    let with = |authority: &Authority, name: &str| {
        let (certificate, key) = authority.sign("me.example", 2200);
        let certificate = file(folder.path(), &format!("{name}.pem"), &certificate);
        let key = file(folder.path(), &format!("{name}.key"), &key);
        Tls { certificate: Some(certificate), key: Some(key), ..tls.clone() }
    };
    refused(&device, &with(&other, "other"), &["does not trust --certificate"]);
    assert!(device.conform(&with(&site, "me")).expect("it is reached").is_good());
}
