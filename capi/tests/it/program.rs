// SPDX-License-Identifier: Apache-2.0
//! A C program's ring all-reduce, compared with its closed form and with the collective of a scenario.

use std::path::{Path, PathBuf};
use std::process::Command;

use lightloom_emulator::emulate;
use lightloom_emulator::scenario::file::load;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn compiled(source: &Path, folder: &Path) -> Option<PathBuf> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    if Command::new(&compiler).arg("--version").output().is_err() {
        eprintln!("skipped: no C compiler `{compiler}`");
        return None;
    }
    let program = folder.join("program");
    let ended = Command::new(compiler)
        .args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(here("include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(built())
        .arg("-llightloom_capi")
        .arg(format!("-Wl,-rpath,{}", built().display()))
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Some(program)
}

#[test]
fn c_ring_all_reduce_matches_collective_and_closed_form() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(&here("tests/ring.c"), folder.path()) else { return };
    // A step sends one chunk of whole packets (64 + 4,032 bytes) at 400 Gb/s over 1 µs of cable.
    for (ranks, packets) in [(8_u64, 260_u64), (16, 64), (64, 3)] {
        let bytes = ranks * packets * 4_032;
        let text = format!(
            "name: ring\non: {{ring: {{hosts: {ranks}}}}}\ntransport: {{window_packets: 200}}\n"
        );
        let file = folder.path().join("ring.yaml");
        std::fs::write(&file, &text).unwrap();
        let ended = Command::new(&program).arg(&file).arg(bytes.to_string()).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        let printed = String::from_utf8(ended.stdout).unwrap();
        let figures: Vec<u64> =
            printed.split_whitespace().map(|one| one.parse().unwrap()).collect();
        let steps = 2 * (ranks - 1);
        let step = packets * 4_096 * 20 + 1_000_000;
        assert_eq!(figures[..2], [ranks, steps * step]);
        assert_eq!(figures[2], ranks * steps * packets * 2, "each packet and its acknowledgement");
        let traffic = format!(
            "{text}traffic: [{{name: ring, run: {{all_reduce: ring}}, directions: one, hosts: [h0..h{}], bytes: {bytes}B}}]\n",
            ranks - 1
        );
        let (scenario, mistakes) =
            load("ring.yaml", traffic.as_bytes(), &mut |_| Err(String::new()));
        let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
        let outcome = emulate(&scenario, 1, &mut ()).unwrap();
        assert_eq!(outcome.workloads[0].end.unwrap().0, figures[1]);
    }
}

#[test]
fn documented_c_program_compiles_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let page = std::fs::read_to_string(here("../docs/library.md")).unwrap();
    let code = page.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let source = folder.path().join("program.c");
    std::fs::write(&source, code).unwrap();
    let Some(program) = compiled(&source, folder.path()) else { return };
    std::fs::copy(here("../topologies/ring-256.yaml"), folder.path().join("fabric.yaml")).unwrap();
    let ended = Command::new(program).current_dir(folder.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && printed.ends_with(" ps\n"), "{ended:?}");
}

#[test]
fn python_sends_through_the_c_library() {
    let script = "import lightloom
network = lightloom.Network({'ring': {'hosts': 8}}, transport={'window_packets': 100})
seen = []
network.receive(1, 0, 40320, done=lambda: (seen.append(network.time), network.send(1, 2, 4032)))
network.send(0, 1, 40320)
print(seen, network.run(), seen)
";
    let ended = Command::new("python3")
        .env("PYTHONPATH", here("../python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LIGHTLOOM_LIBRARY", built().join("liblightloom_capi.so"))
        .args(["-c", script])
        .output();
    let Ok(ended) = ended else {
        eprintln!("skipped: no python3");
        return;
    };
    // Ten packets use one cable, then one packet uses the next; each cable takes 1 µs.
    let printed = String::from_utf8_lossy(&ended.stdout);
    let first = 10 * 81_920 + 1_000_000;
    let expected = format!("[{first}] {} [{first}]\n", first + 81_920 + 1_000_000);
    assert_eq!(printed, expected, "{}", String::from_utf8_lossy(&ended.stderr));
}
