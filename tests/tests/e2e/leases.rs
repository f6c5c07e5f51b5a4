//! Leases: a leased network is a bottle. Gateway, allocator and containers, all of them real.
//!
//! The gateway runs on the host and is reached at each network's bridge; clients run in the networks of containers.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use decant_tests::allocator::{Allocator, Place};
use decant_tests::bodies::full;
use decant_tests::ca::TestCa;
use decant_tests::client::{get, post, read_all};
use decant_tests::docker::{Container, Docker};
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::{Origin, fixed};
use decant_tests::seed::Seeded;
use decant_tests::tools::long_form;
use http::Version;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{canary, setup};

/// The host that the policy of the same name allows, and nothing else.
const ALPHA: &str = "alpha.test";
const BETA: &str = "beta.test";

/// A name that leads into the pool of subnets, and another that leads just beside it.
const NEIGHBOUR: (&str, [u8; 4]) = ("neighbour.test", [10, 240, 3, 200]);
const BESIDE: (&str, [u8; 4]) = ("beside.test", [10, 240, 4, 200]);

/// Longest time of one step of an exchange.
const STEP: Duration = Duration::from_secs(10);

/// A gateway that follows an allocator, an origin behind both hosts, and an engine.
struct Scene {
    allocator: Allocator,
    /// The allocator's.
    config: String,
    gateway: Gateway,
    origin: Origin,
    engine: Docker,
}

impl Scene {
    /// With this pool of subnets, as `POOL, prefix: LENGTH`; `None` where there is no engine.
    async fn new(pool: &str, origin: Origin, setup: Setup) -> Option<Self> {
        let engine = Docker::take()?;
        let place = Place::new();
        let route = |host: &str| format!("- {{name: {host}, hosts: [{host}], ports: [{}]}}", origin.port());
        let gateway = setup
            .everywhere()
            .host(ALPHA)
            .host(BETA)
            .policy("alpha", &route(ALPHA))
            .policy("beta", &route(BETA))
            .section(&format!("allocator: {{socket: '{}'}}", place.gateway_socket().display()))
            .section("log: {exchanges: all}")
            .section("limits: {connect_timeout: 1s}")
            .start()
            .await;
        let port = gateway.proxy().port();
        let config = format!(
            "{{version: 1, subnets: {{pool: {pool}}}, gateway: {{host: true, proxy_port: {port}}}, \
             leases: {{ttl: 5m, drain: 1s, grace: 1s}}}}"
        );
        let allocator = place.start(&config);
        allocator.until("the gateway to follow", Allocator::is_ready);
        Some(Self { allocator, config, gateway, origin, engine })
    }

    fn wish(key: &str, policy: &str) -> Value {
        json!({"client_key": key, "policy": policy, "subnet": {"create_network": true}})
    }

    /// A container of a lease, as its own arguments make it.
    fn bottle(&self, lease: &Value) -> Container {
        let arguments: Vec<&str> =
            lease["docker_args"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        self.engine.run(&arguments).expect("the container starts")
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}/{path}", self.origin.port())
    }

    /// Everything is given back, networks included.
    fn close(self) {
        self.allocator.until("everything to be given back", Allocator::is_empty);
    }
}

/// Where a lease's clients find the gateway.
fn proxy_of(lease: &Value) -> SocketAddr {
    let url = lease["proxy"]["url"].as_str().expect("a URL");
    url.strip_prefix("http://").expect("plain HTTP to the proxy").parse().expect("an address")
}

/// A GET through the proxy on a connection of its own: status and everything that came.
fn fetch(proxy: SocketAddr, url: &str) -> io::Result<(u16, String)> {
    let stream = TcpStream::connect_timeout(&proxy, STEP)?;
    exchange(&stream, url, "close")
}

