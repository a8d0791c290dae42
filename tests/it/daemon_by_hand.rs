// SPDX-License-Identifier: Apache-2.0
//! Runs the commands of docs/first-hour.md and the operations pages verbatim in one shell, with
//! emulated devices and the real daemon. Only `/tmp/lightloom` is replaced, so that a demo can run
//! on the same machine.

use crate::programs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn commands(page: &str, section: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split(&format!("\n## {section}\n")).nth(1).expect("the section is there");
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.collect()
}

struct Shell(std::process::Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn typed(commands: &str, folder: &Path, within: Duration) -> String {
    let programs = programs::folder();
    let folder_text = folder.join("lightloom").display().to_string();
    let script = format!(
        "set -ex\ncd {}\n{}",
        folder.display(),
        commands.replace("/tmp/lightloomd.log", &format!("{folder_text}.log"))
    );
    let script = script.replace("/tmp/lightloom", &folder_text);
    let copied = folder.join("topologies");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies"), &copied, &folder_text);
    let (shown, out) = (folder.join("shown"), std::fs::File::create(folder.join("shown")).unwrap());
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("PATH", path).process_group(0).stdin(Stdio::null());
    bash.stdout(out.try_clone().unwrap()).stderr(out);
    let mut shell = Shell(bash.spawn().unwrap());
    let until = Instant::now() + within;
    let status = loop {
        if let Some(status) = shell.0.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > until {
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let shown = std::fs::read_to_string(shown).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{shown}");
    shown
}

fn copy(from: &Path, to: &Path, state: &str) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to, state);
        } else {
            let text = std::fs::read_to_string(path).unwrap();
            std::fs::write(to, text.replace("/tmp/lightloom", state)).unwrap();
        }
    }
}

fn transactions(shown: &str) -> Vec<(String, String)> {
    let start = shown.rfind("\n[\n").expect("the journal is shown as JSON");
    let end = start + shown[start..].find("\n]").unwrap() + 2;
    let journal: Value = serde_json::from_str(&shown[start..end]).unwrap();
    let mut ends: Vec<(String, String)> = journal
        .as_array()
        .unwrap()
        .iter()
        .map(|past| {
            let text = |key: &str| past[key].as_str().unwrap().to_owned();
            (text("cause"), text("result"))
        })
        .collect();
    ends.reverse();
    ends
}

/// The output must contain the lines of the section's `text` blocks in order. `alike` removes times and other
/// variable parts.
fn says_what_is_seen(page: &str, section: &str, shown: &str, alike: fn(&str) -> String) {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let section = text.split(&format!("\n## {section}\n")).nth(1).expect("the section is there");
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```text\n").skip(1).map(|block| block.split("```").next().unwrap());
    let lines: Vec<&str> = blocks.flat_map(str::lines).filter(|line| *line != "…").collect();
    assert!(lines.len() > 8, "{page} shows what one sees");
    let seen: Vec<String> = shown.lines().map(alike).collect();
    let mut from = 0;
    for line in lines {
        let said = alike(line);
        let place = seen[from..].iter().position(|seen| seen.contains(&said));
        let before = seen.iter().any(|seen| seen.contains(&said));
        let place = place.unwrap_or_else(|| {
            panic!("{page}: `{line}` is not shown there (elsewhere: {before})\n{shown}")
        });
        from += place;
    }
}

fn numberless(line: &str) -> String {
    let mut words: Vec<String> = timeless(line).split(' ').map(str::to_owned).collect();
    if line.starts_with("transaction ") && words.len() > 1 {
        words[1] = "#".into();
    }
    words.join(" ")
}

fn timeless(line: &str) -> String {
    let counts =
        line.contains("automatic changes within") || line.contains("completes it from the journal");
    let word = |word: &str| {
        let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
        let is_time = digits.len() >= 8 && digits.contains([':', '-']);
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_hash = bare.len() == 12 && bare.chars().all(|c| c.is_ascii_hexdigit());
        if is_hash {
            return word.replace(bare, "#");
        }
        let is_count = word.len() < 4 && !digits.is_empty();
        if is_time || (counts && is_count) { "#".to_owned() } else { word.to_owned() }
    };
    let (before, after) = line.split_once("(in ").unwrap_or((line, ""));
    let after = after.split_once(')').map_or("", |(_, after)| after);
    let words = before.split_whitespace().chain(after.split_whitespace());
    words.map(word).collect::<Vec<String>>().join(" ")
}

