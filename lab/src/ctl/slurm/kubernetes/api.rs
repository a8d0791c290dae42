// SPDX-License-Identifier: Apache-2.0
//! A client of the Kubernetes API over HTTP/1.1, with one request per connection and bounded
//! answers.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use lightloom_daemon::protocol::tls;
use serde_json::Value;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::ctl::address::Connection;
use crate::ctl::client;

/// The folder of a pod's service account.
const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 256 << 20;

pub(super) struct ApiServer {
    address: String,
    tls: Option<(ServerName<'static>, Arc<ClientConfig>)>,
    token: Option<PathBuf>,
}

impl ApiServer {
    /// Creates a client; each `None` stands for the value of the pod that this runs in.
    pub(super) fn new(
        url: Option<&str>,
        token: Option<&Path>,
        ca: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let in_pod = || {
            let variable = |name| {
                std::env::var(name).context("this is not a pod: name the API server with --api")
            };
            let host = variable("KUBERNETES_SERVICE_HOST")?;
            anyhow::Ok(format!("https://{host}:{}", variable("KUBERNETES_SERVICE_PORT")?))
        };
        let is_pod = url.is_none();
        let url = url.map_or_else(in_pod, |url| Ok(url.to_owned()))?;
        let file = |given: Option<&Path>, name: &str| {
            given.map(Path::to_owned).or_else(|| is_pod.then(|| Path::new(POD).join(name)))
        };
        let (token, ca) = (file(token, "token"), file(ca, "ca.crt"));
        let (scheme, address) = url.split_once("://").unwrap_or_default();
        let address = address.trim_end_matches('/').to_owned();
        let has_port =
            address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let tls = match scheme {
            "http" | "https" if !has_port => {
                bail!("`{url}` has no port: write `{scheme}://HOST:PORT`")
            }
            "http" => None,
            "https" => {
                let ca = ca.context("https requires a trusted authority: give --api-ca FILE")?;
                let config = tls::client(tls::authorities(&ca)?, None)?;
                Some((tls::server_name(None, &address)?, Arc::new(config)))
            }
            _ => bail!("`{url}` is not the address of an API server: write `https://HOST:PORT`"),
        };
        Ok(Self { address, tls, token })
    }

    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let body = body.map_or_else(String::new, Value::to_string);
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept: application/json\r\n",
            self.address
        );
        if let Some(file) = &self.token {
            let token = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            head += &format!("Authorization: Bearer {}\r\n", token.trim());
        }
        if !body.is_empty() {
            // JSON is valid YAML.
            let length = body.len();
            head += &format!(
                "Content-Type: application/apply-patch+yaml\r\nContent-Length: {length}\r\n"
            );
        }
        let context = || format!("the API server at {} does not answer", self.address);
        let answer = self.talk(format!("{head}\r\n{body}").as_bytes()).with_context(context)?;
        let answer = client::parse(&unchunked(answer))?;
        Ok((answer.code, answer.body))
    }

    fn talk(&self, request: &[u8]) -> anyhow::Result<Vec<u8>> {
        let found = self.address.to_socket_addrs()?.next().context("no such host")?;
        let stream = TcpStream::connect_timeout(&found, CONNECT_WITHIN)?;
        let mut connection = match &self.tls {
            None => Connection::Tcp(stream),
            Some((name, config)) => {
                let session = ClientConnection::new(Arc::clone(config), name.clone())?;
                Connection::Tls(Box::new(StreamOwned::new(session, stream)))
            }
        };
        connection.patience(ANSWER_WITHIN)?;
        connection.write_all(request)?;
        connection.flush()?;
        let mut answer = Vec::new();
        connection.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// Joins the chunks of an answer's body.
fn unchunked(answer: Vec<u8>) -> Vec<u8> {
    let find =
        |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|bytes| bytes == what);
    let Some(end) = find(&answer, b"\r\n\r\n").map(|end| end + 4) else { return answer };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    if !head.contains("transfer-encoding: chunked") {
        return answer;
    }
    let (mut whole, mut rest) = (answer[..end].to_vec(), &answer[end..]);
    while let Some(line) = find(rest, b"\r\n") {
        let size = String::from_utf8_lossy(&rest[..line]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let (from, Ok(size)) = (line + 2, usize::from_str_radix(size, 16)) else { break };
        let Some(chunk) =
            rest.get(from..from.saturating_add(size)).filter(|chunk| !chunk.is_empty())
        else {
            break;
        };
        whole.extend_from_slice(chunk);
        rest = rest.get(from + size + 2..).unwrap_or_default();
    }
    whole
}
