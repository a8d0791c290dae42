//! lightloom: pure functions from a fabric and its faults to checked plans.

pub mod architecture;
pub mod check;
pub mod compare;
pub mod cost;
pub mod khop;
pub mod reproduce;
pub mod rfabric;