fn expected(ends: &[(&str, &str)]) -> Vec<(String, String)> {
    ends.iter().map(|(why, end)| ((*why).to_owned(), (*end).to_owned())).collect()
}

const FIRST_STEPS: &str = "The daemon, without hardware";

#[test]
fn first_hour_commands_work_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let mut script = commands("docs/first-hour.md", FIRST_STEPS);
    assert!(script.contains("kill -9 $DAEMON") && script.contains("n17 dead"));
    script += "lightloom ctl journal --format json\nkill $DAEMON\n";
    let started = Instant::now();
    let shown = typed(&script, folder.path(), Duration::from_secs(180));
    println!("typed in {:.1} s", started.elapsed().as_secs_f64());

    let ends = transactions(&shown);
    assert_eq!(ends[0], ("apply".into(), "committed".into()));
    // On a busy machine, a first bypass may still address the second bundle of a failed node, and then aborts
    // without an answer.
    let bypasses = &ends[1..ends.len() - 2];
    let bypass =
        |(why, end): &(String, String)| why == "bypass" && (end == "committed" || end == "aborted");
    assert!((1..=3).contains(&bypasses.len()) && bypasses.iter().all(bypass), "{ends:?}");
    let last = [("repair", "committed"), ("apply", "committed")]; // The repair commits, and the daemon is killed during the apply.
    assert_eq!(ends[ends.len() - 2..], expected(&last), "{shown}");
    says_what_is_seen("docs/first-hour.md", FIRST_STEPS, &shown, numberless);
    let watched = std::fs::read_to_string(folder.path().join("lightloom/watched")).unwrap();
    assert!(watched.contains("DEGRADED, 2 parts bypassed: n17/b0 (since"), "{watched}");
}

#[test]
fn operations_commands_work_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let readme = commands("docs/first-hour.md", FIRST_STEPS);
    let (start, _) = readme.split_once("lightloom device fault").expect("first a plan is applied");
    let night = commands("docs/operations.md", "The night shift");
    let damage = "sed -i '3s/adopted/";
    let (before, after) = night.split_once(damage).expect("a journal is damaged");
    let before =
        before.strip_suffix("kill $DAEMON; wait $DAEMON\n").expect("the daemon is stopped");
    let script = format!(
        "{start}{before}lightloom ctl journal --format json\nkill $DAEMON; wait $DAEMON\n{damage}{after}\
         lightloom ctl --format json status\nkill $DAEMON\n"
    );
    let started = Instant::now();
    let shown = typed(&script, folder.path(), Duration::from_secs(180));
    println!("typed in {:.1} s", started.elapsed().as_secs_f64());

    let ends = [
        ("apply", "committed"),
        ("apply", "undone"),
        ("rollback to before 2", "committed"),
        ("apply", "undone"),
        ("4 was not confirmed in time", "committed"),
        ("bypass", "committed"),
        ("repair", "committed"),
        ("bypass", "committed"),
        ("repair", "committed"),
        ("bypass", "committed"),
        ("repair", "committed"),
        ("apply", "committed"),
        ("apply", "aborted"),
        ("apply", "rolled-back"),
        ("apply", "partial"),
        ("drift", "committed"), // The plan contains the circuit again, so the daemon owns it.
        ("apply", "committed"),
        ("apply", "rolled-back"),
        ("apply", "committed"),
        ("repair", "committed"),
        ("apply", "committed"),
    ];
    assert_eq!(transactions(&shown), expected(&ends), "{shown}");
    says_what_is_seen("docs/operations.md", "The night shift", &shown, timeless);
    assert!(shown.contains("JOURNAL DAMAGED, changes are refused: "), "{shown}");
    assert!(shown.contains("\"state\": \"as-wanted\"") && !shown.contains("\"state\": \"unseen\""));
}

const THREE_MISTAKES: &str = "A rack with three mistakes";

