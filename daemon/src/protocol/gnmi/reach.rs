// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use anyhow::{Context, bail};
use lightloom_drivers::gnmi::{Candidacy, Gnmi, GnmiLogin, Settings};

use super::{GnmiFile, GnmiTlsFile};
use crate::driver::{Endpoint, stream::Address};
use crate::protocol::{Place, secret, tls as pem};

pub(super) fn endpoint(file: &GnmiFile, place: &Place<'_>) -> anyhow::Result<Endpoint> {
    Ok(Endpoint::speaking(
        address(file)?,
        Gnmi::new(settings(file, place.epoch)?).wired_as(place.ports),
    ))
}

fn settings(file: &GnmiFile, epoch: Option<u64>) -> anyhow::Result<Settings> {
    let groups = match (&file.input_group, &file.output_group) {
        (Some(input), Some(output)) => Some((input.clone(), output.clone())),
        (None, None) => None,
        _ => bail!("gnmi: expected both `input_group` and `output_group`, or neither"),
    };
    Ok(Settings {
        authority: file.tcp.clone(),
        power_monitor: file.power_monitor,
        groups,
        model_version: file.model_version.clone(),
        login: login(file)?,
        candidacy: file.election.as_ref().map(|election| Candidacy {
            role: election.role.clone(),
            election_id: u128::from(election.id.or(epoch).unwrap_or(1)),
        }),
    })
}

pub(super) fn login(file: &GnmiFile) -> anyhow::Result<Option<GnmiLogin>> {
    match (&file.user, &file.password_file) {
        (Some(_), Some(_)) if file.plaintext => {
            bail!("gnmi: a password over plain text can be intercepted; help: set `tls`")
        }
        (Some(user), Some(password)) => {
            let login = GnmiLogin { user: user.clone(), password: secret(password)? };
            login.check().map_err(|why| anyhow::anyhow!("gnmi: {why}"))?;
            Ok(Some(login))
        }
        (None, None) => Ok(None),
        _ => bail!("gnmi: expected both `user` and `password_file`, or neither"),
    }
}

pub(super) fn address(file: &GnmiFile) -> anyhow::Result<Address> {
    match (&file.tls, file.plaintext) {
        (None, true) => Ok(Address::Tcp(file.tcp.clone())),
        (Some(tls), false) => secured(file, tls),
        (Some(_), true) => bail!("gnmi: expected either `tls` or `plaintext: true`"),
        (None, false) => bail!(
            "gnmi: without `tls`, anyone on the network could switch circuits; help: set `tls: \
                {{ca: FILE}}`, or `plaintext: true` for an emulated device"
        ),
    }
}

fn secured(file: &GnmiFile, tls: &GnmiTlsFile) -> anyhow::Result<Address> {
    let identity = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            Some((pem::certificates(certificate)?, pem::private_key(key)?))
        }
        (None, None) => None,
        _ => bail!("gnmi: expected both `certificate` and `key`, or neither"),
    };
    let mut config = pem::client(pem::authorities(&tls.ca)?, identity)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = pem::server_name(tls.name.as_deref(), &file.tcp).context("set `name`")?;
    Ok(Address::Tls { address: file.tcp.clone(), name, config: Arc::new(config) })
}
