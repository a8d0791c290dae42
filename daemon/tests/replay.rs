//! Every input that the fuzz targets of the daemon have kept runs again, as an ordinary test.

#![allow(clippy::unwrap_used, reason = "a test")]

mod corpus;

fn replay(target: &str, body: fn(&[u8])) {
    let folder = format!("{}/../fuzz/daemon/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is stored") {
        body(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 4, "{folder} holds {count} inputs");
}

#[test]
fn daemon_file() {
    replay("daemon_file", corpus::daemon_file);
}

#[test]
fn plan() {
    replay("plan", corpus::plan);
}

#[test]
fn journal() {
    replay("journal", corpus::journal);
}

#[test]
fn scpi_reply() {
    replay("scpi_reply", corpus::scpi_reply);
}

#[test]
fn tl1_reply() {
    replay("tl1_reply", corpus::tl1_reply);
}

#[test]
fn api() {
    replay("api", corpus::api);
}
