// SPDX-License-Identifier: Apache-2.0
//! `lightloom conform`: tests whether a device follows its protocol.
//!
//! The suite only reads, unless `--may-move` lists ports. It then creates circuits only between
//! these ports, and removes them at the end.

pub mod case;
pub mod gnmi;
pub mod link;
mod matrix;
pub mod module;
pub mod profile;
pub mod report;
pub mod scpi;
pub mod target;
pub mod tl1;

use std::time::Duration;

use case::SuiteResults;
use link::{ExchangeError, Link};
use report::SuiteReport;
use target::{Options, Protocol};

/// A problem is an error before the device has identified itself, and a finding afterwards.
pub fn run(
    protocol: Protocol,
    mut link: Box<dyn Link>,
    options: &Options,
) -> Result<SuiteReport, ExchangeError> {
    let mut results = SuiteResults::new(options.seed);
    link.open()?;
    let identity = match protocol {
        Protocol::Gnmi => gnmi::run(link, options, &mut results)?,
        Protocol::Scpi => scpi::run(link, options, &mut results)?,
        Protocol::Tl1 => tl1::run(link, options, &mut results)?,
        Protocol::Serial | Protocol::Eeprom => module::run(link, options, &mut results)?,
    };
    Ok(SuiteReport::of(protocol, identity, options, results))
}

pub fn run_profile(
    link: profile::ProfileLink,
    options: &Options,
) -> Result<SuiteReport, ExchangeError> {
    let mut results = SuiteResults::new(options.seed);
    let identity = profile::run(link, options, &mut results)?;
    Ok(SuiteReport::of(Protocol::Eeprom, identity, options, results))
}

/// Describes the bytes that arrived instead of a reply.
pub(crate) fn received(bytes: &[u8]) -> String {
    match String::from_utf8_lossy(&bytes[..bytes.len().min(160)]) {
        text if text.is_empty() => "; it sent nothing".to_owned(),
        text => format!("; it sent `{}`", text.escape_debug()),
    }
}

pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(2);
pub(crate) const REST_WITHIN: Duration = Duration::from_secs(5);
