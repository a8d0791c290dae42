// SPDX-License-Identifier: Apache-2.0
//! Codes of errors specific to scenario and fault files.

lightloom_fabric::document::codes! {
    BAD_EXPECTATION = "LL0301", "a sentence that is not an expectation";
    /// A fault names no part or several parts, or is repaired before it starts.
    REPAIR_BEFORE_FAULT = "LL0302", "a part is repaired before it fails";
    NOTHING_TO_RUN = "LL0303", "a scenario runs nothing";
    BAD_PACKET = "LL0304", "packets cannot have this size";
    COLLECTIVE_TWICE = "LL0305", "two collectives have the same name";
    BAD_NEIGHBOUR = "LL0306", "a referenced file cannot be used";
    /// The part does not exist in the fabric, or the group does not exist in the plan.
    NO_SUCH_THING = "LL0307", "a name that the fabric does not have";
    /// The effect does not apply to this part, or is malformed.
    BAD_FAULT = "LL0308", "a fault that cannot happen to this part";
    SAYS_NOTHING = "LL0309", "an expectation that is always met, or never";
    NO_PLAN = "LL0310", "the fabric cannot be planned in its initial state";
    NO_SUCH_PHASE = "LL0311", "a phase that the step does not have";
    BAD_QUEUE = "LL0313", "impossible settings of queues";
    /// The settings belong to a congestion control that is not in use, or cannot work.
    BAD_CONGESTION = "LL0314", "settings of congestion control that cannot be used";
    NO_EFFECT = "LL0316", "a key that has no effect here";
    BAD_CONTROL = "LL0317", "a control plane that cannot run here";
    BAD_NETWORK = "LL0321", "a network that cannot be built";
    BAD_WORKLOAD = "LL0322", "a workload that cannot run with these settings";
    HEAVY_LOSS = "LL0324", "bit errors lose a far larger share of packets of this size than of \
        real frames";
    /// Flows leave some of their paths unused and collide on the others.
    FEW_VALUES = "LL0325", "fewer paths drawn than exist";
    SHORT_TIMEOUT = "LL0326", "a timeout shorter than a round trip over links this slow";
    BAD_FLOW = "LL0323", "an invalid row of a flow table";
}
