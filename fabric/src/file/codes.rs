// SPDX-License-Identifier: Apache-2.0
//! Codes of errors specific to fabric files.

crate::document::codes! {
    BAD_RING = "LL0201", "a k-hop ring that cannot be built";
    WHICH_FORM = "LL0202", "the cabling is given in neither form or in both";
    NODE_NAMES = "LL0203", "nodes are not numbered from n0 without a gap";
    NO_SUCH_END = "LL0204", "a link ends at a part that does not exist";
    PORT_TWICE = "LL0205", "a port is cabled twice";
    HOP_TOO_LONG = "LL0206", "a link is longer than k hops";
    WRONG_PORTS = "LL0207", "a link contradicts the wiring table";
    BAD_GROUP = "LL0208", "a group size that does not fit the nodes";
    JOB_TOO_LARGE = "LL0209", "jobs request more GPUs than are installed";
    JOB_TWICE = "LL0210", "two jobs have the same name";
    JOB_STARVED = "LL0211", "a job after one that takes all GPUs";
    SWITCH_TIMES = "LL0212", "the shortest switching time exceeds the longest";
    NOT_POSITIVE = "LL0213", "a quantity must be above zero";
    WRONG_TOR = "LL0214", "a node is under a different ToR than stated";
    TOO_MANY_FIBRES = "LL0215", "the explicit form describes too many fibres";
    TOO_FEW_LEAVES = "LL0216", "a network with too few leaves for the nodes";
    IMPLAUSIBLE = "LL0217", "an implausible rate or size";
    OPTICAL_BUDGET = "LL0218", "a hop that exceeds the optical budget";
    NO_VERSION = "LL0219", "a fabric file without `kind` or `version`";
}
