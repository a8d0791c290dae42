// SPDX-License-Identifier: Apache-2.0
//! Master arbitration (2018 specification, section 3.2): a Set must carry the largest election id
//! seen for its role. Election ids are not persistent.

use lightloom_gnmi::Status;
use lightloom_gnmi::extension::{MasterArbitration, Uint128};
use lightloom_gnmi::message::SetRequest;

use super::state::State;
use crate::misbehave::Misbehaviour;

const ROLES_MAX: usize = 64;

impl State {
    pub(crate) fn arbitrate(&mut self, request: &SetRequest) -> Result<(), Status> {
        let mut asked = request.extension.iter().filter_map(|one| one.master_arbitration.as_ref());
        let Some(MasterArbitration { role, election_id }) = asked.next_back() else {
            if self.spec.needs_election && !self.masters.is_empty() {
                let why = "a master is elected: a Set requires an election id";
                return Err(Status::permission_denied(why));
            }
            return Ok(());
        };
        let Some(election_id) = election_id else {
            if self.breaks(Misbehaviour::TakesNoElectionId) {
                return Ok(());
            }
            return Err(Status::invalid_argument("master arbitration without an election id"));
        };
        let role = role.as_ref().map(|role| role.id.clone()).unwrap_or_default();
        if self.masters.len() >= ROLES_MAX && !self.masters.contains_key(&role) {
            let why = format!("at most {ROLES_MAX} roles are supported");
            return Err(Status::resource_exhausted(why));
        }
        let id = match self.breaks(Misbehaviour::ComparesLowHalf) {
            true => Uint128 { high: 0, ..*election_id },
            false => *election_id,
        };
        let largest = self.masters.entry(role).or_default();
        if id.number() >= *largest {
            *largest = id.number();
            return Ok(());
        }
        let why = format!("the master has election id {largest}");
        match self.breaks(Misbehaviour::TakesOlderMaster) {
            true => Ok(()),
            false => Err(Status::permission_denied(why)),
        }
    }
}
