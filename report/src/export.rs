//! A plan in the formats that schedulers, simulators and switches read.
