// SPDX-License-Identifier: Apache-2.0
//! Cases about master arbitration, in a separate role that does not affect other controllers.

use lightloom_gnmi::extension::Extension;
use lightloom_gnmi::message::SetRequest;
use lightloom_gnmi::{Code, Status};

use super::{GnmiSuite, shown};
use crate::conform::case::{
    CaseResult, CaseVerdict, SuiteSession, Tested, found, holds, misbehaves, tested,
};
use crate::conform::link::ExchangeError;

const CLAUSE: &str = "gNMI master arbitration 3.2";

pub(super) const CASES: &[Tested<GnmiSuite>] = &[
    tested!(
        arbitration_larger,
        CLAUSE,
        "a Set with the same or a larger 128-bit election id is accepted"
    ),
    tested!(
        arbitration_smaller,
        CLAUSE,
        "a Set with a smaller election id is PERMISSION_DENIED and changes nothing"
    ),
    tested!(arbitration_no_id, CLAUSE, "arbitration without an election id is INVALID_ARGUMENT"),
];

fn ask(gnmi: &mut GnmiSuite, id: Option<u128>) -> Result<Result<(), Status>, ExchangeError> {
    let extension = vec![Extension::arbitration(Some(&gnmi.prefix), id)];
    let set = SetRequest { extension, ..SetRequest::default() };
    Ok(gnmi.set(set)?.map(drop))
}

fn elected(gnmi: &mut GnmiSuite) -> Result<u128, ExchangeError> {
    let id = gnmi.next_election << 64 | u128::from(u64::MAX);
    gnmi.next_election += 2;
    let why = match ask(gnmi, Some(id))? {
        Ok(()) => {
            gnmi.elected = Some(Extension::arbitration(Some(&gnmi.prefix), Some(id + 1)));
            let takes_all = ask(gnmi, Some(id - 1))?.is_ok() && ask(gnmi, None)?.is_ok();
            if !takes_all {
                return Ok(id);
            }
            "the device does not arbitrate: it accepts any election id, or none".to_owned()
        }
        Err(status) if status.code() == Code::PermissionDenied => {
            return Err(misbehaves(format!(
                "the first election id of a role is refused: {}",
                shown(&status)
            )));
        }
        Err(status) => format!(
            "an empty Set with a role is refused: {}; without a separate role the suite would take \
                mastership from the controllers of the device",
            shown(&status)
        ),
    };
    Err(ExchangeError::Judged(CaseVerdict::NotTested(why)))
}

fn arbitration_larger(gnmi: &mut GnmiSuite) -> CaseResult {
    let id = elected(gnmi)?;
    for (next, which) in [(id, "the same"), (id + 1, "a larger")] {
        if let Err(status) = ask(gnmi, Some(next))? {
            return found(format!("{which} election id is refused: {}", shown(&status)));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn arbitration_smaller(gnmi: &mut GnmiSuite) -> CaseResult {
    let id = elected(gnmi)?;
    if let Err(status) = ask(gnmi, Some(id + 1))? {
        return found(format!("a larger election id is refused: {}", shown(&status)));
    }
    gnmi.reconnect()?;
    let (name, input, output) = (gnmi.name("old"), gnmi.input(0), gnmi.output(0));
    let update = vec![gnmi.joins(&name, &input, &output)?];
    let extension = vec![Extension::arbitration(Some(&gnmi.prefix), Some(id))];
    let said = gnmi.set(SetRequest { update, extension, ..SetRequest::default() })?;
    if gnmi.switch()?.connections.contains_key(&name) {
        return found("a Set with a smaller election id was applied");
    }
    match said {
        Ok(_) => found("a Set with a smaller election id got a success response"),
        Err(status) => holds(status.code() == Code::PermissionDenied, || shown(&status)),
    }
}

fn arbitration_no_id(gnmi: &mut GnmiSuite) -> CaseResult {
    elected(gnmi)?;
    match ask(gnmi, None)? {
        Ok(()) => found("a Set without an election id was accepted"),
        Err(status) => holds(status.code() == Code::InvalidArgument, || shown(&status)),
    }
}
