// SPDX-License-Identifier: Apache-2.0
//! The mistakes that only a fabric file can have.

crate::document::codes! {
    /// K outside 2…R, R or N out of bounds.
    BAD_RING = "LL0201", "a k-hop ring that cannot be built";
    /// Both forms of the cabling, or neither.
    WHICH_FORM = "LL0202", "neither or both forms of the cabling";
    /// Explicit nodes are not n0 to n(N-1).
    NODE_NAMES = "LL0203", "nodes are not numbered from n0 without a gap";
    /// A link to a node or a bundle that is not there.
    NO_SUCH_END = "LL0204", "a link ends at a part that does not exist";
    /// Two fibres in one port.
    PORT_TWICE = "LL0205", "a port is cabled twice";
    /// A link longer than K.
    HOP_TOO_LONG = "LL0206", "a link is longer than k hops";
    /// A link between ports that the wiring table does not join.
    WRONG_PORTS = "LL0207", "a link contradicts the wiring table";
    /// A group of GPUs that does not fill whole nodes.
    BAD_GROUP = "LL0208", "a group size that does not fit the nodes";
    /// More GPUs wanted than installed.
    JOB_TOO_LARGE = "LL0209", "jobs want more GPUs than there are";
    /// Two jobs of one name.
    JOB_TWICE = "LL0210", "two jobs have the same name";
    /// Nothing is left for a job.
    JOB_STARVED = "LL0211", "a job stands behind one that takes all GPUs";
    /// Shortest switching time above the longest.
    SWITCH_TIMES = "LL0212", "switching times are the wrong way round";
    /// A quantity that must be above zero.
    NOT_POSITIVE = "LL0213", "a quantity must be above zero";
    /// A ToR that does not agree with the node's number.
    WRONG_TOR = "LL0214", "a node stands under another ToR than stated";
    /// An explicit file for more fibres than the form is for.
    TOO_MANY_FIBRES = "LL0215", "the explicit form describes too many fibres";
    /// Nodes without a leaf.
    TOO_FEW_LEAVES = "LL0216", "a network with too few leaves for the nodes";
    /// A rate or a size that nobody builds.
    IMPLAUSIBLE = "LL0217", "a rate or a size that nobody builds";
    /// More loss than light can take.
    OPTICAL_BUDGET = "LL0218", "a hop that loses more light than it may";
    /// A file of version 1.
    EARLIER_VERSION = "LL0219", "a fabric file of version 1";
}