fn exchange(mut stream: &TcpStream, url: &str, connection: &str) -> io::Result<(u16, String)> {
    stream.set_read_timeout(Some(STEP))?;
    let host = url.split('/').nth(2).expect("a host");
    let head = format!("GET {url} HTTP/1.1\r\nhost: {host}\r\nconnection: {connection}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut text = String::new();
    if connection == "close" {
        stream.read_to_string(&mut text)?;
    } else {
        let mut some = [0; 4096];
        let length = stream.read(&mut some)?;
        text = String::from_utf8_lossy(&some[..length]).into_owned();
    }
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.map(|status| (status, text)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Who the gateway says asks.
fn whoami(proxy: SocketAddr) -> io::Result<Value> {
    let (_, text) = fetch(proxy, "http://decant.internal/whoami")?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    Ok(serde_json::from_str(body).unwrap_or(Value::Null))
}

/// Whether an answer is none, or the one to a stranger.
fn is_unknown(answer: &io::Result<(u16, String)>) -> bool {
    answer.as_ref().map_or(true, |(status, text)| *status == 403 && text.contains("\"reason\":\"identity\""))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_container_is_known_from_its_first_packet_and_not_after_its_lease() {
    let origin = Origin::plain(fixed("hello\n")).await;
    let anywhere =
        format!("- {{name: all, hosts: [{ALPHA}, {}, {}], ports: [\"1-65535\"]}}", NEIGHBOUR.0, BESIDE.0);
    let setup = Setup::new()
        .allow("10.0.0.0/8")
        .host_at(NEIGHBOUR.0, &[NEIGHBOUR.1.into()])
        .host_at(BESIDE.0, &[BESIDE.1.into()])
        .policy("wide", &anywhere);
    let Some(scene) = Scene::new("10.240.0.0/22, prefix: 24", origin, setup).await else { return };
    let lease = scene.allocator.acquire(&Scene::wish("first", "wide")).expect("a lease");
    let proxy = proxy_of(&lease);
    let bottle = scene.bottle(&lease);
    bottle.inside(|| {
        let (status, text) =
            fetch(proxy, &scene.url(ALPHA, "first")).expect("the very first packet is served");
        assert_eq!(status, 200, "{text}");
        assert_eq!(
            fetch(proxy, &scene.url(BETA, "first")).expect("an answer").0,
            403,
            "another policy's host"
        );
        let who = whoami(proxy).expect("an answer");
        assert_eq!((&who["bottle"], &who["policy"]), (&lease["id"], &"wide".into()));
        let (status, text) = fetch(proxy, &scene.url(NEIGHBOUR.0, "")).expect("an answer");
        assert!(
            status == 403 && text.contains("\"reason\":\"address\""),
            "bottles are no destinations: {text}"
        );
        let (_, text) = fetch(proxy, &scene.url(BESIDE.0, "")).expect("an answer");
        assert!(!text.contains("\"reason\":\"address\""), "what lies beside the pool was allowed: {text}");
        // A bottle that was not told of another one's gateway address gets nothing there.
        let other = scene.allocator.acquire(&Scene::wish("other", "beta")).expect("a lease");
        assert!(
            is_unknown(&fetch(proxy_of(&other), &scene.url(BETA, "stranger"))),
            "it came in by another's door"
        );
        scene.allocator.release(&other);

        let kept = TcpStream::connect_timeout(&proxy, STEP).expect("it listens");
        assert_eq!(exchange(&kept, &scene.url(ALPHA, "kept"), "keep-alive").expect("an answer").0, 200);
        scene.allocator.release(&lease);
        scene
            .allocator
            .until("its connection to close", |_| matches!((&kept).read(&mut [0]), Ok(0) | Err(_)));
        assert!(is_unknown(&fetch(proxy, &scene.url(ALPHA, "late"))), "the container runs on, unknown");
    });
    drop(bottle);
    let paths: Vec<String> =
        scene.origin.record().requests().iter().map(|seen| seen.uri.path().to_owned()).collect();
    assert_eq!(paths, ["/first", "/kept"]);
    scene.close();
}

/// A pool of one subnet: the next lease has the address of the one before, and nothing else of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subnet_leased_again_inherits_nothing() {
    let ca = TestCa::new();
    let origin = Origin::https_only(&ca, &[ALPHA, BETA], Version::HTTP_2, fixed("hello\n")).await;
    let setup = setup().trust(&ca);
    let Some(scene) = Scene::new("10.240.8.0/24, prefix: 24", origin, setup).await else { return };
    let mut seeded = Seeded::named("a_subnet_leased_again_inherits_nothing");
    let mut minted = Vec::new();
    for turn in 1..=2 {
        let lease = scene.allocator.acquire_in_turn(&Scene::wish(&format!("turn-{turn}"), "alpha"));
        assert_eq!(lease["subnet"]["cidr"], "10.240.8.0/24");
        let bottle = scene.bottle(&lease);
        let secret = canary(&mut seeded);
        let client = scene.gateway.client().through(proxy_of(&lease));
        bottle.inside(|| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let url = format!("https://{ALPHA}:{}/", scene.origin.port());
                for _ in 0..3 {
                    let answer = client.fetch(Version::HTTP_11, ALPHA, scene.origin.port(), get(&url)).await;
                    assert_eq!(read_all(answer.expect("an answer").into_body()).await.text(), "hello\n");
                }
                let leak = post(&url, full(secret.clone()));
                let answer = client.fetch(Version::HTTP_11, ALPHA, scene.origin.port(), leak).await;
                assert_eq!(answer.expect("an answer").status(), 403);
            });
        });
        let by_this = |finding: &Value| finding["bottle"] == lease["id"] && finding["detector"] == "canary";
        scene.gateway.wait_for_finding("this lease's canary", by_this).await;
        assert_eq!(scene.gateway.findings().len(), turn, "one finding a lease");
        assert_eq!(scene.origin.record().connections(), turn, "one connection a lease, used by it alone");
        minted.push(
            scene.gateway.metrics().await.sum("decant_leaf_certificates_total", &[("result", "minted")]),
        );
        scene.allocator.release(&lease);
    }
    assert!(minted[1] > minted[0], "the second lease has a certificate of its own: {minted:?}");
    scene.close();
}

