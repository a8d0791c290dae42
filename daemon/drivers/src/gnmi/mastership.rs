// SPDX-License-Identifier: Apache-2.0
//! Master arbitration. Each Set includes the election id, and on each new connection an empty Set
//! claims the role. If the switch has received a larger id, the driver sends no changes until the
//! switch accepts the id of this client, which the driver retries with each read.

use lightloom_control::controller::Foreign;
use lightloom_gnmi::client::GnmiCall;
use lightloom_gnmi::extension::Candidacy;
use lightloom_gnmi::message::SetRequest;
use lightloom_gnmi::{Code, Status};

use crate::{Awaits, Progress};

#[derive(Clone, Debug, Default)]
pub(super) struct Mastership {
    candidacy: Option<Candidacy>,
    denied: Option<String>,
    news: Option<Foreign>,
}

impl Mastership {
    pub(super) const fn of(candidacy: Option<Candidacy>) -> Self {
        Self { candidacy, denied: None, news: None }
    }

    pub(super) fn take(&self) -> Option<(Awaits, GnmiCall)> {
        self.candidacy.as_ref()?;
        Some((Awaits::Claim, GnmiCall::Set(self.stamped(SetRequest::default()))))
    }

    pub(super) fn stamped(&self, mut set: SetRequest) -> SetRequest {
        set.extension.extend(self.candidacy.as_ref().map(Candidacy::extension));
        set
    }

    pub(super) fn denied(&self) -> Option<String> {
        self.denied.clone()
    }

    pub(super) fn was_taken(&mut self) -> Progress {
        self.denied = None;
        self.news = Some(Foreign::Claimed(None));
        Progress::Answered
    }

    pub(super) fn was_refused(&mut self, status: &Status) -> Progress {
        if self.was_denied(status) {
            return Progress::Answered;
        }
        let (code, message) = (status.code(), status.message());
        let candidacy = self.candidacy.iter().map(Candidacy::to_string).collect::<String>();
        Progress::Lost(format!("the switch refuses {candidacy}: {code:?}: {message}"))
    }

    pub(super) fn was_denied(&mut self, status: &Status) -> bool {
        let Some(ours) =
            self.candidacy.as_ref().filter(|_| status.code() == Code::PermissionDenied)
        else {
            return false;
        };
        let by = format!("a gNMI client with a larger id than {ours} ({})", status.message());
        self.denied = Some(format!("another controller is master of the switch: {by}"));
        self.news = Some(Foreign::Claimed(Some(by)));
        true
    }

    pub(super) fn news(&mut self) -> Option<Foreign> {
        self.news.take()
    }

    pub(super) fn shown(&self) -> String {
        match (&self.candidacy, &self.denied) {
            (None, _) => "no election id".into(),
            (Some(ours), None) => ours.to_string(),
            (Some(ours), Some(_)) => format!("{ours}, and another controller is master"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_client_sets_nothing_until_its_id_is_accepted() {
        let mut ours = Mastership::of(Some(Candidacy { role: None, election_id: 7 }));
        let status = Status::permission_denied("the master has election id 8");
        assert!(ours.was_denied(&status) && ours.denied().unwrap().contains("election id 7"));
        assert!(matches!(ours.news(), Some(Foreign::Claimed(Some(by))) if by.contains("id 8")));
        assert_eq!(ours.was_taken(), Progress::Answered);
        assert_eq!((ours.denied(), ours.news()), (None, Some(Foreign::Claimed(None))));
        let status = Status::unimplemented("roles");
        assert!(matches!(ours.was_refused(&status), Progress::Lost(why) if why.contains("roles")));
        assert!(!Mastership::default().was_denied(&Status::permission_denied("read only")));
    }
}
