//! lightloom: what a host and an optical transceiver say to each other.
