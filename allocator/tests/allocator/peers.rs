//! Users and groups on the sockets: who may take leases, who may answer for the gateway, whose processes may own a lease.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::server::{BINARY, Home, skip};

/// Groups that no account has: numbers do for both sockets.
const LAUNCHERS: u32 = 64_901;
const GATEWAYS: u32 = 64_902;
/// A user without any privilege.
const NOBODY: u32 = 65_534;

/// Whether processes can be started as other users here; says so where not.
fn can_change_user() -> bool {
    let able = Command::new("setpriv")
        .args(["--clear-groups", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !able {
        skip("not root, or no setpriv: no process can be started as another user");
    }
    able
}

/// A home whose folder other users may enter.
fn open_home(config: &str) -> Home {
    let home = Home::new(config);
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).expect("it is this user's");
    home
}

/// The client, as nobody with one group.
fn client_of(group: u32, socket: &Path, args: &[&str]) -> Output {
    let (command, rest) = args.split_first().expect("a command");
    Command::new("setpriv")
        .args([format!("--reuid={NOBODY}"), format!("--regid={group}"), "--clear-groups".into()])
        .arg(BINARY)
        .arg(command)
        .arg("--socket")
        .arg(socket)
        .args(rest)
        .output()
        .expect("setpriv runs")
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn launchers_cannot_answer_for_the_gateway_nor_the_gateway_take_leases() {
    if !can_change_user() {
        return;
    }
    let home = open_home(&format!(
        "{{version: 1, docker: {{socket: null}}, gateway: null, ports: {{range: {{ports}}}}, group: '{LAUNCHERS}', gateway_group: '{GATEWAYS}'}}"
    ));
    let server = home.start();
    let sockets = [(server.socket(), LAUNCHERS), (server.gateway_socket(), GATEWAYS)];
    for (socket, owner) in &sockets {
        let metadata = std::fs::metadata(socket).expect("it is there");
        assert_eq!((metadata.gid(), metadata.mode() & 0o777), (*owner, 0o660), "{}", socket.display());
        for group in [LAUNCHERS, GATEWAYS] {
            let said = err(&client_of(group, socket, &["list"]));
            let refused = said.contains("Permission denied");
            assert_eq!(refused, group != *owner, "group {group} on {}: {said}", socket.display());
        }
    }
}

#[test]
fn one_group_has_both_sockets_where_no_other_is_named() {
    if !can_change_user() {
        return;
    }
    let home = open_home(&format!(
        "{{version: 1, docker: {{socket: null}}, gateway: null, ports: {{range: {{ports}}}}, group: '{LAUNCHERS}'}}"
    ));
    let server = home.start();
    for socket in [server.socket(), server.gateway_socket()] {
        assert_eq!(std::fs::metadata(&socket).expect("it is there").gid(), LAUNCHERS, "{}", socket.display());
    }
}

/// As in the appliance: root without capabilities may not look into other users' processes, and need not.
#[test]
fn another_user_s_process_may_own_a_lease_of_an_allocator_without_capabilities() {
    if !can_change_user() {
        return;
    }
    let home = open_home(
        "{version: 1, docker: {socket: null}, gateway: null, ports: {range: {ports}}, leases: {drain: 1s, grace: 1s}}",
    );
    let spawned = home.command_under(&["setpriv", "--bounding-set=-all", "--inh-caps=-all"]).spawn();
    let server = home.adopt(spawned.expect("setpriv runs"));
    assert!(server.answers_within(Duration::from_secs(20)), "{}", home.log());
    std::os::unix::fs::chown(server.socket(), None, Some(LAUNCHERS)).expect("this is root");
    let mut owner = Command::new("setpriv")
        .args([format!("--reuid={NOBODY}"), "--clear-groups".into(), "sleep".into(), "60".into()])
        .spawn()
        .expect("setpriv runs");
    let pid = owner.id().to_string();
    let acquired = client_of(LAUNCHERS, &server.socket(), &["acquire", "--port", "web", "--owner-pid", &pid]);
    assert_eq!(acquired.status.code(), Some(0), "{}", err(&acquired));
    assert_eq!(server.live()[0]["state"], "active");
    owner.kill().expect("it can be killed");
    owner.wait().expect("it ends");
    server.until("its lease has ended", Duration::from_secs(10), |server| server.live().is_empty());
}
