// SPDX-License-Identifier: Apache-2.0
//! A claim in a SONiC database. Only the controller and session that hold it may change circuits.
//!
//! ```text
//!   LIGHTLOOM_CLAIM  "lightloomd@host:/var/lib/lightloom 1700000000000.2"   expires after 60 s
//! ```
//!
//! Sessions acquire the claim when they connect and renew it with each read. `WATCH` makes Redis discard transactions
//! of a session that has lost the claim. Changes by controllers that ignore the claim appear as drift.

pub(super) const KEY: &str = "LIGHTLOOM_CLAIM";
/// Lifetime of a claim after the holder's last read, in seconds.
const SECONDS: &str = "60";

const TAKE: &str = "local held = redis.call('GET', KEYS[1]) \
    if held and string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return held end \
    redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'EX', ARGV[3]) return ''";

#[derive(Clone, Debug)]
pub(super) struct Claim {
    owner: String,
    life: u64,
    session: u32,
    pub(super) holder: Option<String>,
    pub(super) is_refused: bool,
    reported: Option<String>,
}

impl Claim {
    pub(super) fn new(owner: &str, life: u64) -> Self {
        let owner = format!("{owner} ");
        Self { owner, life, session: 0, holder: None, is_refused: false, reported: None }
    }

    pub(super) fn next_session(&mut self) {
        self.session += 1;
        self.is_refused = false;
    }

    fn session(&self) -> String {
        format!("{}.{}", self.life, self.session)
    }

    pub(super) fn is_ours(&self, value: &str) -> bool {
        value.strip_prefix(&self.owner) == Some(&self.session())
    }

    pub(super) fn take(&self) -> Vec<u8> {
        super::command(&["EVAL", TAKE, "1", KEY, &self.owner, &self.session(), SECONDS])
    }

    pub(super) fn taken(&mut self, holder: &str) {
        let name = holder.rsplit_once(' ').map_or(holder, |(name, _)| name);
        self.holder = (!holder.is_empty()).then(|| name.to_owned());
    }

    pub(super) fn news(&mut self) -> Option<Option<String>> {
        (self.reported != self.holder).then(|| {
            self.reported.clone_from(&self.holder);
            self.holder.clone()
        })
    }

    pub(super) fn refusal(&self) -> Option<String> {
        let holder = self.holder.as_ref()?;
        Some(format!(
            "{holder} has claimed this switch ({KEY} in CONFIG_DB): stop one of the two \
                controllers"
        ))
    }
}
