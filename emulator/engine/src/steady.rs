// SPDX-License-Identifier: Apache-2.0
//! Exact shortcuts: parts of a run that cannot feel each other are run one by one, and of parts that are
//! the same only one is run.

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
