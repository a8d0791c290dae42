//! The command line of lightloom.

fn main() {}
