//! Pure functions from a fabric and its faults to checked plans. Figures of whole designs: `lightloom-study`.
//!
//! * [`khop`] – plans the k-hop ring: rings of GPUs around what is broken;
//! * [`rfabric`] – plans the reconfigurable fat-tree: circuits for each phase of a step;
//! * [`check`] – proves a plan of the k-hop ring, and shares no code with what made it.

pub mod check;
pub mod khop;
pub mod rfabric;
