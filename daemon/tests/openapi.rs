//! The committed OpenAPI document is the one the API is made of.

#[test]
fn the_committed_document_is_what_the_api_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let now = lightloom_daemon::api::openapi();
    if std::env::var_os("LIGHTLOOM_BLESS").is_some() {
        std::fs::write(file, &now).expect("the document can be written");
    }
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == now,
        "daemon/openapi.json is not what the API says: run this test with LIGHTLOOM_BLESS=1"
    );
}
