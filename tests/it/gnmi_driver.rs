// SPDX-License-Identifier: Apache-2.0
//! Tests the daemon's gNMI driver with the emulated switch over loopback: mutual TLS, an account,
//! and master arbitration.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use lightloom_control::state::{Move, Neighbours, Op, Outcome, Position, Slot, Txn};
use lightloom_daemon::config;
use lightloom_daemon::driver::alone::Alone;
use lightloom_daemon::protocol::{Place, tls};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::agent_rig::Authority;
use crate::daemon_rig::Modules;

const READ: Op = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };

fn list(more: &str) -> String {
    format!("switches:\n  - {{name: ocs0, ingress: 4, egress: 4, boot: 0ms, {more}}}\n")
}

fn driver(at: &str, more: &str) -> Result<Alone, String> {
    let yaml = format!(
        "state_dir: x\ndevices:\n- {{name: ocs0, driver: {{gnmi: {{tcp: '{at}', {more}}}}}}}\n"
    );
    let (config, mistakes) = config::load("daemon.yaml", yaml.as_bytes());
    let config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
    let (_, (driver, _)) = config.drivers.iter().next().unwrap();
    driver.protocol().check().map_err(|(_, why)| why.to_string())?;
    let place = Place { device: "ocs0", ports: None, claimant: "test", wall_ms: 0, epoch: None };
    Ok(Alone::new(driver.protocol().endpoint(&place).unwrap()))
}

fn joins(slot: u32, position: u32) -> Op {
    let to = Position(position);
    Op::Switch { txn: Txn(1), moves: vec![Move { slot: Slot(slot), from: Position::DARK, to }] }
}

async fn lit(driver: &mut Alone) -> Vec<(u32, u32)> {
    let Outcome::Done(Some(seen)) = driver.run(&READ).await else { panic!("it cannot be read") };
    seen.positions.iter().map(|(slot, position)| (slot.0, position.0)).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn file(folder: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

async fn secured(folder: &Path, behind: String) -> String {
    let at = |name: &str| folder.join(name);
    let authorities = tls::authorities(&at("switch-ca.pem")).unwrap();
    let (own, key) = (at("switch.pem"), at("switch.key"));
    let own = tls::certificates(&own).unwrap();
    let mut config = tls::server(authorities, own, tls::private_key(&key).unwrap()).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                let Ok(mut front) = acceptor.accept(socket).await else { return };
                let mut back = TcpStream::connect(behind).await.unwrap();
                let _either_side_may_end_it = copy_bidirectional(&mut front, &mut back).await;
            });
        }
    });
    format!("127.0.0.1:{port}")
}

#[test]
fn driver_connects_over_tls_with_certificate_and_account() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let site = Authority::new();
    ["switch", "daemon"].iter().for_each(|name| site.sign(folder, name));
    Authority::new().sign(folder, "other");
    let more = "user: daemon, password: xyzzy, gnmi: {listen: '127.0.0.1:0'}";
    let (_switch, behind) = Modules::of_list(&list(more), folder);
    let shown = folder.display();
    let tls = |name: &str| {
        format!(
            "tls: {{ca: {shown}/switch-ca.pem, name: localhost, certificate: {shown}/{name}.pem, \
             key: {shown}/{name}.key}}"
        )
    };
    let account = |password: &str| {
        format!("user: daemon, password_file: {}", file(folder, password, password, 0o600))
    };
    block_on(async {
        let at = secured(folder, behind[0].clone()).await;
        let ours = tls("daemon");
        let mut good = driver(&at, &format!("{ours}, {}", account("xyzzy"))).unwrap();
        let identity = good.connect().await.unwrap();
        assert!(identity.ends_with("notifies on change, no election id"), "{identity}");
        assert_eq!(lit(&mut good).await, []);
        assert_eq!(good.run(&joins(1, 6)).await, Outcome::Done(None));
        assert_eq!(lit(&mut good).await, [(1, 6)]);

        let alone = format!("tls: {{ca: {shown}/switch-ca.pem, name: localhost}}");
        for (more, says) in [
            (format!("{ours}, {}", account("plugh")), "user and password"),
            (ours.clone(), "user and password"),
            (format!("{alone}, {}", account("xyzzy")), "CertificateRequired"),
            (format!("{}, {}", tls("other"), account("xyzzy")), "DecryptError"),
            (ours.replace("name: localhost", "name: ocs9"), "ocs9"),
        ] {
            let why = driver(&at, &more).unwrap().connect().await.unwrap_err();
            assert!(why.contains(says), "{says}: {why}");
        }
        assert_eq!(lit(&mut good).await, [(1, 6)]);
    });
}

