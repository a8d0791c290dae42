//! lightloom: pure functions from a fabric and its faults to checked plans.

pub mod rfabric;
