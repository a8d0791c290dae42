//! Demand matrices from descriptions of work. One file a kind of traffic, each with its byte formula.

pub mod shapes;
