// SPDX-License-Identifier: Apache-2.0

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};

pub fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let read =
        CertificateDer::pem_file_iter(path).with_context(|| format!("cannot read {shown}"))?;
    let found: Vec<_> =
        read.collect::<Result<_, _>>().with_context(|| format!("{shown} is not PEM"))?;
    if found.is_empty() {
        bail!("{shown} contains no certificate");
    }
    Ok(found)
}

pub fn authorities(path: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .with_context(|| format!("{} is not a CA certificate", path.display()))?;
    }
    Ok(roots)
}

pub fn private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let pem = super::secret(path)?;
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .with_context(|| format!("{} contains no private key", path.display()))
}

pub fn client(
    authorities: RootCertStore,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> anyhow::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities);
    Ok(match identity {
        Some((certificates, key)) => builder.with_client_auth_cert(certificates, key)?,
        None => builder.with_no_client_auth(),
    })
}

pub fn server(
    client_authorities: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let roots = Arc::new(client_authorities);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)?)
}

pub fn server_name(written: Option<&str>, address: &str) -> anyhow::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let name = written.unwrap_or_else(|| host.trim_matches(['[', ']'])).to_owned();
    ServerName::try_from(name.clone()).with_context(|| format!("`{name}` is not a host name"))
}
