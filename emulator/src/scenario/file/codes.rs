// SPDX-License-Identifier: Apache-2.0
//! Error codes specific to scenario and fault files.

lightloom_fabric::document::codes! {
    BAD_EXPECTATION = "LL0301", "invalid expectation";
    REPAIR_BEFORE_FAULT = "LL0302", "a part is repaired before it fails";
    NOTHING_TO_RUN = "LL0303", "scenario without workloads";
    BAD_PACKET = "LL0304", "invalid packet size";
    COLLECTIVE_TWICE = "LL0305", "two collectives have the same name";
    BAD_NEIGHBOUR = "LL0306", "a referenced file cannot be used";
    NO_SUCH_THING = "LL0307", "unknown part or group";
    BAD_FAULT = "LL0308", "fault not applicable to this part";
    SAYS_NOTHING = "LL0309", "expectation that is always or never met";
    NO_PLAN = "LL0310", "the fabric cannot be planned in its initial state";
    NO_SUCH_PHASE = "LL0311", "unknown phase";
    BAD_QUEUE = "LL0313", "inconsistent queue settings";
    BAD_CONGESTION = "LL0314", "unusable congestion control settings";
    NO_EFFECT = "LL0316", "key without effect";
    BAD_CONTROL = "LL0317", "control plane not supported in this scenario";
    BAD_NETWORK = "LL0321", "invalid network";
    BAD_WORKLOAD = "LL0322", "invalid workload";
    HEAVY_LOSS = "LL0324", "bit errors lose a far larger share of packets of this size than of \
        real frames";
    FEW_VALUES = "LL0325", "too few random paths";
    SHORT_TIMEOUT = "LL0326", "timeout shorter than a round trip";
    BAD_FLOW = "LL0323", "an invalid row of a flow table";
}
