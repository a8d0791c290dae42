// SPDX-License-Identifier: Apache-2.0
//! Deliberate protocol violations for a conformance suite to detect. Unlike faults, devices do not report them.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Gnmi,
    Scpi,
    Tl1,
    Module,
}

impl Family {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gnmi => "gnmi",
            Self::Scpi => "scpi",
            Self::Tl1 => "tl1",
            Self::Module => "module",
        }
    }

    pub const fn device_kind(self) -> &'static str {
        match self {
            Self::Gnmi => "gnmi-switch",
            Self::Scpi | Self::Tl1 => "switch",
            Self::Module => "transceiver",
        }
    }
}

macro_rules! misbehaviours {
    ($($variant:ident, $name:literal, $family:ident, $promise:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Misbehaviour {
            $(#[doc = concat!("Breaks: ", $promise, ".")] $variant,)*
        }

        impl Misbehaviour {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            pub const fn family(self) -> Family {
                match self { $(Self::$variant => Family::$family,)* }
            }

            pub const fn promise(self) -> &'static str {
                match self { $(Self::$variant => $promise,)* }
            }
        }
    };
}

misbehaviours! {
    HidesModel, "hides-model", Gnmi, "Capabilities lists every module of the model";
    ClaimsAscii, "claims-ascii", Gnmi, "each encoding in Capabilities is supported";
    IgnoresEncoding, "ignores-encoding", Gnmi, "a Get response uses the requested encoding";
    SameIndex, "same-index", Gnmi, "port indices are unique in their group";
    PortWithoutGroup, "port-without-group", Gnmi, "each port is in an existing group";
    StrangePortStatus, "strange-port-status", Gnmi, "the status of a port is one of the model's \
        five values";
    OneSidedPeer, "one-sided-peer", Gnmi, "connected ports refer to each other";
    ConnectedTooSoon, "connected-too-soon", Gnmi, "CONNECTED is reported only while light passes";
    Amplifies, "amplifies", Gnmi, "output power does not exceed input power";
    FrozenChangeTime, "frozen-change-time", Gnmi, "last-change-time advances with each change";
    HidesBidirectional, "hides-bidirectional", Gnmi, "the switch reports whether it is bidirectional";
    RecoversTooWell, "recovers-too-well", Gnmi, "cold-boot-recovery does not exceed the capability";
    AnswersUnknownPath, "answers-unknown-path", Gnmi, "a path outside the model is rejected";
    MixesConfigAndState, "mixes-config-and-state", Gnmi, "a Get of type CONFIG returns no state";
    NoTimestamp, "no-timestamp", Gnmi, "a notification contains the time of its values";
    TakesState, "takes-state", Gnmi, "read-only values cannot be set";
    TakesUnknownPort, "takes-unknown-port", Gnmi, "a connection of a nonexistent port is rejected or INVALID";
    JoinsInputs, "joins-inputs", Gnmi, "ports of the same direction cannot be connected";
    TwoOnOnePort, "two-on-one-port", Gnmi, "a port belongs to at most one connection";
    TakesAnotherName, "takes-another-name", Gnmi, "the name in an entry matches its key";
    HalfASet, "half-a-set", Gnmi, "a Set with an invalid part changes nothing";
    DisturbsOthers, "disturbs-others", Gnmi, "a Set does not disturb other connections";
    RemakesTheSame, "remakes-the-same", Gnmi, "setting a connection to its current value does not interrupt it";
    CreatesFirst, "creates-first", Gnmi, "one Set may move a port from one connection to another";
    RefusesAbsentDelete, "refuses-absent-delete", Gnmi, "deleting a nonexistent entry succeeds";
    KeepsDeleted, "keeps-deleted", Gnmi, "a deleted connection disappears";
    NeverRests, "never-rests", Gnmi, "PENDING_CONNECTION ends";
    NoResults, "no-results", Gnmi, "a Set response has one result for each part";
    HidesConfig, "hides-config", Gnmi, "a connection reports its configuration";
    NoSync, "no-sync", Gnmi, "a subscription reports when the initial values are complete";
    MissesChanges, "misses-changes", Gnmi, "an on-change subscription sends changes";
    MissesDeletes, "misses-deletes", Gnmi, "an on-change subscription sends deletions";
    OnceGoesOn, "once-goes-on", Gnmi, "a ONCE subscription ends";
    TakesOlderMaster, "takes-older-master", Gnmi, "a Set with a smaller election id is rejected";
    ComparesLowHalf, "compares-low-half", Gnmi, "an election id has 128 bits";
    TakesNoElectionId, "takes-no-election-id", Gnmi, "arbitration without an election id is rejected";

    ShortIdentity, "short-identity", Scpi, "*IDN? has four fields";
    WrongSize, "wrong-size", Scpi, "SIZE? reports the number of ports";
    BarrierAtOnce, "barrier-at-once", Scpi, "*OPC? responds once the light has settled";
    SwallowsErrors, "swallows-errors", Scpi, "an invalid command adds an error to the queue";
    KeepsErrors, "keeps-errors", Scpi, "*CLS empties the error queue";
    StatusByteZero, "status-byte-zero", Scpi, "*STB? sets bit 2 while errors are queued";
    QuietAboutPorts, "quiet-about-ports", Scpi, "a nonexistent port adds an error to the queue";
    AddsAsOnly, "adds-as-only", Scpi, "CONN:ADD keeps other connections";
    SubtractsAll, "subtracts-all", Scpi, "CONN:SUB removes only the listed connections";
    WrongPeer, "wrong-peer", Scpi, "CONN:PORT? and CONN:STAT? agree";
    StealsPorts, "steals-ports", Scpi, "CONN:ADD of a port in use is an error and has no effect";
    AnswersSets, "answers-sets", Scpi, "a set command has no response";
    AnswersApart, "answers-apart", Scpi, "responses to one line are on one line, separated by ;";
    ShortFormsOnly, "short-forms-only", Scpi, "keywords are accepted in short and long form, in any case";
    NoRanges, "no-ranges", Scpi, "lists support ranges";
    LopsidedLists, "lopsided-lists", Scpi, "lists of different length are an error and have no effect";
    ShortPowerList, "short-power-list", Scpi, "a power query returns one value for each port";

    NoLogIn, "no-log-in", Tl1, "a client that is not logged in is denied";
    WrongTag, "wrong-tag", Tl1, "a reply repeats the tag of the command";
    NoDate, "no-date", Tl1, "the reply header includes the date and time";
    CompletesUnknown, "completes-unknown", Tl1, "an unknown command is denied";
    OtherTarget, "other-target", Tl1, "a command for another target is denied";
    HidesPatch, "hides-patch", Tl1, "RTRV-PATCH lists each patch";
    DeletesAllPatches, "deletes-all-patches", Tl1, "DLT-PATCH removes only the listed patches";
    PartlyIsComplete, "partly-is-complete", Tl1, "a partly executed list does not end in COMPLD";
    StealsPatches, "steals-patches", Tl1, "ENT-PATCH of a port in use is denied and has no effect";
    StrangeShutter, "strange-shutter", Tl1, "a shutter is OPEN or CLOSED";
    Unquoted, "unquoted", Tl1, "each line of a body is in quotation marks";

    OtherSequence, "other-sequence", Module, "a reply repeats the number of the request";
    AnswersBrokenFrames, "answers-broken-frames", Module, "a frame with a wrong checksum gets no response";
    AnswersOtherVersions, "answers-other-versions", Module, "a frame of an unsupported version is rejected with status 7";
    AnswersUnknownCommands, "answers-unknown-commands", Module, "an unknown command is rejected with status 1";
    TakesLongPayloads, "takes-long-payloads", Module, "a payload of the wrong length is rejected with status 2";
    ArmsAnyPath, "arms-any-path", Module, "arming a nonexistent path results in outcome 4";
    ArmsNone, "arms-none", Module, "transaction 0 is rejected";
    FiresAnything, "fires-anything", Module, "firing a transaction that is not armed is rejected with status 3";
    FiresTwice, "fires-twice", Module, "a repeated fire command has no effect";
    FrozenGeneration, "frozen-generation", Module, "the generation increases with each switch";
    MovesOnArm, "moves-on-arm", Module, "arming does not switch any circuit";
    HidesArmed, "hides-armed", Module, "the status includes the armed transaction";
    BadChecksum, "bad-checksum", Module, "page 00h has a valid CMIS checksum";
    WritesAnything, "writes-anything", Module, "a write to a read-only register is rejected with status 8";
    OddVersions, "odd-versions", Module, "the oldest supported version does not exceed the newest";
    FrozenUptime, "frozen-uptime", Module, "the uptime is in milliseconds";
}

impl fmt::Display for Misbehaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Misbehaviour {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|known| known.word() == text).ok_or(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Misbehaviours(u128);

impl Misbehaviours {
    pub(crate) const fn add(&mut self, new: Misbehaviour) {
        self.0 |= 1 << new as u32;
    }

    pub(crate) const fn has(self, which: Misbehaviour) -> bool {
        self.0 >> which as u32 & 1 == 1
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misbehaviour_names_are_unique_and_round_trip() {
        for (index, one) in Misbehaviour::ALL.iter().enumerate() {
            assert_eq!(one.word().parse(), Ok(*one));
            assert!(Misbehaviour::ALL[..index].iter().all(|other| other.word() != one.word()));
        }
        assert!(Misbehaviour::ALL.len() <= 128, "they fit the set");
    }
}
