// SPDX-License-Identifier: Apache-2.0
//! A claim on a SONiC database: which session of which controller may change circuits.
//!
//! ```text
//!   LIGHTLOOM_CLAIM  "lightloomd@host:/var/lib/lightloom 1700000000000.2"   expires after 60 s
//! ```
//!
//! Each session takes the claim when it connects and renews it with each read. It names the session, so a session
//! that was given up no longer holds it: `WATCH` makes Redis drop its transaction, however late it arrives. A
//! controller that does not know the key is not held up by it; what it sets is drift.

/// In CONFIG_DB; no table of SONiC's.
pub(super) const KEY: &str = "LIGHTLOOM_CLAIM";
/// How long a claim outlives the last read of its holder.
const SECONDS: &str = "60";

/// Takes or renews the claim unless another controller holds it, and returns the holder then. Redis runs it
/// as one command.
const TAKE: &str = "local held = redis.call('GET', KEYS[1]) \
    if held and string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return held end \
    redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'EX', ARGV[3]) return ''";

/// Who claims, and what is known of the claim.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// The controller, with a space behind it: stays the same over sessions.
    owner: String,
    /// When the daemon started: no session of another life has the same name.
    life: u64,
    session: u32,
    /// Who else holds it.
    pub(super) holder: Option<String>,
    /// The database takes no scripts or no writes from us: then there are no claims.
    pub(super) is_refused: bool,
    reported: Option<String>,
}

impl Claim {
    pub(super) fn new(owner: &str, life: u64) -> Self {
        let owner = format!("{owner} ");
        Self { owner, life, session: 0, holder: None, is_refused: false, reported: None }
    }

    /// A fresh connection is another session.
    pub(super) fn next_session(&mut self) {
        self.session += 1;
        self.is_refused = false;
    }

    fn session(&self) -> String {
        format!("{}.{}", self.life, self.session)
    }

    /// Whether a value of the key is this session's.
    pub(super) fn is_ours(&self, value: &str) -> bool {
        value.strip_prefix(&self.owner) == Some(&self.session())
    }

    pub(super) fn take(&self) -> Vec<u8> {
        super::command(&["EVAL", TAKE, "1", KEY, &self.owner, &self.session(), SECONDS])
    }

    /// Takes in who holds it; nothing where we do.
    pub(super) fn taken(&mut self, holder: &str) {
        let name = || holder.rsplit_once(' ').map_or(holder, |(name, _)| name).to_owned();
        self.holder = (!holder.is_empty()).then(name);
    }

    /// Who holds it, where that is not what was said last.
    pub(super) fn news(&mut self) -> Option<Option<String>> {
        (self.reported != self.holder).then(|| {
            self.reported.clone_from(&self.holder);
            self.holder.clone()
        })
    }

    pub(super) fn refusal(&self) -> Option<String> {
        let holder = self.holder.as_ref()?;
        Some(format!(
            "{holder} holds the claim on this switch ({KEY} in CONFIG_DB): stop one of the two controllers"
        ))
    }
}
