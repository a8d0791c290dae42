// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use lightloom_daemon::protocol::tls;
use serde_json::Value;
use tokio_rustls::rustls::crypto::ring;
use ureq::Agent;
use ureq::http::Request;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 256 << 20;

pub(super) struct ApiServer {
    url: String,
    agent: Agent,
    token: Option<PathBuf>,
}

impl ApiServer {
    /// If an argument is `None`, the value of this program's pod is used.
    pub(super) fn new(
        url: Option<&str>,
        token: Option<&Path>,
        ca: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let is_pod = url.is_none();
        let url = match url {
            Some(url) => url.to_owned(),
            None => {
                let [host, port] =
                    ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"].map(|name| {
                        std::env::var(name)
                            .context("this is not a pod: set the API server with --api")
                    });
                format!("https://{}:{}", host?, port?)
            }
        };
        let [token, ca] = [(token, "token"), (ca, "ca.crt")].map(|(given, name)| {
            given.map(Path::to_owned).or_else(|| is_pod.then(|| Path::new(POD).join(name)))
        });
        let (scheme, address) = url.split_once("://").unwrap_or_default();
        let address = address.trim_end_matches('/');
        let has_port =
            address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .max_idle_connections(0)
            .http_status_as_error(false)
            .proxy(None);
        let config = match scheme {
            "http" | "https" if !has_port => {
                bail!("`{url}` has no port: expected `{scheme}://HOST:PORT`")
            }
            "http" => config,
            "https" => {
                let ca = ca.context("https requires a CA certificate: use --api-ca FILE")?;
                let roots: Vec<_> = tls::certificates(&ca)?
                    .iter()
                    .map(|one| Certificate::from_der(one).to_owned())
                    .collect();
                let tls = TlsConfig::builder()
                    .root_certs(RootCerts::new_with_certs(&roots))
                    .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
                config.tls_config(tls.build())
            }
            _ => bail!("`{url}` is not the address of an API server: expected `https://HOST:PORT`"),
        };
        let url = format!("{scheme}://{address}");
        Ok(Self { url, agent: config.build().into(), token })
    }

    pub(super) fn ask(&self, path: &str, patch: Option<&Value>) -> anyhow::Result<(u16, Value)> {
        let token = self.token.as_ref().map(|file| {
            let token = std::fs::read_to_string(file);
            token.with_context(|| format!("cannot read {}", file.display()))
        });
        let account = token.transpose()?.map(|token| format!("Bearer {}", token.trim()));
        let (code, body) = self.talk(path, patch, account.as_deref()).with_context(|| {
            let address = self.url.split_once("://").unwrap_or_default().1;
            format!("the API server at {address} does not answer")
        })?;
        let text = String::from_utf8_lossy(&body);
        Ok((code, serde_json::from_slice(&body).unwrap_or_else(|_| text.trim().into())))
    }

    fn talk(
        &self,
        path: &str,
        patch: Option<&Value>,
        account: Option<&str>,
    ) -> anyhow::Result<(u16, Vec<u8>)> {
        let mut request = Request::builder().uri(format!("{}{path}", self.url));
        if let Some(account) = account {
            request = request.header("Authorization", account);
        }
        let mut answer = match patch {
            None => self.agent.run(request.body(())?)?,
            Some(patch) => {
                let request = request.header("Content-Type", "application/apply-patch+yaml");
                self.agent.run(request.method("PATCH").body(patch.to_string())?)?
            }
        };
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok((answer.status().as_u16(), body))
    }
}
