//! Workers that die, hang, are poisoned or replaced: what clients notice of it, and what is told of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use decant_tests::bodies::{fed, full};
use decant_tests::client::read_all;
use decant_tests::gateway::{Gateway, Setup};
use decant_tests::origin::{End, Origin, fixed, handler};
use decant_tests::process::Observed;
use decant_tests::rawclient::Wire;
use decant_tests::tools::long_form;
use http::{Response, Version};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout};

use crate::support::{ONE, Stage, setup};

/// Longest time of one request; those that a death cuts off end much sooner.
const REQUEST: Duration = Duration::from_secs(10);

/// One request of the load: when it began and ended, and whether it was answered.
#[derive(Clone, Copy, Debug)]
struct Sent {
    began: Instant,
    ended: Instant,
    answered: bool,
}

/// Requests at a steady rate, each on a connection of its own.
struct Load {
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    sent: Arc<Mutex<Vec<Sent>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    /// Asks `proxy` for `url`, `rate` times a second.
    fn start(proxy: SocketAddr, url: String, rate: u32) -> Self {
        let (stop, refused, sent) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::default());
        let (stopped, no, all) = (Arc::clone(&stop), Arc::clone(&refused), Arc::clone(&sent));
        let task = tokio::spawn(async move {
            let mut due = tokio::time::interval(Duration::from_secs(1) / rate);
            let mut requests = tokio::task::JoinSet::new();
            while !stopped.load(Ordering::Relaxed) {
                due.tick().await;
                requests.spawn(request(proxy, url.clone(), Arc::clone(&no), Arc::clone(&all)));
            }
            while requests.join_next().await.is_some() {}
        });
        Self { stop, refused, sent, task }
    }

    /// Ends it: connections that were refused, and all requests.
    async fn end(self) -> (usize, Vec<Sent>) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the load ends");
        (self.refused.load(Ordering::Relaxed), self.sent.lock().expect("no panic").clone())
    }
}

async fn request(proxy: SocketAddr, url: String, refused: Arc<AtomicUsize>, sent: Arc<Mutex<Vec<Sent>>>) {
    let began = Instant::now();
    let answered = match tokio::net::TcpStream::connect(proxy).await {
        Ok(stream) => timeout(REQUEST, ask(Wire::new(Box::new(stream)), &url)).await == Ok(Some(200)),
        Err(_) => {
            refused.fetch_add(1, Ordering::Relaxed);
            false
        }
    };
    sent.lock().expect("no panic").push(Sent { began, ended: Instant::now(), answered });
}

