// SPDX-License-Identifier: Apache-2.0
//! Third-party programs that read our files.

use std::path::Path;
use std::process::Command;

pub(crate) fn consumer(
    name: &str,
    probe: &[&str],
    arguments: &[&str],
    folder: &Path,
) -> Option<String> {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(arguments[0]);
        command.args(&arguments[1..]).current_dir(folder).output()
    };
    if !run(probe).is_ok_and(|output| output.status.success()) {
        println!("skipped: no {name}");
        return None;
    }
    let output = run(arguments).unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
