//! Renders results and computes none: [`page`] for people, [`export`] for other programs.

pub mod export;
pub mod page;