/// The status of the answer to a GET.
async fn ask(mut wire: Wire, url: &str) -> Option<u16> {
    let host = url.split('/').nth(2).expect("a host");
    let head = format!("GET {url} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    wire.exchange(head).await.map(|answer| answer.head.status)
}

/// The sum of all exchanges so far.
async fn exchanges(gateway: &Gateway) -> f64 {
    gateway.metrics().await.sum("decant_exchanges_total", &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_every_second_refuses_no_connection_and_the_next_serves_within_one() {
    let (kills, rate) = if long_form() { (60, 1000) } else { (6, 100) };
    let origin = Origin::plain(fixed("hello\n")).await;
    let gateway = Setup::new().host(ONE).start().await;
    let load = Load::start(gateway.proxy(), format!("http://{ONE}:{}/", origin.port()), rate);
    let (mut killed, mut totals) = (Vec::new(), vec![0.0]);
    for _kill in 0..kills {
        sleep(Duration::from_secs(1)).await;
        totals.push(exchanges(&gateway).await);
        killed.push(Instant::now());
        gateway.worker().signal(Signal::KILL);
    }
    sleep(Duration::from_secs(2)).await;
    let (refused, sent) = load.end().await;
    totals.push(exchanges(&gateway).await);
    assert_eq!(refused, 0, "of {} connections", sent.len());
    let mut waits = Vec::new();
    for kill in &killed {
        let after = sent.iter().filter(|one| one.answered && one.began > *kill);
        waits.push(after.map(|one| one.ended - *kill).min().expect("somebody is served"));
    }
    let failed = sent.iter().filter(|one| !one.answered).count();
    waits.sort();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    eprintln!(
        "{} requests, {failed} failed; from a kill to the next answer: median {median:?}, longest {longest:?}",
        sent.len()
    );
    assert!(longest < Duration::from_secs(1), "service came back after {waits:?}");
    assert!(totals.is_sorted(), "a total fell: {totals:?}");
    let restarts = gateway.metrics().await.count("decant_worker_restarts_total", &[("cause", "killed")]);
    assert_eq!(restarts, kills);
    let answered = sent.iter().filter(|one| one.answered).count() as f64;
    // A worker's last second of counts dies with it.
    let lost = answered - totals[totals.len() - 1];
    assert!(lost <= f64::from(rate) * 1.5 * kills as f64, "{lost} of {answered} were not counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_hangs_is_replaced_within_twenty_seconds() {
    let gateway = Setup::new().start().await;
    let hanging = gateway.worker();
    let began = Instant::now();
    hanging.signal(Signal::STOP);
    let (health, _) = gateway.admin("/healthz").await.expect("the supervisor answers");
    let (ready, why) = gateway.admin("/readyz").await.expect("the supervisor answers");
    assert_eq!((health, ready), (200, 503), "processes live, and the data path does not: {why}");
    gateway.next_worker(hanging, Duration::from_secs(20)).await;
    eprintln!("another worker serves after {:?}", began.elapsed());
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("decant_worker_restarts_total", &[("cause", "hang")]), 1);
}

/// A plain connection from `source` to the gateway.
async fn from(source: [u8; 4], gateway: &Gateway) -> Wire {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((IpAddr::from(source), 0).into()).expect("a loopback address");
    Wire::new(Box::new(socket.connect(gateway.proxy()).await.expect("the proxy listens")))
}

const GOOD: [u8; 4] = [127, 0, 0, 2];
const BAD: [u8; 4] = [127, 0, 0, 3];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bottle_whose_requests_kill_workers_is_kept_out_and_the_others_work() {
    // The fault that a request triggers: the origin, asked for `/poison`, has the worker end as a failed assertion in C
    // would.
    let supervisor: Arc<OnceLock<u32>> = Arc::default();
    let main = Arc::clone(&supervisor);
    let origin = Origin::plain(handler(move |request, _record| {
        let main = Arc::clone(&main);
        async move {
            if request.uri().path() == "/poison" {
                let main = Observed::new(*main.get().expect("it runs"));
                main.children().into_iter().for_each(|worker| worker.signal(Signal::ABORT));
                std::future::pending::<()>().await;
            }
            Response::new(full("hello\n"))
        }
    }))
    .await;
    let bottles = "bottles:\n  - {name: good, sources: [127.0.0.2/32], policy: default}\n  \
                   - {name: bad, sources: [127.0.0.3/32], policy: default}\n  \
                   - {name: rest, sources: [127.0.0.1/32], policy: default}";
    let gateway = Setup::new().host(ONE).bottles(bottles).start().await;
    supervisor.set(gateway.supervisor().pid()).expect("it is set once");
    let url = |path: &str| format!("http://{ONE}:{}/{path}", origin.port());
    assert_eq!(ask(from(GOOD, &gateway).await, &url("")).await, Some(200));
    // Well before the deaths, so that it does not stand at them.
    sleep(Duration::from_secs(2)).await;
    for death in 1..=3 {
        let before = gateway.worker();
        let answer = ask(from(BAD, &gateway).await, &url("poison")).await;
        assert_eq!(answer, None, "death {death} cuts its own exchange off");
        gateway.next_worker(before, Duration::from_secs(10)).await;
    }
    let answer = from(BAD, &gateway).await.exchange(format!("GET {} HTTP/1.1\r\n\r\n", url(""))).await;
    let answer = answer.expect("a kept-out bottle is told why");
    assert!(answer.head.status == 503 && answer.text().contains("\"reason\":\"quarantine\""), "{answer:?}");
    assert_eq!(ask(from(GOOD, &gateway).await, &url("")).await, Some(200), "the others work");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("decant_worker_restarts_total", &[("cause", "crash")]), 3);
    let status: Value =
        serde_json::from_str(&gateway.admin("/v1/status").await.expect("an answer").1).expect("JSON");
    let words = &status["supervisor"]["last_words"];
    assert_eq!((&words["cause"], &words["bottles"]), (&"crash".into(), &json!(["bad"])), "{words}");
    // Kept out across deaths that say nothing about it, until it is let in.
    gateway.lose_worker(Signal::KILL).await;
    assert_eq!(ask(from(BAD, &gateway).await, &url("")).await, Some(503));
    assert_eq!(gateway.control("DELETE", "/v1/bottles/bad/cut", None).await.0, 204);
    assert_eq!(ask(from(BAD, &gateway).await, &url("")).await, Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_worker_ends_what_it_began_and_nobody_is_refused() {
    let (feed, body) = fed();
    let slow = Arc::new(Mutex::new(Some(body)));
    let stage = Stage::with(setup(), || {
        let slow = Arc::clone(&slow);
        handler(move |request, _record| {
            let body =
                (request.uri().path() == "/slow").then(|| slow.lock().expect("no panic").take()).flatten();
            async move { Response::new(body.unwrap_or_else(|| full("hello\n"))) }
        })
    })
    .await;
    let gateway = &stage.gateway;
    let download = stage.get((Version::HTTP_11, Version::HTTP_11), "/slow").await.expect("an answer");
    assert!(feed.data("first ").await);
    let origin = Origin::plain(fixed("hello\n")).await;
    let load = Load::start(gateway.proxy(), format!("http://{ONE}:{}/", origin.port()), 50);
    let first = gateway.worker();
    for _turn in 0..3 {
        let before = exchanges(gateway).await;
        let known = gateway.supervisor().children();
        gateway.signal(Signal::USR2);
        let started = Instant::now();
        while !gateway.supervisor().children().iter().any(|child| !known.contains(child)) {
            assert!(started.elapsed() < REQUEST, "no other worker starts");
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_secs(2)).await;
        assert!(exchanges(gateway).await >= before, "a total fell");
    }
    assert!(gateway.supervisor().children().contains(&first), "the first one still drains");
    assert!(feed.data("and last").await);
    drop(feed);
    let received = read_all(download.into_body()).await;
    assert_eq!((received.text().as_str(), received.end), ("first and last", End::Clean));
    let (refused, sent) = load.end().await;
    let failed: Vec<&Sent> = sent.iter().filter(|one| !one.answered).collect();
    assert!(refused == 0 && failed.is_empty(), "{refused} refused, {failed:?} failed of {}", sent.len());
    let restarts = gateway.metrics().await.count("decant_worker_restarts_total", &[]);
    assert_eq!(restarts, 0, "nothing died");
    let started = Instant::now();
    while gateway.supervisor().children().len() > 1 {
        assert!(started.elapsed() < REQUEST, "drained workers end");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_over_a_bad_file_is_followed_by_one_with_the_last_good_configuration() {
    let origin = Origin::plain(fixed("hello\n")).await;
    let gateway = Setup::new().host(ONE).start().await;
    let url = format!("http://{ONE}:{}/", origin.port());
    let good = std::fs::read_to_string(gateway.config_file()).expect("it is there");
    // The supervisor asks once a second which configuration is in force.
    sleep(Duration::from_secs(2)).await;
    std::fs::write(gateway.config_file(), good.clone() + "nonsense: true\n").expect("it is written");
    gateway.lose_worker(Signal::KILL).await;
    let stream = tokio::net::TcpStream::connect(gateway.proxy()).await.expect("the proxy listens");
    assert_eq!(ask(Wire::new(Box::new(stream)), &url).await, Some(200), "the last good one is in force");
    let log = gateway.log();
    assert!(log.contains("unknown key `nonsense`") && log.contains("last in force"), "{log}");
    std::fs::write(gateway.config_file(), good).expect("it is written");
    gateway.reload().await;
    assert_eq!(gateway.metrics().await.count("decant_config_reloads_total", &[("result", "ok")]), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_cannot_be_started_by_hand_and_ends_with_its_supervisor() {
    let outcome = decant_tests::gateway::run(&["worker"]);
    assert_eq!(outcome.code, 64, "{outcome:?}");
    let gateway = Setup::new().start().await;
    let worker = gateway.worker();
    gateway.signal(Signal::KILL);
    let started = Instant::now();
    while std::path::Path::new(&format!("/proc/{}/exe", worker.pid())).read_link().is_ok() {
        assert!(started.elapsed() < REQUEST, "a worker without a supervisor runs on");
        sleep(Duration::from_millis(10)).await;
    }
}
