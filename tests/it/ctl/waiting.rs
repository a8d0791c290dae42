// SPDX-License-Identifier: Apache-2.0
//! Tests verbs that wait, and sockets that do not answer.

use super::*;

#[test]
fn names_a_socket_of_another_program_and_the_command_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("other");
    let listener = UnixListener::bind(&socket).unwrap();
    let refuses = |how: &str| {
        let began = Instant::now();
        let output = ctl(&socket, &["status"]).output().unwrap();
        assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
        let said = String::from_utf8(output.stderr).unwrap();
        let other = format!("is not the socket of lightloomd: {how}. Set --socket or");
        assert!(output.status.code() == Some(1) && said.contains(&other), "{said}");
    };
    refuses("it does not answer");
    std::thread::spawn(move || {
        let mut clients = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = client.write_all(b"error: `GET` is no device\n");
            clients.push(client);
        }
    });
    refuses("its answers are not HTTP");

    let daemon = Daemon::plays(folder.path(), &[]);
    let control = daemon.socket.display().to_string();
    let fault = ["device", "fault", "--control", &control, "n1/b0", "lie"];
    let output = Command::new(programs::lightloom()).args(fault).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("is the socket of lightloomd, not of the devices: use the socket"),
        "{said}"
    );
}

#[test]
fn usage_lines_omit_the_socket_option() {
    let typed = |words: &[&str]| {
        let mut command = Command::new(programs::lightloom());
        command.arg("ctl").args(words).env("LIGHTLOOM_SOCKET", "/nowhere/lightloomd.sock");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    for words in [&["apply"][..], &["confirm"], &["adopt"], &["fault", "--what"]] {
        let (code, said) = typed(words);
        assert!(code == Some(2) && said.contains("Usage: lightloom ctl "), "{said}");
        assert!(!said.contains("--socket"), "{said}");
    }
    let (_, help) = typed(&["confirm", "--help"]);
    assert!(help.contains("Usage: lightloom ctl confirm [OPTIONS] <TXN>\n"), "{help}");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "--socket <PATH> Socket of the daemon or `https://HOST:PORT`; several daemons are separated by \
                commas, and the leader is used [default: $LIGHTLOOM_SOCKET, else /run/lightloom/lightloomd.sock]";
    assert!(help.contains(said), "{help}");
    let (_, said) = typed(&["status"]);
    assert!(said.contains("/nowhere/lightloomd.sock"), "{said}");
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn watch_survives_a_daemon_restart() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, quiet())]);
    let file = |name: &str| folder.path().join(name);
    let shown = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let mut command = ctl(&daemon.socket, &["watch"]);
    command.stdout(std::fs::File::create(file("out")).unwrap());
    command.stderr(std::fs::File::create(file("err")).unwrap());
    let mut watch = Running(command.stdin(Stdio::null()).spawn().unwrap());
    until("the first page", || shown("out").contains("version 7"));

    daemon.goes_away();
    until("that it is away", || shown("err").contains("DAEMON UNREACHABLE since "));
    std::thread::sleep(Duration::from_millis(2500));
    assert!(watch.0.try_wait().unwrap().is_none(), "it goes on: {}", shown("err"));
    assert_eq!(
        shown("err").matches("DAEMON UNREACHABLE").count(),
        1,
        "said once: {}",
        shown("err")
    );

    let back = status(json!({"version": 8}));
    let _daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, back)]);
    until("the page after it", || shown("out").contains("version 8"));
    assert!(shown("err").ends_with("lightloomd is reachable again\n"), "{}", shown("err"));
}

#[test]
fn wait_shows_its_reason_and_ends_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("absent.sock");
    let output = ctl(&nowhere, &["wait", "--for", "1500ms"]).output().unwrap();
    let noted = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let (first, last) = noted.split_once('\n').unwrap();
    assert!(first.starts_with("waiting, ") && first.contains("is it running?"), "{noted}");
    assert!(last.starts_with("error: cannot reach lightloomd"), "{noted}");

    let silent = device("n3/b0", "unseen", Some("no answer within 2 s"));
    let unread = status(json!({"devices": [silent]}));
    let daemon = Daemon::plays(folder.path(), &[("/v1/status", 200, unread)]);
    let (code, _, noted) = run(&daemon, &["wait", "--for", "1500ms"]);
    assert_eq!(code, 1);
    assert!(noted.contains(" left: not read yet: n3/b0 (no answer within 2 s)\n"), "{noted}");
    assert!(noted.ends_with("not read within 2 s: n3/b0 (no answer within 2 s)\n"), "{noted}");

    let dead = |bypassed: bool| {
        let silent = ["n3/b0", "n3/b1"].map(|name| device(name, "unseen", Some("no answer")));
        let part = json!({"part": "n3", "why": "reported by uid:0", "bypassed": bypassed});
        let mut devices = silent.to_vec();
        devices.push(device("n1/b0", "as-wanted", None));
        status(json!({"devices": devices, "broken_parts": [part]}))
    };
    daemon.says("/v1/status", 200, dead(true));
    let expected = "1 device read; n3/b0, n3/b1 cannot be read, but the plan bypasses them\n";
    assert_eq!(run(&daemon, &["wait", "--for", "1s"]), (0, expected.to_owned(), String::new()));
    daemon.says("/v1/status", 200, dead(false));
    let (code, _, noted) = run(&daemon, &["wait", "--for", "500ms"]);
    let expected = "not read within 1 s: n3/b0 (no answer), n3/b1 (no answer)\n";
    assert!(code == 1 && noted.ends_with(expected), "{noted}");
    // A device named on the command line is awaited in any case, if it exists.
    daemon.says("/v1/status", 200, dead(true));
    let (code, _, noted) = run(&daemon, &["wait", "n3", "--for", "500ms"]);
    assert!(code == 1 && noted.ends_with(expected), "{noted}");
    let read = (0, "read: n1, n1/b0\n".to_owned(), String::new());
    assert_eq!(run(&daemon, &["wait", "n1,n1/b0"]), read);
    let (code, _, noted) = run(&daemon, &["wait", "n99"]);
    assert!(code == 1 && noted.contains("n99: unknown device or node"), "{noted}");
    // An untested device may still work.
    let mut young = dead(true);
    young["devices"][0]["trouble"] = Value::Null;
    daemon.says("/v1/status", 200, young);
    let (code, _, noted) = run(&daemon, &["wait", "--for", "500ms"]);
    assert!(code == 1 && noted.ends_with("not read within 1 s: n3/b0\n"), "{noted}");
}
