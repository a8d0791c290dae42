//! What the HTTP API of `lightloomd` says, as types: written by the daemon, read by `lightloom ctl`.

pub mod phase;