/// The allocator dies: what it told holds for as long as it told, nothing new comes, and after its return all is as it says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_allocator_known_bottles_go_on_until_their_time_is_over() {
    let origin = Origin::plain(fixed("hello\n")).await;
    let Some(scene) = Scene::new("10.240.24.0/22, prefix: 24", origin, Setup::new()).await else { return };
    let long = scene.allocator.acquire(&Scene::wish("long", "alpha")).expect("a lease");
    let kept = scene.bottle(&long);
    let mut wish = Scene::wish("short", "alpha");
    wish["ttl"] = "5s".into();
    let short = scene.allocator.acquire(&wish).expect("a lease");
    let began = Instant::now();
    let brief = scene.bottle(&short);
    let Scene { allocator, config, gateway, origin, engine } = scene;
    let url = format!("http://{ALPHA}:{}/", origin.port());
    let place = allocator.kill();
    let is_known =
        |bottle: &Container, lease: &Value| bottle.inside(|| !is_unknown(&fetch(proxy_of(lease), &url)));
    assert!(is_known(&kept, &long) && is_known(&brief, &short), "nothing has changed for them");
    gateway.lose_worker(Signal::KILL).await;
    assert!(is_known(&kept, &long) && is_known(&brief, &short), "the next worker knows them too");
    while is_known(&brief, &short) {
        assert!(began.elapsed() < Duration::from_secs(30), "a lease is used long after its time");
    }
    assert!(began.elapsed() > Duration::from_secs(5), "the lease ended before its time");
    assert!(is_known(&kept, &long), "the other one's time is not over");
    let connected = gateway.metrics().await.sum("decant_allocator_watch_connected", &[]);
    assert!(connected.abs() < f64::EPSILON, "the gateway says that it follows nobody: {connected}");
    let allocator = place.start(&config);
    allocator.until("the gateway to follow again", Allocator::is_ready);
    assert!(is_known(&kept, &long), "the new snapshot names it");
    allocator.release(&long);
    allocator.until("it to be forgotten", |_| !is_known(&kept, &long));
    drop((kept, brief));
    Scene { allocator, config, gateway, origin, engine }.close();
}

