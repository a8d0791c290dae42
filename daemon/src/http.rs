// SPDX-License-Identifier: Apache-2.0

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::config::HttpTlsFile;
use crate::protocol::{secret, tls as pem};

const CONNECT_WITHIN: Duration = Duration::from_millis(300);

fn certificates(path: &Path) -> anyhow::Result<Vec<Certificate<'static>>> {
    let found = pem::certificates(path)?;
    Ok(found.iter().map(|one| Certificate::from_der(one).to_owned()).collect())
}

pub fn agent(tls: Option<&HttpTlsFile>, within: Duration) -> anyhow::Result<Agent> {
    let mut config = Agent::config_builder()
        .timeout_connect(Some(CONNECT_WITHIN))
        .timeout_global(Some(within))
        .http_status_as_error(false)
        .proxy(None);
    if let Some(tls) = tls {
        let authorities = certificates(&tls.ca)?;
        let mut builder = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&authorities))
            .unversioned_rustls_crypto_provider(Arc::new(
                tokio_rustls::rustls::crypto::ring::default_provider(),
            ));
        if let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) {
            let key = PrivateKey::from_pem(secret(key)?.as_bytes())?;
            let own = ClientCert::new_with_certs(&certificates(certificate)?, key);
            builder = builder.client_cert(Some(own));
        }
        config = config.tls_config(builder.build());
    }
    Ok(config.build().into())
}
