//! Pure functions from a fabric and its faults to checked plans and figures.
//!
//! * [`khop`] – plans the k-hop ring: rings of GPUs around what is broken;
//! * [`rfabric`] – plans the reconfigurable fat-tree: circuits for each phase of a step;
//! * [`check`] – proves a plan of the k-hop ring, and shares no code with what made it;
//! * [`architecture`], [`compare`], [`cost`] – other designs, what they waste under faults, and what they cost;
//! * [`reproduce`] – published claims, recomputed.

pub mod architecture;
pub mod check;
pub mod compare;
pub mod cost;
pub mod khop;
pub mod reproduce;
pub mod rfabric;
