// SPDX-License-Identifier: Apache-2.0
//! How a gNMI switch is reached: TLS, or plain text where the file says so.

use std::sync::Arc;

use anyhow::{Context, bail};
use lightloom_drivers::gnmi::{Gnmi, Settings};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::{GnmiFile, GnmiTlsFile};
use crate::driver::{Endpoint, stream::Address};
use crate::protocol::{Place, secret};

pub(super) fn endpoint(file: &GnmiFile, place: &Place<'_>) -> anyhow::Result<Endpoint> {
    Ok(Endpoint::speaking(address(file)?, Gnmi::new(settings(file)?).wired_as(place.ports)))
}

/// What the dialect has to know.
///
/// # Errors
/// A file that says half of it.
fn settings(file: &GnmiFile) -> anyhow::Result<Settings> {
    let groups = match (&file.input_group, &file.output_group) {
        (Some(input), Some(output)) => Some((input.clone(), output.clone())),
        (None, None) => None,
        _ => bail!("gnmi: give both `input_group` and `output_group`, or neither"),
    };
    Ok(Settings {
        authority: file.tcp.clone(),
        power_monitor: file.power_monitor,
        groups,
        model_version: file.model_version.clone(),
    })
}

/// Where it is, and how it is known to be the right one.
///
/// # Errors
/// Neither or both of `tls` and `plaintext`; a certificate or key that cannot be read.
pub(super) fn address(file: &GnmiFile) -> anyhow::Result<Address> {
    match (&file.tls, file.plaintext) {
        (None, true) => Ok(Address::Tcp(file.tcp.clone())),
        (Some(tls), false) => secured(file, tls),
        (Some(_), true) => bail!("gnmi: give either `tls` or `plaintext: true`"),
        (None, false) => bail!(
            "gnmi: without `tls` anybody between could move light: write `tls: {{ca: FILE}}`; for an emulated \
             device write `plaintext: true`"
        ),
    }
}

fn secured(file: &GnmiFile, tls: &GnmiTlsFile) -> anyhow::Result<Address> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&tls.ca)? {
        roots.add(certificate).with_context(|| format!("{} is no authority", tls.ca.display()))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            // Read as a secret, so that a key which everybody can read is refused.
            let pem = secret(key)?;
            let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
                .with_context(|| format!("{} has no private key", key.display()))?;
            builder.with_client_auth_cert(certificates(certificate)?, key)?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => bail!("gnmi: give both `certificate` and `key`, or neither"),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let host = file.tcp.rsplit_once(':').map_or(file.tcp.as_str(), |(host, _)| host);
    let name = tls.name.clone().unwrap_or_else(|| host.trim_matches(['[', ']']).to_owned());
    let name = ServerName::try_from(name.clone())
        .with_context(|| format!("`{name}` is no name of a host: write `name`"))?;
    Ok(Address::Tls { address: file.tcp.clone(), name, config: Arc::new(config) })
}

fn certificates(path: &std::path::Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let read =
        CertificateDer::pem_file_iter(path).with_context(|| format!("cannot read {shown}"))?;
    let found: Vec<_> =
        read.collect::<Result<_, _>>().with_context(|| format!("{shown} is not PEM"))?;
    if found.is_empty() {
        bail!("{shown} has no certificate");
    }
    Ok(found)
}
