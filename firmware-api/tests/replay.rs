//! Every input that the fuzz targets of this crate have kept runs again, as an ordinary test.

mod corpus;

fn replay(target: &str, body: fn(&[u8])) {
    let folder = format!("{}/../fuzz/devices/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is stored") {
        let path = entry.expect("the corpus can be listed").path();
        #[expect(clippy::disallowed_methods, reason = "the corpus is in files")]
        body(&std::fs::read(&path).expect("the input can be read"));
        count += 1;
    }
    assert!(count >= 4, "{folder} holds {count} inputs");
}

#[test]
fn serial_frame() {
    replay("serial_frame", corpus::serial_frame);
}

#[test]
fn cmis() {
    replay("cmis", corpus::cmis);
}

#[test]
fn cdb() {
    replay("cdb", corpus::cdb);
}
