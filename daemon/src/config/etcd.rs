// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;
use std::time::Duration;

use lightloom_fabric::document::Check;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings for several daemons that manage one fabric, as a leader and standbys.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdFile {
    /// URLs of the etcd members.
    pub endpoints: Vec<String>,
    /// Key prefix, unique for each fabric, such as `/lightloom/hall-1`.
    pub prefix: String,
    /// Name of this daemon in the cluster [default: the host name].
    #[serde(default)]
    pub name: Option<String>,
    /// Time until the lease expires without renewal, in whole seconds, 1 to 60 [default: 3s]. etcd
    /// extends it to at least 1.5 election timeouts (2 s with etcd's defaults).
    #[serde(default = "usual_lease")]
    pub lease: Text<Picoseconds>,
    /// Offset added to the epochs that are sent to devices [default: 0]. Epochs restart at 1 in a
    /// new etcd cluster, and devices refuse an epoch lower than the last one.
    #[serde(default)]
    pub epoch_from: u64,
    /// Certificates for `https` URLs.
    #[serde(default)]
    pub tls: Option<HttpTlsFile>,
}

/// TLS settings for etcd or a trace collector.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpTlsFile {
    /// CA certificates that sign the server's certificate, PEM.
    pub ca: PathBuf,
    /// Client certificate of this daemon, PEM, if the server requires one.
    #[serde(default)]
    pub certificate: Option<PathBuf>,
    /// Private key of the client certificate, PEM.
    #[serde(default)]
    pub key: Option<PathBuf>,
}

fn usual_lease() -> Text<Picoseconds> {
    Text(Picoseconds::from_millis(3_000))
}

impl EtcdFile {
    pub fn lasts(&self) -> Duration {
        Duration::from_micros(super::micros(self.lease).0)
    }

    pub fn own_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            host.trim().to_owned()
        })
    }

    pub(crate) fn check(&self, check: &mut Check<'_>) {
        if self.endpoints.is_empty() {
            check
                .error(super::codes::BAD_SERVER, "/etcd/endpoints", "no etcd member is listed")
                .help("use a list such as `[\"http://10.0.0.1:2379\"]`");
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let example = "http://HOST:2379";
            check_url(
                check,
                &format!("/etcd/endpoints/{index}"),
                endpoint,
                self.tls.as_ref(),
                example,
            );
        }
        check_tls(check, "/etcd/tls", self.tls.as_ref());
        if self.name.as_deref().is_some_and(|name| name.trim().is_empty()) {
            check
                .error(super::codes::BAD_SERVER, "/etcd/name", "the name is empty")
                .help("use a name, or omit `name`");
        }
        let inside = self.prefix.trim_start_matches('/');
        if inside.is_empty() || inside.len() == self.prefix.len() || self.prefix.ends_with('/') {
            let message = format!("`{}` is not a key prefix", self.prefix);
            check
                .error(super::codes::BAD_SERVER, "/etcd/prefix", message)
                .help("use `/lightloom/NAME`, with a unique name for each fabric");
        }
        let lasts = self.lasts();
        if lasts.subsec_nanos() != 0 || !(1..=60).contains(&lasts.as_secs()) {
            let message = format!("a lease of {} s is not supported", lasts.as_secs_f64());
            check
                .error(super::codes::BAD_SERVER, "/etcd/lease", message)
                .help("use 1s to 60s, in whole seconds");
        }
    }
}

/// Export of traces of changes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TracesFile {
    /// URL of an OpenTelemetry collector with OTLP over HTTP, such as `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Certificates for an `https` URL.
    #[serde(default)]
    pub tls: Option<HttpTlsFile>,
}

impl TracesFile {
    pub(crate) fn check(&self, check: &mut Check<'_>) {
        let example = "http://HOST:4318";
        check_url(check, "/traces/endpoint", &self.endpoint, self.tls.as_ref(), example);
        check_tls(check, "/traces/tls", self.tls.as_ref());
    }
}

fn check_url(
    check: &mut Check<'_>,
    path: &str,
    url: &str,
    tls: Option<&HttpTlsFile>,
    example: &str,
) {
    let (message, help) = match (url.starts_with("https://"), tls) {
        (true, None) => ("`https` requires `tls`".to_owned(), "use `tls: {ca: FILE}`".to_owned()),
        (false, _) if !url.starts_with("http://") => {
            (format!("`{url}` is not a URL"), format!("use a URL such as `{example}`"))
        }
        _ => return,
    };
    check.error(super::codes::BAD_SERVER, path, message).help(help);
}

fn check_tls(check: &mut Check<'_>, path: &str, tls: Option<&HttpTlsFile>) {
    if tls.is_some_and(|tls| tls.certificate.is_some() != tls.key.is_some()) {
        let message = "the certificate or its key is missing";
        let help = "set both `certificate` and `key`, or neither";
        check.error(super::codes::BAD_SERVER, path, message).help(help);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use crate::config;

    fn mistakes(etcd: &str) -> Vec<String> {
        let text = format!("state_dir: s\netcd: {{{etcd}}}\n");
        let (_, mistakes) = config::load("daemon.yaml", text.as_bytes());
        assert!(mistakes.iter().all(|mistake| mistake.place.is_some() && mistake.help.is_some()));
        mistakes.into_iter().map(|mistake| mistake.message).collect()
    }

    #[test]
    fn rejects_invalid_etcd_settings_at_their_line() {
        assert!(mistakes("endpoints: [\"http://h:2379\"], prefix: /a/b, lease: 5s").is_empty());
        for (etcd, said) in [
            ("endpoints: [], prefix: /a", "no etcd member is listed"),
            ("endpoints: [\"http://h:2379\"], prefix: /a, name: \"\"", "the name is empty"),
            ("endpoints: [\"h:2379\"], prefix: /a", "`h:2379` is not a URL"),
            ("endpoints: [\"https://h:2379\"], prefix: /a", "`https` requires `tls`"),
            ("endpoints: [\"http://h:2379\"], prefix: a", "`a` is not a key prefix"),
            ("endpoints: [\"http://h:2379\"], prefix: /a/", "`/a/` is not a key prefix"),
            (
                "endpoints: [\"http://h:2379\"], prefix: /a, lease: 90s",
                "a lease of 90 s is not \
                supported",
            ),
            (
                "endpoints: [\"http://h:2379\"], prefix: /a, lease: 2500ms",
                "a lease of 2.5 s is \
                not supported",
            ),
            (
                "endpoints: [\"https://h:1\"], prefix: /a, tls: {ca: c, key: k}",
                "the certificate or its key is missing",
            ),
        ] {
            assert_eq!(mistakes(etcd), [said], "{etcd}");
        }
    }
}