#[test]
fn commissioning_commands_work_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let page = "docs/how-to/commission.md";
    let script = commands(page, THREE_MISTAKES);
    let again = "lightloom ctl commission topologies/ring-32.yaml --state /tmp/lightloom/commission.json || true";
    let (before, after) = script.rsplit_once(again).expect("once beside a plan");
    let count = "for n in $(seq 0 31); do lightloom ctl module n$n/b0 --format json | grep -e lit -e '\"generation'; done";
    let optics = "sed '$a transceiver: {optics: {launch_dbm: 0, sensitivity_dbm: -8, switch_db: 1, hops: \
                  [{fibre_m: 2, connectors: 2}, {fibre_m: 5, connectors: 2}]}}' topologies/ring-32.yaml > optics.yaml\n";
    let adopt = "lightloom ctl adopt all\n";
    assert!(before.contains(adopt));
    let before = before.replacen(adopt, &format!("! lightloom ctl rollback 2\n{adopt}"), 1);
    let script = format!(
        "{before}{count} > /tmp/lightloom/before\n{again}\n{count} > /tmp/lightloom/after\n{after}\
         lightloom device fault --control /tmp/lightloom/faults n31/b0 droop 8\n{optics}\
         lightloom ctl commission optics.yaml --state /tmp/lightloom/optics.json || true\nkill $DAEMON\n"
    );
    let shown = typed(&script, folder.path(), Duration::from_secs(120));
    let anywhere = |line: &str| {
        let words = line.split(' ').map(|word| {
            word.rsplit_once('/').filter(|_| word.ends_with(".json")).map_or(word, |(_, file)| file)
        });
        words.collect::<Vec<_>>().join(" ")
    };
    says_what_is_seen(page, THREE_MISTAKES, &shown, anywhere);
    let kept =
        |name: &str| std::fs::read_to_string(folder.path().join("lightloom").join(name)).unwrap();
    let lit = |text: &str| -> Vec<String> {
        let modules = text.lines().collect::<Vec<_>>();
        modules
            .chunks(2)
            .map(|lines| lines.join(" "))
            .filter(|module| module.contains("external"))
            .collect()
    };
    let (before, after) = (lit(&kept("before")), lit(&kept("after")));
    assert!(before.len() > 20 && before == after, "{before:?}\n{after:?}");
    assert!(
        shown.contains("weak light: ") && shown.contains("transaction 2 is one of several probes"),
        "{shown}"
    );
}

const WORST_NIGHTS: &str = "Three nights";

#[test]
fn worst_nights_commands_work_as_documented() {
    if Command::new("etcd").arg("--version").output().is_err() {
        println!("skipped: no etcd");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lightloom")).unwrap();
    let port = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (client, peer) = (port().to_string(), port().to_string());
    let page = "docs/operations-daemons.md";
    let script = commands(page, WORST_NIGHTS);
    let script = script.replace("127.0.0.1:2379", &client).replace("127.0.0.1:2380", &peer);
    let started = Instant::now();
    let shown = typed(&script, folder.path(), Duration::from_secs(180));
    println!("typed in {:.1} s", started.elapsed().as_secs_f64());
    says_what_is_seen(page, WORST_NIGHTS, &shown, numberless);
}

const SECOND_NIGHT: &str = "A night of a reconfigurable network";

#[test]
fn second_night_commands_work_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let mut script = commands("docs/operations-phases.md", SECOND_NIGHT);
    script += "lightloom ctl journal --format json\nkill $DAEMON\n";
    let started = Instant::now();
    let shown = typed(&script, folder.path(), Duration::from_secs(180));
    println!("typed in {:.1} s", started.elapsed().as_secs_f64());
    let ends = transactions(&shown);
    let phases: Vec<&str> =
        ends.iter().filter(|(why, _)| why == "phase").map(|(_, end)| end.as_str()).collect();
    assert_eq!(&phases[..4], ["committed", "committed", "rolled-back", "committed"], "{ends:?}");
    assert!(ends.contains(&("bypass".into(), "committed".into())), "{ends:?}");
    says_what_is_seen("docs/operations-phases.md", SECOND_NIGHT, &shown, measureless);
    let moves = std::fs::read_to_string(folder.path().join("lightloom/moves")).unwrap();
    assert!(moves.lines().all(|line| line.starts_with("{\"hook\":\"after\"")), "{moves}");
    assert!(moves.contains("\"kind\":\"phase\""), "{moves}");
    let failed = std::fs::read_to_string(folder.path().join("lightloom/failed")).unwrap();
    assert!(failed.contains("\"result\":\"rolled-back\""), "{failed}");
}

