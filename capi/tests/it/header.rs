// SPDX-License-Identifier: Apache-2.0
//! The header declares the functions and codes of the library.

use std::collections::BTreeMap;
use std::path::Path;

use lightloom_capi::{ABI_VERSION, ErrorCode};

fn text(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn in_c(rust: &str) -> &'static str {
    match rust {
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "c_int" => "int",
        "*mut u32" => "uint32_t *",
        "*mut u64" => "uint64_t *",
        "*mut c_char" => "char *",
        "*const c_char" => "const char *",
        "*mut c_void" => "void *",
        "*mut Handle" => "lightloom_network *",
        "*mut *mut Handle" => "lightloom_network **",
        "Option<Callback>" => "lightloom_callback",
        other => panic!("no C for {other}"),
    }
}

type Functions = BTreeMap<String, Vec<String>>;

fn of_code() -> Functions {
    let code = text("src/lib.rs");
    let declared = code.split("extern \"C\" fn ").skip(1);
    declared
        .map(|rest| {
            let (name, rest) = rest.split_once('(').unwrap();
            let (arguments, rest) = rest.split_once(") -> ").unwrap();
            let result = rest.split_once(" {").unwrap().0;
            let arguments = arguments.split(',').map(str::trim).filter(|one| !one.is_empty());
            let types = arguments.map(|one| one.split_once(": ").unwrap().1);
            let types = std::iter::once(result).chain(types).map(|of| in_c(of).to_owned());
            (name.to_owned(), types.collect())
        })
        .collect()
}

fn of_header() -> Functions {
    let header = text("include/lightloom.h");
    let uncommented: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, after)| after))
        .collect();
    let statements =
        uncommented.split(';').map(|one| one.split_whitespace().collect::<Vec<_>>().join(" "));
    let prototypes = statements.filter(|one| {
        one.contains(" lightloom_") && one.ends_with(')') && !one.contains("typedef")
    });
    prototypes
        .map(|one| {
            let (head, arguments) = one.trim_end_matches(')').split_once('(').unwrap();
            let (result, name) = head.rsplit_once(' ').unwrap();
            let result = result.rsplit(' ').next().unwrap();
            let of = |argument: &str| {
                let at = argument.rfind([' ', '*']).unwrap() + 1;
                argument[..at].trim().to_owned()
            };
            let arguments = arguments.split(", ").filter(|one| *one != "void").map(of);
            (name.to_owned(), std::iter::once(result.to_owned()).chain(arguments).collect())
        })
        .collect()
}

#[test]
fn header_declares_every_library_function() {
    let (code, header) = (of_code(), of_header());
    assert_eq!(code, header);
    assert!(code.len() >= 14, "{code:?}");
    let program = text("tests/ring.c");
    for name in code.keys() {
        assert!(program.contains(name), "tests/ring.c links {name}");
    }
}

#[test]
fn header_matches_error_codes_and_abi_version() {
    let header = text("include/lightloom.h");
    assert!(header.contains(&format!("#define LIGHTLOOM_ABI_VERSION {ABI_VERSION}\n")));
    let codes = [
        ("OK", ErrorCode::Ok),
        ("BAD_ARGUMENT", ErrorCode::BadArgument),
        ("BAD_FILE", ErrorCode::BadFile),
        ("BAD_STATE", ErrorCode::BadState),
        ("STALLED", ErrorCode::Stalled),
        ("FAILED", ErrorCode::Failed),
        ("PANICKED", ErrorCode::Panicked),
    ];
    for (name, kind) in codes {
        let line = format!("LIGHTLOOM_{name} = {}", kind as i32);
        assert!(header.contains(&line), "{line}");
    }
}
