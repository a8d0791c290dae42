// SPDX-License-Identifier: Apache-2.0
//! `lightloom conform`: whether a device does what its protocol promises.
//!
//! Each promise is one [`case::Case`] with an id and its clause. Nothing is changed unless ports are given to move;
//! then only circuits between those ports are made, and all of them are taken away again.

pub mod case;
pub mod gnmi;
pub mod link;
pub mod module;
pub mod profile;
pub mod report;
pub mod scpi;
pub mod target;
pub mod tl1;

use std::time::Duration;

use case::{SuiteResults, SuiteScope};
use link::{ExchangeError, Link};
use report::SuiteReport;
use target::{Options, Protocol};

/// Tests one device.
///
/// # Errors
/// It cannot be reached, or does not say who it is. What goes wrong later is part of the report.
pub fn run(
    protocol: Protocol,
    mut link: Box<dyn Link>,
    options: &Options,
) -> Result<SuiteReport, ExchangeError> {
    let mut results = SuiteResults::new(options.seed);
    link.open()?;
    let plan = SuiteScope { ports: &options.may_move, rounds: options.rounds, options };
    let identity = match protocol {
        Protocol::Gnmi => gnmi::run(link, &plan, &mut results)?,
        Protocol::Scpi => scpi::run(link, &plan, &mut results)?,
        Protocol::Tl1 => tl1::run(link, &plan, &mut results)?,
        Protocol::Serial | Protocol::Eeprom => module::run(link, &plan, &mut results)?,
    };
    Ok(SuiteReport::of(protocol, identity, options, results))
}

/// Tests a module through its profile.
///
/// # Errors
/// The module does not say who it is, or is another than the profile is for.
pub fn run_profile(
    link: profile::ProfileLink,
    options: &Options,
) -> Result<SuiteReport, ExchangeError> {
    let mut results = SuiteResults::new(options.seed);
    let plan = SuiteScope { ports: &options.may_move, rounds: options.rounds, options };
    let identity = profile::run(link, &plan, &mut results)?;
    Ok(SuiteReport::of(Protocol::Eeprom, identity, options, results))
}

/// How long an answer may take.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long light may take to come to rest.
pub(crate) const REST_WITHIN: Duration = Duration::from_secs(5);