fn measureless(line: &str) -> String {
    let line = numberless(line);
    let words: Vec<&str> = line.split(' ').collect();
    let is_time = |at: usize| {
        let unit =
            words.get(at + 1).is_some_and(|unit| unit.trim_end_matches([',', ')', ':']) == "ms");
        unit && words[at].trim_start_matches('(').parse::<f64>().is_ok()
    };
    let shown = (0..words.len()).map(|at| if is_time(at) { "#" } else { words[at] });
    shown.collect::<Vec<_>>().join(" ")
}

/// A shell loop around a headless browser. The browser's virtual time stops for up to two seconds
/// per response, and a hung browser is restarted.
fn look(name: &str) -> String {
    let file = format!("/tmp/lightloom/{name}");
    format!(
        "lightloom ctl status > {file}.txt || true\n\
         for wait in 8 8 8 8 8 8 8 8 8 8 16 32 end; do\n\
         timeout --kill-after=5 $wait chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
         --disable-background-networking --disable-component-update --disable-sync --no-first-run \
         --user-data-dir=$(mktemp -d {file}.XXXXXX) --window-size=1280,1000 --enable-logging=stderr \
         --virtual-time-budget=500 --screenshot={file}.png --dump-dom \"$(cat /tmp/lightloom/page)\" \
         > {file}.html 2> {file}.log && break; done; test $wait != end\n"
    )
}

fn looked(folder: &Path, name: &str) -> String {
    let file = |end: &str| folder.join("lightloom").join(format!("{name}.{end}"));
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&pictures).unwrap();
    std::fs::copy(file("png"), pictures.join(format!("{name}.png"))).unwrap();
    let log = std::fs::read_to_string(file("log")).unwrap();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(said.is_empty(), "the script says {said:?}");
    let page = std::fs::read_to_string(file("html")).unwrap();
    assert!(!page.contains(">The daemon does not answer"), "{page}");
    // The page must show the lines of `ctl status`, from the alarms to the tables, in the same
    // order.
    let status = std::fs::read_to_string(file("txt")).unwrap();
    let (_, status) = status.split_once("\n\n").unwrap_or_default();
    let lines: Vec<String> = status
        .lines()
        .take_while(|line| !line.starts_with("device  ") && !line.starts_with("txn  "))
        .filter(|line| !line.is_empty())
        .map(|line| format!(">{line}<"))
        .collect();
    let places: Vec<Option<usize>> = lines.iter().map(|line| page.find(line)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{lines:?}: {page}");
    page
}

fn count(page: &str, what: &str) -> usize {
    page.matches(what).count()
}

