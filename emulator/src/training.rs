//! Training steps packet by packet; in closed form they are `lightloom-training`.

mod network;
pub mod packets;
pub mod replay;
