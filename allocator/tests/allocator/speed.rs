//! The promises about speed. The figures of a quiet machine are printed; the bounds asserted here leave room for a busy one.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::docker::{Docker, docker};
use crate::support::http::ask;
use crate::support::server::Home;

const CLIENTS: usize = 24;

fn request(key: &str) -> Value {
    let ports: Vec<Value> = (0..12).map(|index| json!({"name": format!("p{index}")})).collect();
    json!({"client_key": key, "ports": ports, "subnet": {"prefix": 29}})
}

fn index_of(number: usize) -> u32 {
    u32::try_from(number).expect("a small number")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Each client acquires and releases so many leases of 12 ports and a subnet, one each `pace`, or as soon as it has released the
/// last. Returns the time of each acquire.
fn course(home: &Home, name: &str, clients: usize, leases: usize, pace: Duration) -> Vec<Duration> {
    let socket = home.socket();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let client = |client: usize| {
            let socket = socket.clone();
            let first = start + pace * index_of(client) / index_of(clients);
            move || {
                let mut times = Vec::with_capacity(leases);
                for turn in 0..leases {
                    let body = request(&format!("{name}-{client}-{turn}"));
                    std::thread::sleep(
                        (first + pace * index_of(turn)).saturating_duration_since(Instant::now()),
                    );
                    let began = Instant::now();
                    let answer = ask(&socket, "POST", "/v1/leases", &body);
                    times.push(began.elapsed());
                    let lease = answer.expect(201);
                    let path = format!("/v1/leases/{}", lease["id"].as_str().expect("an id"));
                    assert_eq!(ask(&socket, "DELETE", &path, &Value::Null).status, 204);
                }
                times
            }
        };
        let threads: Vec<_> = (0..clients).map(|index| scope.spawn(client(index))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn home() -> Home {
    Home::new(
        "{version: 1, docker: {socket: null}, gateway: null, ports: {range: 23000-29999, guard: false}, subnets: {pool: 10.245.0.0/16, prefix: 24}, \
         leases: {ttl: 60s, drain: 1s, grace: 1s}}",
    )
}

#[test]
fn acquires_are_quick_and_durable() {
    let home = home();
    let server = home.start();
    let alone = median(course(&home, "alone", 1, 60, Duration::ZERO));
    server.until_quiet(Duration::from_secs(60));
    // 500 a second, as they would come from 24 programs that each start a bottle now and then.
    let paced = course(&home, "paced", CLIENTS, 20, Duration::from_millis(2) * index_of(CLIENTS));
    let paced = median(paced);
    server.until_quiet(Duration::from_secs(60));
    let began = Instant::now();
    let together = course(&home, "together", CLIENTS, 20, Duration::ZERO);
    let rate = together.len() as f64 / began.elapsed().as_secs_f64();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    eprintln!(
        "12 ports and a subnet, durable: p50 {:.2} ms alone; {CLIENTS} clients at 500 a second: p50 {:.2} ms; as fast as they can: \
         {rate:.0} acquires (and releases) a second, p50 {:.2} ms",
        ms(alone),
        ms(paced),
        ms(median(together))
    );
    let generous = if cfg!(debug_assertions) { 20 } else { 4 };
    assert!(alone < Duration::from_millis(5) * generous, "{alone:?}");
    assert!(paced < Duration::from_millis(5) * generous || rate < 1000.0, "{paced:?} at {rate} a second");
    assert!(rate > 500.0 / f64::from(generous), "{rate} a second");
    server.until_quiet(Duration::from_secs(60));
}

#[test]
fn a_network_costs_what_the_engine_takes() {
    let Some(_engine) = Docker::take() else { return };
    let home = Home::new(
        "{version: 1, gateway: null, subnets: {pool: 10.244.0.0/16, prefix: 24}, leases: {ttl: 60s, drain: 1s, grace: 1s}}",
    );
    let server = home.start();
    let (mut bare, mut leased) = (Vec::new(), Vec::new());
    // Turn by turn, so that a busy machine is busy for both. The bare one is asked over the socket as well: no client is started for it.
    for turn in 0..12 {
        let body = json!({
            "Name": format!("decant-test-bare-{turn}"), "Driver": "bridge", "Labels": {"decant.test": "allocator"},
            "IPAM": {"Config": [{"Subnet": format!("10.243.{turn}.0/24"), "IPRange": format!("10.243.{turn}.128/25")}]}
        });
        let began = Instant::now();
        ask(std::path::Path::new("/var/run/docker.sock"), "POST", "/networks/create", &body).expect(201);
        bare.push(began.elapsed());
        let began = Instant::now();
        let lease = server
            .acquire(&json!({"client_key": format!("k{turn}"), "subnet": {"create_network": true}}))
            .expect(201);
        leased.push(began.elapsed());
        server.release(&lease);
        docker(&["network", "rm", &format!("decant-test-bare-{turn}")]).expect("it can be removed");
        // The engine removes a network for longer than it takes to make one, and makes none meanwhile.
        server
            .until("nothing is removed any more", Duration::from_secs(60), |server| server.live().is_empty());
    }
    let best = |times: &[Duration]| times.iter().min().copied().expect("there are some");
    let (best_bare, best_leased) = (best(&bare), best(&leased));
    let (bare, leased) = (median(bare), median(leased));
    eprintln!(
        "a network alone: {bare:.1?} (best {best_bare:.1?}); with its lease: {leased:.1?} (best {best_leased:.1?})"
    );
    // What a busy machine adds, it adds to both, but not at the same time: the best of each, or the medians, tell.
    let close = best_leased < best_bare * 3 / 2 || leased < bare * 3 / 2;
    assert!(close, "{leased:?} against {bare:?}, at best {best_leased:?} against {best_bare:?}");
}
