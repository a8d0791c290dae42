// SPDX-License-Identifier: Apache-2.0
//! Codes of errors specific to fabric files.

crate::document::codes! {
    /// K is outside 2…R, or R or N is out of bounds.
    BAD_RING = "LL0201", "a k-hop ring that cannot be built";
    /// Both forms of the cabling, or neither, are given.
    WHICH_FORM = "LL0202", "neither or both forms of the cabling";
    /// Explicit nodes are not n0 to n(N-1).
    NODE_NAMES = "LL0203", "nodes are not numbered from n0 without a gap";
    /// A link ends at a node or bundle that does not exist.
    NO_SUCH_END = "LL0204", "a link ends at a part that does not exist";
    /// A port has two fibres.
    PORT_TWICE = "LL0205", "a port is cabled twice";
    /// A link is longer than K.
    HOP_TOO_LONG = "LL0206", "a link is longer than k hops";
    /// A link joins ports that the wiring table does not join.
    WRONG_PORTS = "LL0207", "a link contradicts the wiring table";
    /// A group of GPUs does not fill whole nodes.
    BAD_GROUP = "LL0208", "a group size that does not fit the nodes";
    /// Jobs request more GPUs than are installed.
    JOB_TOO_LARGE = "LL0209", "jobs want more GPUs than there are";
    /// Two jobs have the same name.
    JOB_TWICE = "LL0210", "two jobs have the same name";
    /// No GPUs remain for a job.
    JOB_STARVED = "LL0211", "a job stands behind one that takes all GPUs";
    /// The shortest switching time exceeds the longest.
    SWITCH_TIMES = "LL0212", "switching times are the wrong way round";
    /// A quantity must be positive.
    NOT_POSITIVE = "LL0213", "a quantity must be above zero";
    /// The stated ToR does not match the node's number.
    WRONG_TOR = "LL0214", "a node stands under another ToR than stated";
    /// The explicit form is used for too many fibres.
    TOO_MANY_FIBRES = "LL0215", "the explicit form describes too many fibres";
    /// The network has too few leaves for the nodes.
    TOO_FEW_LEAVES = "LL0216", "a network with too few leaves for the nodes";
    /// A rate or size is implausible.
    IMPLAUSIBLE = "LL0217", "a rate or a size that nobody builds";
    /// A hop exceeds the optical budget.
    OPTICAL_BUDGET = "LL0218", "a hop that loses more light than it may";
    /// A file without `kind` or `version`.
    NO_VERSION = "LL0219", "a fabric file without `kind` or `version`";
}
