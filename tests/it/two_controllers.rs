// SPDX-License-Identifier: Apache-2.0
//! Two daemons restore drift on one optical switch, with different circuits in their journals. An
//! independent raw TL1 session counts the switching operations.

use crate::daemon_rig;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use daemon_rig::{Modules, Rig, on_a_runtime};
use lightloom_control::change::Mode;
use lightloom_control::controller::{Apply, RESTORES_MAX, Request};
use lightloom_control::state::{Position, Slot, SwitchState};
use lightloom_daemon::runtime::Runtime;
use lightloom_daemon::view;
use lightloom_daemon_api::status::ContendedDevice;

async fn daemon(folder: &Path, at: &str) -> Rig {
    std::fs::create_dir_all(folder).unwrap();
    let password = folder.join("password");
    std::fs::write(&password, "root\n").unwrap();
    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = format!(
        "policies: {{poll_every: 100ms, on_drift: restore}}\ndevices:\n- name: ocs0\n  driver:\n    tl1: {{tcp: \
         \"{at}\", user: root, password_file: \"{}\", allow_default_password: true}}\n",
        password.display()
    );
    Rig::of_devices(&file, folder, None).await
}

async fn set(rig: &mut Rig, egress: u32) {
    let target = SwitchState::from([("ocs0".into(), [(Slot(1), Position(egress))].into())]);
    let apply = Apply { target, mode: Mode::Update, ..Apply::default() };
    let answer = rig.ask(Request::Apply(apply), None).await;
    rig.committed(&answer).await;
}

fn listen(at: &str) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"ACT-USER::root:1::root;").unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

fn joined(stream: &mut TcpStream, heard: &mut String) -> usize {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        heard.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    heard.matches(":JOINED").count()
}

#[test]
#[ignore = "waits 38 s for three restores"]
fn two_daemons_restoring_one_switch_stop_and_name_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let list =
        "switches:\n  - {name: ocs0, ingress: 8, egress: 8, tl1: '127.0.0.1:0', switching: 5ms}\n";
    let (_switch, at) = Modules::of_list(list, &folder.path().join("links"));
    on_a_runtime(async {
        let mut one = daemon(&folder.path().join("one"), &at[0]).await;
        set(&mut one, 9).await;
    });
    on_a_runtime(async {
        let mut other = daemon(&folder.path().join("other"), &at[0]).await;
        set(&mut other, 10).await;

        let (mut session, mut heard) = (listen(&at[0]), String::new());
        let began = Instant::now();
        let one = daemon(&folder.path().join("one"), &at[0]).await;
        let mut after_15_s = None;
        // The third restores come 18 s after the first.
        while began.elapsed() < Duration::from_secs(35) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let moves = joined(&mut session, &mut heard);
            if began.elapsed() > Duration::from_secs(15) {
                after_15_s.get_or_insert(moves);
            }
        }
        let moves = joined(&mut session, &mut heard);
        println!("light moved {after_15_s:?} times in 15 s, {moves} times in all");
        assert!(moves >= 3, "they did meet: {moves}");
        // A restore sends each step up to three times.
        assert!(after_15_s.unwrap() <= 8 && moves <= 4 * RESTORES_MAX as usize, "{moves}");

        let look = |runtime: &Runtime| view::status(runtime).contended;
        let known: Vec<ContendedDevice> =
            one.look(look).await.into_iter().chain(other.look(look).await).collect();
        assert!(known.iter().any(|device| device.stopped), "{known:?}");
        let said = known.iter().find(|device| device.stopped).unwrap();
        println!("{said:?}");
        assert!(
            said.evidence.contains("was restored to port")
                && said.evidence.contains("by another session")
        );
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(joined(&mut session, &mut heard), moves, "and nothing moves any more");
    });
}