/// A change awaiting confirmation, then a bypass and an unreachable module. Screenshots are kept in
/// `target/tmp/page`.
#[test]
fn live_page_shows_changes_and_faults_in_a_browser() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join("chromium").is_file()) {
        println!("skipped: no chromium");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let readme = commands("docs/first-hour.md", "The daemon, without hardware");
    let (mut script, _) =
        readme.split_once("lightloom ctl confirm 1").map(|(a, b)| (a.to_owned(), b)).unwrap();
    script += "lightloom ctl page --listen 127.0.0.1:0 > /tmp/lightloom/page &\n\
               until test -s /tmp/lightloom/page; do sleep 0.1; done\n";
    script += &look("waiting");
    script += "lightloom ctl confirm 1\n";
    script += &look("quiet");
    script += "lightloom ctl fault n17\n\
               lightloom device fault --control /tmp/lightloom/faults ocs0 half-open\n\
               until lightloom ctl status --format json | grep -q '\"state\": \"unseen\"'; do sleep 0.2; done\n";
    script += &look("bypassed");
    script += "kill $DAEMON; wait $DAEMON\nsed -i '3s/adopted/adapted/' /tmp/lightloom/state/journal.log\n\
               lightloomd --config topologies/daemon.yaml 2>> /tmp/lightloomd.log & DAEMON=$!\n\
               until lightloom ctl journal; do sleep 0.1; done\n";
    script += &look("damaged");
    script += "kill $DAEMON\n";
    typed(&script, folder.path(), Duration::from_secs(420));

    let page = looked(folder.path(), "waiting");
    assert!(
        page.contains(">65 of 65 devices in the desired state<") && page.contains(">version 2, "),
        "{page}"
    );
    assert!(page.contains(">transaction 1 AWAITS CONFIRMATION: "), "{page}");
    assert_eq!(count(&page, "class=\"cell as-wanted\""), 65, "a cell for each device");
    assert_eq!(count(&page, "<circle "), 32, "a dot for each node");
    assert!(count(&page, "class=\"circuit\"") > 0 && count(&page, "class=\"circuit open\"") == 0);
    assert!(
        page.contains(
            ">circuits up: 40 of 40 (both ends), including 16 loopbacks that close rings<"
        ) && page.contains("<td>committed, to confirm before ")
    );

    let page = looked(folder.path(), "quiet");
    assert!(
        page.contains(">ALL IS WELL<") && page.contains("<td>committed, confirmed</td>"),
        "{page}"
    );

    let page = looked(folder.path(), "bypassed");
    assert!(page.contains(">DEGRADED, 1 part bypassed: n17"), "{page}");
    assert!(page.contains("<code>lightloom ctl fault --repaired n17</code>"), "{page}");
    assert!(
        page.contains(">UNSEEN, 1 device: ") && page.contains("<td>bypass of n17</td>"),
        "{page}"
    );
    assert!(!page.contains(">transaction 1 AWAITS CONFIRMATION"));
    assert_eq!(count(&page, "class=\"cell unseen\""), 1, "the switch is silent");
    assert!(page.contains("<td>ocs0</td>"));
    assert!(page.contains("64 of 65 devices in the desired state"), "{page}");

    let page = looked(folder.path(), "damaged");
    assert!(page.contains(">JOURNAL DAMAGED, changes are refused"), "{page}");
    assert!(page.contains("journal.log line 3 (byte ") && !page.contains(">UNSEEN"), "{page}");
}

#[test]
fn daemon_of_a_hundred_devices_uses_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"mkdir -p /tmp/lightloom
echo 'transceivers: [{names: "n{0..49}/b{0..1}", powered_for: 2s}]' > devices.yaml
lightloom device serve devices.yaml --links /tmp/lightloom/modules > /dev/null &
echo 'state_dir: /tmp/lightloom/state
policies: {poll_every: 1s}
modules: [{nodes: [0, 49], bundles: 2, serial: "/tmp/lightloom/modules/n{node}-b{bundle}"}]' > daemon.yaml
lightloomd --config daemon.yaml 2> /tmp/lightloomd.log & DAEMON=$!
export LIGHTLOOM_SOCKET=/tmp/lightloom/state/lightloomd.sock
lightloom ctl wait
lightloom ctl adopt all
sleep 5
grep VmRSS /proc/$DAEMON/status
"#;
    let shown = typed(script, folder.path(), Duration::from_secs(120));
    let line = shown.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let resident_kb: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("100 devices, polled every second: {:.1} MB resident", resident_kb as f64 / 1e3);
    assert!(resident_kb < 30_000, "{line}");
}

