// SPDX-License-Identifier: Apache-2.0
//! The mistakes that only scenario and fault files can have.

lightloom_fabric::document::codes! {
    /// A sentence that is no expectation.
    BAD_EXPECTATION = "LL0301", "a sentence that is no expectation";
    /// A fault without a part, or with two.
    REPAIR_BEFORE_FAULT = "LL0302", "a part is repaired before it breaks";
    /// Nothing to run.
    NOTHING_TO_RUN = "LL0303", "a scenario runs nothing";
    /// Sizes that no packet can have.
    BAD_PACKET = "LL0304", "packets cannot have this size";
    /// Two collectives of one name.
    COLLECTIVE_TWICE = "LL0305", "two collectives have the same name";
    /// A fabric, trace or fault file that cannot be read.
    BAD_NEIGHBOUR = "LL0306", "a file that is named here cannot be used";
    /// A part that the fabric does not have, or a group that the plan does not have.
    NO_SUCH_THING = "LL0307", "something is named that the fabric does not have";
    /// An effect that this part cannot suffer, or that is written wrongly.
    BAD_FAULT = "LL0308", "a fault that cannot happen to this part";
    /// An expectation that is true whatever happens.
    SAYS_NOTHING = "LL0309", "an expectation that no run could fail, or none could keep";
    /// No plan for the fabric as it is at the start.
    NO_PLAN = "LL0310", "the fabric cannot be planned as it is at the start";
    /// A fault in a phase that is not there.
    NO_SUCH_PHASE = "LL0311", "a phase is named that the step does not have";
    /// Queues, buffers, pauses or priorities that no switch can have.
    BAD_QUEUE = "LL0313", "switches cannot queue like this";
    /// Figures of a congestion control that is not used, or that cannot work.
    BAD_CONGESTION = "LL0314", "figures of congestion control that cannot be used";
    /// A file of version 1.
    EARLIER_VERSION = "LL0315", "a scenario of an earlier version";
    /// A key that has no effect on what is run.
    NO_EFFECT = "LL0316", "a key that has no effect here";
    /// A control plane that cannot run here.
    BAD_CONTROL = "LL0317", "a control plane that cannot run here";
    /// A shape that cannot be laid out.
    BAD_NETWORK = "LL0321", "a network that cannot be laid out";
    /// A workload that cannot be run.
    BAD_WORKLOAD = "LL0322", "a workload that cannot be run like this";
    /// Large packets lose far more to wrong bits than real frames do.
    HEAVY_LOSS = "LL0324", "wrong bits lose far more packets of this size than real frames";
    /// Flows leave some of their paths unused and meet on the others.
    FEW_VALUES = "LL0325", "fewer paths drawn than there are";
    /// What is on its way over slow links is sent again although nothing is lost.
    SHORT_TIMEOUT = "LL0326", "a timeout shorter than a round trip over links this slow";
    /// A row of a table of flows.
    BAD_FLOW = "LL0323", "a row of a table of flows that says no flow";
}
