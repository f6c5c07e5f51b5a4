//! The allocator's configuration.

use std::path::Path;
use std::time::Duration;

use decant_config::{
    AllocatorConfig, Docker, Environment, Gateway, OnExpire, load_allocator, parse_allocator,
};

fn parsed(text: &str) -> AllocatorConfig {
    parse_allocator("a.yaml", text, &Environment::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn defaults() {
    let config = load_allocator(None, &Environment::default()).unwrap();
    assert_eq!((config.ports.range.clone(), config.ports.guard), (20_000..=29_999, false));
    assert_eq!((config.subnets.pool.to_string().as_str(), config.subnets.prefix), ("10.252.0.0/16", 24));
    assert_eq!((config.leases.ttl, config.leases.on_expire), (Duration::from_secs(7200), OnExpire::Cut));
    assert_eq!((config.docker, config.gateway), (Docker::Auto, None));
    assert_eq!((config.group, config.gateway_group), (None, None));
    assert_eq!((config.listen.to_string().as_str(), config.socket), ("127.0.0.1:9191", None));
    assert_eq!(config.state_dir, Path::new("/var/lib/decant"));
}

#[test]
fn every_key_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let config = load_allocator(Some(&folder.join("allocator.yaml")), &Environment::default()).unwrap();
    assert_eq!(config.state_dir, folder.join("state"));
    assert_eq!(config.socket, Some(folder.join("run/allocator.sock")));
    assert_eq!(config.group.as_deref(), Some("launchers"));
    assert_eq!(config.gateway_group.as_deref(), Some("gateways"));
    assert_eq!(config.docker, Docker::Socket(folder.join("run/docker.sock")));
    assert!(config.ports.allow_ephemeral && config.ports.guard);
    assert!(
        config.ports.contains(21_009) && !config.ports.contains(21_010) && !config.ports.contains(21_025)
    );
    assert!(!config.ports.contains(22_000));
    assert!(config.subnets.strict_routes);
    assert_eq!((config.leases.ttl, config.leases.drain), (Duration::from_secs(5400), Duration::from_secs(5)));
    assert_eq!((config.leases.grace, config.leases.on_expire), (Duration::from_secs(10), OnExpire::Stop));
    assert_eq!(config.gateway, Some(Gateway::Container { name: "decant-gateway".into(), proxy_port: 9100 }));
    assert_eq!(config.inputs.changed(), None);
}

#[test]
fn a_gateway_has_four_forms() {
    let gateway = |text: &str| parsed(&format!("gateway: {text}")).gateway;
    assert_eq!(gateway("null"), None);
    assert_eq!(gateway("{container: gw}"), Some(Gateway::Container { name: "gw".into(), proxy_port: 9099 }));
    assert_eq!(gateway("{host: true, proxy_port: 1}"), Some(Gateway::Host { proxy_port: 1 }));
    assert_eq!(gateway("{url: 'http://Gateway.:80/'}"), Some(Gateway::Url("http://gateway:80".into())));
}

#[test]
fn docker_may_be_off() {
    assert_eq!(parsed("docker: {socket: null}").docker, Docker::Off);
    assert_eq!(parsed("docker: {socket: auto}").docker, Docker::Auto);
}

#[test]
fn the_edges_of_a_pool() {
    let subnets = |text: &str| parsed(&format!("subnets: {text}")).subnets;
    assert_eq!(subnets("{pool: 10.0.0.0/8, prefix: 8}").prefix, 8, "one subnet is a pool");
    assert_eq!(subnets("{pool: 192.168.7.0/24, prefix: 29}").prefix, 29);
    assert_eq!(subnets("{pool: 100.64.0.0/10}").prefix, 24);
}
