//! Exact shortcuts: parts of a run that cannot feel each other are run one by one, and of parts that are
//! the same only one is run.

mod stage;

pub use stage::Stage;
