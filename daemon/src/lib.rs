//! lightloom: lightloomd: drives transceivers, optical switches and Linux switches.