#[test]
fn password_requires_tls_and_a_private_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    Authority::new().sign(folder, "site");
    let open = file(folder, "open", "xyzzy", 0o644);
    let closed = file(folder, "closed", "xyzzy", 0o600);
    let tls = format!("tls: {{ca: {}/site-ca.pem}}", folder.display());
    for (more, says) in [
        (format!("plaintext: true, user: a, password_file: {closed}"), "plain text"),
        (format!("{tls}, user: a"), "both `user` and `password_file`"),
        (format!("{tls}, user: a, password_file: {open}"), "is readable by all users"),
    ] {
        let why = driver("h:1", &more).err().expect("it is refused");
        assert!(why.contains(says), "{says}: {why}");
    }
}

#[test]
fn controller_with_a_smaller_election_id_is_denied() {
    let folder = tempfile::tempdir().unwrap();
    let more = "gnmi: {listen: '127.0.0.1:0', arbitration: required}";
    let (_switch, at) = Modules::of_list(&list(more), folder.path());
    let with = |more: &str| driver(&at[0], &format!("plaintext: true{more}")).unwrap();
    let refused = |outcome: Outcome, says: &str| {
        let Outcome::Refused(why) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains(says), "{why}");
    };
    block_on(async {
        let mut old = with(", election: {id: 7}");
        let identity = old.connect().await.unwrap();
        assert!(identity.ends_with(", election id 7"), "{identity}");
        assert_eq!(lit(&mut old).await, []);
        assert_eq!(old.run(&joins(1, 6)).await, Outcome::Done(None));

        // The new controller is master as soon as it connects.
        let mut new = with(", election: {id: 4611686018427387904}");
        new.connect().await.unwrap();
        let master = "another controller is master of the switch";
        assert_eq!(lit(&mut old).await, [(1, 6)], "the old one did not hear of it");
        refused(old.run(&joins(2, 7)).await, "the master has election id 4611686018427387904");
        refused(old.run(&joins(2, 7)).await, master);
        let want = [(Slot(2), Position(7))].into_iter().collect();
        let arm = Op::Arm { txn: Txn(2), want };
        refused(old.run(&arm).await, master);
        assert_eq!(lit(&mut old).await, [(1, 6)], "it reads on");
        // A denied operation needs no undo if nothing would change.
        let want = [(Slot(1), Position(6)), (Slot(2), Position::DARK)].into_iter().collect();
        let stands = old.run(&Op::Arm { txn: Txn(2), want }).await;
        assert!(matches!(stands, Outcome::Done(Some(_))), "{stands:?}");

        let mut silent = with("");
        silent.connect().await.unwrap();
        lit(&mut silent).await;
        refused(silent.run(&joins(2, 7)).await, "a Set requires an election id");

        let identity = old.connect().await.unwrap();
        assert!(
            identity.ends_with("election id 7, and another controller is master"),
            "{identity}"
        );
        assert_eq!(lit(&mut new).await, [(1, 6)]);
        assert_eq!(new.run(&joins(2, 7)).await, Outcome::Done(None));
        assert_eq!(lit(&mut new).await, [(1, 6), (2, 7)]);
    });
}