/// Leases come and go on a few subnets while their containers ask all the time, also past their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_judged_by_another_lease_s_policy_while_leases_churn() {
    const WORKERS: usize = 4;
    let leases = if long_form() { 200 } else { 24 };
    let origin = Origin::plain(fixed("hello\n")).await;
    let Some(scene) = Scene::new("10.240.16.0/24, prefix: 27", origin, Setup::new()).await else { return };
    let (next, served, late) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut granted = Vec::new();
        while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < leases)
        {
            let (policy, own, other) =
                if number % 2 == 0 { ("alpha", ALPHA, BETA) } else { ("beta", BETA, ALPHA) };
            let lease = scene.allocator.acquire_in_turn(&Scene::wish(&format!("churn-{number}"), policy));
            let bottle = scene.bottle(&lease);
            let id = lease["id"].as_str().expect("an id");
            bottle.inside(|| {
                served.fetch_add(live(&scene, &lease, own, other), Ordering::Relaxed);
                scene.allocator.release(&lease);
                late.fetch_add(ended(&scene, &lease, own), Ordering::Relaxed);
            });
            granted.push((id.to_owned(), policy));
        }
        granted
    };
    let granted: HashMap<String, &str> = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("no wrong answer")).collect()
        })
    });
    assert_eq!(granted.len(), leases);
    for seen in scene.origin.record().requests() {
        let (host, id) =
            (seen.headers["host"].to_str().expect("text"), seen.uri.path().trim_start_matches('/'));
        assert!(host.starts_with(granted[id]), "{id} of {} reached {host}", granted[id]);
    }
    for line in scene.gateway.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
        if let Some(policy) = fields["bottle"].as_str().and_then(|bottle| granted.get(bottle)) {
            assert_eq!(fields["policy"], *policy, "{line}");
        }
    }
    eprintln!("{leases} leases, {served:?} requests served, {late:?} refused after the lease");
    assert!(served.into_inner() >= leases * 6 && late.into_inner() >= leases);
    scene.close();
}

/// Asks for a while as the lease's container; the number of requests.
fn live(scene: &Scene, lease: &Value, own: &str, other: &str) -> usize {
    let (proxy, id) = (proxy_of(lease), lease["id"].as_str().expect("an id"));
    let (until, mut count) = (Instant::now() + Duration::from_millis(300), 0);
    while Instant::now() < until || count < 6 {
        let who = whoami(proxy).expect("a live lease is answered");
        assert_eq!(who["bottle"], *id, "{who}");
        let (status, text) = fetch(proxy, &scene.url(own, id)).expect("a live lease is answered");
        assert_eq!(status, 200, "{own}: {text}");
        let (status, text) = fetch(proxy, &scene.url(other, id)).expect("a live lease is answered");
        assert!(status == 403 && text.contains("\"reason\":\"policy\""), "{other}: {text}");
        count += 3;
    }
    count
}

/// Asks on after the lease has ended, until well after; the number of refusals.
fn ended(scene: &Scene, lease: &Value, own: &str) -> usize {
    let (proxy, id) = (proxy_of(lease), lease["id"].as_str().expect("an id"));
    // The release is answered when it is durable; the gateway is told at the same moment.
    scene.allocator.until("the gateway to forget", |_| is_unknown(&fetch(proxy, &scene.url(own, id))));
    let (until, mut count) = (Instant::now() + Duration::from_millis(200), 1);
    while Instant::now() < until {
        let answer = fetch(proxy, &scene.url(own, id));
        assert!(is_unknown(&answer), "an ended lease was answered: {answer:?}");
        count += 1;
    }
    count
}
