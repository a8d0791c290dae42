// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use crate::audit::key;
use crate::config::Config;
use crate::protocol::private;
use crate::start;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub place: String,
    pub reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

#[derive(Debug, Default)]
pub struct Checked {
    pub findings: Vec<Finding>,
    pub journal_records: usize,
    pub audit: String,
}

impl Checked {
    fn found(&mut self, place: &str, error: &anyhow::Error) {
        let reason = format!("{error:#}");
        self.findings.push(Finding { place: place.to_owned(), reason });
    }
}

pub fn check(config: &Config) -> Checked {
    let mut checked = Checked::default();
    let mut key = None;
    match start::check_journal(config) {
        Ok((records, ledger)) => (checked.journal_records, key) = (records, ledger.audit_key),
        Err(error) => checked.found("journal", &error),
    }
    match key::verify(config, key.as_deref()) {
        Ok(verified) => checked.audit = verified.summary(),
        Err(error) => checked.found("audit log", &error),
    }
    for (name, (file, _)) in &config.drivers {
        if let Err((place, error)) = file.protocol().check() {
            checked.found(&format!("device {name}, {place}"), &error);
        }
    }
    if let Some(tls) = &config.file.tls
        && let Err(error) = private(&tls.key)
    {
        checked.found("tls/key", &error);
    }
    checked
}
