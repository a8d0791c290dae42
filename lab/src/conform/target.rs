// SPDX-License-Identifier: Apache-2.0
//! The device under test. Addresses have the same format as in the daemon's configuration file.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use lightloom_daemon::protocol::tls as pem;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::link::LinkAddress;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Gnmi,
    Scpi,
    Tl1,
    Serial,
    /// Module memory as a file of the `optoe` driver, which requires a profile.
    Eeprom,
}

impl Protocol {
    pub const ALL: [Self; 5] = [Self::Gnmi, Self::Scpi, Self::Tl1, Self::Serial, Self::Eeprom];

    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Gnmi => "gnmi",
            Self::Scpi => "scpi",
            Self::Tl1 => "tl1",
            Self::Serial => "serial",
            Self::Eeprom => "eeprom",
        }
    }

    pub const fn standard(self) -> &'static str {
        match self {
            Self::Gnmi => "gNMI 0.10 and ocp-ocs-optical-switch 0.8.0 (2026-08-28)",
            Self::Scpi => "SCPI-99 and the command set of Polatis-style switches",
            Self::Tl1 => "TL1 (GR-831) and the command set of Polatis-style switches",
            Self::Serial => "docs/firmware-api.md",
            Self::Eeprom => "its profile, CMIS, and docs/firmware-api.md",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub text: String,
    pub protocol: Protocol,
    /// `host:port` or the path of a serial device.
    pub at: String,
    pub is_line: bool,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const WRITE: &str = "use gnmi://HOST:PORT, scpi://HOST:PORT, scpi:///dev/TTY, tl1://HOST:PORT, \
                             serial:/dev/TTY or eeprom:/PATH/eeprom";
        let (scheme, at) = text.split_once(':').ok_or_else(|| WRITE.to_owned())?;
        if scheme == "redis" {
            return Err("redis: the suite has no cases for SONiC switches yet".into());
        }
        let protocol = Protocol::ALL.into_iter().find(|known| known.scheme() == scheme);
        let protocol = protocol.ok_or_else(|| format!("unknown protocol `{scheme}`: {WRITE}"))?;
        let at = at.strip_prefix("//").unwrap_or(at);
        let is_line = at.starts_with('/');
        let fits = match protocol {
            Protocol::Serial | Protocol::Eeprom => is_line,
            Protocol::Scpi if is_line => true,
            _ => at.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            }),
        };
        if !fits {
            return Err(format!("`{text}` has no address: {WRITE}"));
        }
        Ok(Self { text: text.to_owned(), protocol, at: at.to_owned(), is_line })
    }
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub target: String,
    pub may_move: Vec<String>,
    pub seed: u64,
    pub rounds: u32,
    pub login: Option<(String, String)>,
    /// Shell command that restarts the device, followed by `warm` or `cold`.
    pub restart: Option<String>,
    /// Start time in Unix seconds, so that later runs use larger election ids.
    pub started: u64,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Tls {
    /// gNMI: CA certificate (PEM) that signs the device's certificate.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// gNMI: name in the device's certificate [default: the host of the target].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// gNMI: client certificate chain (PEM), if the device requires one.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// gNMI: private key (PEM) of the client certificate.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// gNMI: connect without TLS, for emulated devices.
    #[arg(long)]
    pub plaintext: bool,
}

pub fn address(
    target: &Target,
    tls: &Tls,
    bits_per_second: Option<u32>,
) -> anyhow::Result<LinkAddress> {
    let has_tls = tls.ca.is_some() || tls.certificate.is_some() || tls.key.is_some();
    if target.protocol != Protocol::Gnmi {
        ensure!(
            !has_tls && !tls.plaintext,
            "--ca, --certificate, --key and --plaintext apply only to gnmi://"
        );
    }
    if target.is_line {
        let usual = if target.protocol == Protocol::Scpi { 38_400 } else { 921_600 };
        return Ok(LinkAddress::Serial(target.at.clone(), bits_per_second.unwrap_or(usual)));
    }
    ensure!(bits_per_second.is_none(), "--bits-per-second applies only to serial devices");
    match (&tls.ca, tls.plaintext) {
        _ if target.protocol != Protocol::Gnmi => Ok(LinkAddress::Tcp(target.at.clone())),
        (None, true) if !has_tls => Ok(LinkAddress::Tcp(target.at.clone())),
        (Some(ca), false) => secured(&target.at, ca, tls),
        (_, true) => bail!("--ca and --plaintext are mutually exclusive"),
        (None, false) => bail!(
            "use --ca FILE with the CA of the device's certificate, or --plaintext for an emulated device"
        ),
    }
}

fn secured(at: &str, ca: &Path, tls: &Tls) -> anyhow::Result<LinkAddress> {
    let identity = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            let secret = PrivateKeyDer::from_pem_file(key)
                .with_context(|| format!("{} does not contain a private key", key.display()))?;
            Some((pem::certificates(certificate)?, secret))
        }
        (None, None) => None,
        _ => bail!("--certificate and --key must be used together"),
    };
    let mut config = pem::client(pem::authorities(ca)?, identity)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = pem::server_name(tls.name.as_deref(), at).context("give --name")?;
    Ok(LinkAddress::Tls(at.to_owned(), name, Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_contains_protocol_and_address() {
        let target: Target = "gnmi://ocs0.example:9339".parse().unwrap();
        assert_eq!((target.protocol, target.at.as_str()), (Protocol::Gnmi, "ocs0.example:9339"));
        let target: Target = "serial:/dev/ttyUSB0".parse().unwrap();
        assert_eq!((target.protocol, target.is_line), (Protocol::Serial, true));
        assert!("scpi:///dev/ttyS1".parse::<Target>().unwrap().is_line);
        for wrong in [
            "",
            "ocs0",
            "http://a:1",
            "gnmi://a",
            "gnmi://:1",
            "gnmi://a:0",
            "tl1:///dev/x",
            "serial:x",
        ] {
            assert!(wrong.parse::<Target>().unwrap_err().contains("use gnmi://"), "{wrong}");
        }
    }

    #[test]
    fn gnmi_requires_tls_or_explicit_plaintext() {
        let target: Target = "gnmi://a:1".parse().unwrap();
        assert!(address(&target, &Tls::default(), None).is_err());
        let plain = Tls { plaintext: true, ..Tls::default() };
        assert!(matches!(address(&target, &plain, None), Ok(LinkAddress::Tcp(_))));
        assert!(address(&"scpi://a:1".parse().unwrap(), &plain, None).is_err());
    }
}
