// SPDX-License-Identifier: Apache-2.0
//! Master arbitration (2018 specification, section 3.2): a Set must carry the largest election id
//! seen for its role. Election ids are not persistent.

use std::collections::BTreeMap;

use lightloom_gnmi::Status;
use lightloom_gnmi::extension::{MasterArbitration, Uint128};
use lightloom_gnmi::message::SetRequest;

use super::GnmiSpec;
use crate::fault::LightFaults;
use crate::misbehave::Misbehaviour;

const ROLES_MAX: usize = 64;

/// The largest election id of each role.
#[derive(Debug, Default)]
pub(crate) struct Masters(BTreeMap<String, u128>);

impl Masters {
    pub(crate) fn admit(
        &mut self,
        request: &SetRequest,
        spec: &GnmiSpec,
        faults: &LightFaults,
    ) -> Result<(), Status> {
        let mut asked = request.extension.iter().filter_map(|one| one.master_arbitration.as_ref());
        let Some(MasterArbitration { role, election_id }) = asked.next_back() else {
            if spec.needs_election && !self.0.is_empty() {
                let why = "a master is elected: a Set requires an election id";
                return Err(Status::permission_denied(why));
            }
            return Ok(());
        };
        let Some(election_id) = election_id else {
            if faults.breaks(Misbehaviour::TakesNoElectionId) {
                return Ok(());
            }
            return Err(Status::invalid_argument("master arbitration without an election id"));
        };
        let role = role.as_ref().map(|role| role.id.clone()).unwrap_or_default();
        if self.0.len() >= ROLES_MAX && !self.0.contains_key(&role) {
            let why = format!("at most {ROLES_MAX} roles are supported");
            return Err(Status::resource_exhausted(why));
        }
        let id = match faults.breaks(Misbehaviour::ComparesLowHalf) {
            true => Uint128 { high: 0, ..*election_id },
            false => *election_id,
        };
        let largest = self.0.entry(role).or_default();
        if id.number() >= *largest {
            *largest = id.number();
            return Ok(());
        }
        let why = format!("the master has election id {largest}");
        match faults.breaks(Misbehaviour::TakesOlderMaster) {
            true => Ok(()),
            false => Err(Status::permission_denied(why)),
        }
    }
}