/// Scenario S2: after a restart with free space, the devices are as in the journal.
#[test]
fn full_disk_refuses_changes_and_serves_reads() {
    let folder = tempfile::tempdir().unwrap();
    let readme = commands("docs/first-hour.md", "The daemon, without hardware");
    let devices = readme.lines().find(|line| line.contains("device serve")).unwrap();
    let script = r#"
(trap '' XFSZ; ulimit -f 100; exec lightloomd --config topologies/daemon.yaml) 2> /tmp/lightloomd.log & DAEMON=$!
export LIGHTLOOM_SOCKET=/tmp/lightloom/state/lightloomd.sock
lightloom ctl wait
lightloom ctl adopt all
lightloom plan topologies/ring-32.yaml -o /tmp/lightloom/a.json
lightloom plan topologies/ring-32.yaml --fault n5,n20 -o /tmp/lightloom/b.json
for round in $(seq 20); do
  timeout 10 lightloom ctl apply --cut-light --mode update /tmp/lightloom/a.json || break
  timeout 10 lightloom ctl apply --cut-light --mode update /tmp/lightloom/b.json || break
done
# It tries to write again each second, so that small records may still find their place: until none does.
until lightloom ctl status | grep 'JOURNAL CANNOT BE WRITTEN, changes are refused'; do
  lightloom ctl adopt all || true
done
kill $DAEMON; wait $DAEMON || true
lightloomd --config topologies/daemon.yaml 2>> /tmp/lightloomd.log & DAEMON=$!
lightloom ctl wait
# What was on its way is brought to its end first.
until lightloom ctl apply --cut-light --mode update /tmp/lightloom/a.json; do sleep 0.2; done
lightloom ctl drift
kill $DAEMON
"#;
    let shown = typed(&format!("{devices}{script}"), folder.path(), Duration::from_secs(180));
    let applied = shown.matches(": committed, ").count();
    println!("full after {applied} changes; reads went on, and after a restart changes did");
    assert!(applied > 1, "{shown}");
}

/// A small separate disk for the state folder requires a mount namespace and therefore root
/// privileges.
#[test]
fn power_loss_and_full_disk_commands_work_as_documented() {
    let namespace = Command::new("unshare").args(["-m", "true"]).status();
    if !namespace.is_ok_and(|status| status.success()) {
        println!("skipped: no mount namespace can be had here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let readme = commands("docs/first-hour.md", FIRST_STEPS);
    let (start, _) = readme.split_once("lightloom device fault").expect("first a plan is applied");
    let night = commands("docs/operations-setup.md", "When power or disk fails");
    let small =
        "mkdir -p /tmp/lightloom/state\nmount -t tmpfs -o size=24m none /tmp/lightloom/state\n";
    let inner = format!("{small}{start}{night}kill $DAEMON; wait $DAEMON || true\n");
    let script = format!("cat > inner.sh <<'END'\n{inner}END\nunshare -m bash -ex inner.sh\n");
    let shown = typed(&script, folder.path(), Duration::from_secs(180));
    let seen: Vec<&str> = shown.lines().collect();
    let after = |from: usize, what: &str| {
        let found = seen[from..].iter().position(|line| line.contains(what));
        from + found.unwrap_or_else(|| panic!("not seen: {what}\n{shown}"))
    };
    let good = after(after(0, "torn off in the mid"), "the file is good");
    let well = after(good, "ALL IS WELL");
    let bypassed = after(well, "bypass of n9");
    let full = after(bypassed, "JOURNAL CANNOT BE WRITTEN, changes are refused: the disk of ");
    let refused = after(full, "refused: the disk is full");
    let on_top = after(refused, "lightloom ctl fault n9");
    let committed = after(on_top, "committed");
    let room = after(committed, "rm ");
    assert_eq!(after(full, "committed"), committed, "what was refused moves nothing\n{shown}");
    after(room, "ALL IS WELL");
}

/// The status reports the loss until there is a plan, even after all light was adopted.
#[test]
fn lost_journal_is_not_healthy_until_a_plan_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let readme = commands("docs/first-hour.md", FIRST_STEPS);
    let (start, _) = readme.split_once("lightloom device fault").expect("first a plan is applied");
    let gone = "kill -9 $DAEMON; wait $DAEMON || true
rm /tmp/lightloom/state/journal.log
lightloomd --config topologies/daemon.yaml 2>> /tmp/lightloomd.log & DAEMON=$!
lightloom ctl wait
lightloom ctl adopt all
lightloom ctl status --check > /tmp/lightloom/adopted && exit 1
grep 'LOST' /tmp/lightloom/adopted
lightloom ctl apply /tmp/lightloom/plan.json --mode update
until lightloom ctl status --check > /dev/null; do sleep 0.5; done
kill $DAEMON; wait $DAEMON || true
";
    let shown = typed(&format!("{start}{gone}"), folder.path(), Duration::from_secs(120));
    assert!(shown.contains("LOST") && shown.contains("journal.log"), "{shown}");
}
