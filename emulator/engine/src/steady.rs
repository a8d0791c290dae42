// SPDX-License-Identifier: Apache-2.0
//! Exact shortcuts: parts that cannot affect each other are simulated separately, and identical parts only once.

mod apart;
mod class;
mod description;
mod islands;
mod landing;
mod log;
mod queue;
mod remembering;
mod stage;

pub use islands::{Difference, IslandEngine, LocalProbe, ReuseCount, arrival_sum};
pub use log::OtherEvent;
pub use stage::Stage;

use islands::Entangled;
