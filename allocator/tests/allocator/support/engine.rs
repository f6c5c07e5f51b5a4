//! A container engine that speaks HTTP on a Unix socket as some version of Docker or podman does: its statuses and its words.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

/// How an engine talks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) api: &'static str,
    pub(crate) podman: bool,
    /// Status and words of a refused subnet; `{subnet}` stands for it.
    pub(crate) overlap: (u16, &'static str),
    pub(crate) in_use: (u16, &'static str),
    /// Whether a second network of one name is refused.
    pub(crate) unique_names: bool,
}

const IN_USE: (u16, &str) = (403, "error while removing network: network n id 1 has active endpoints");

/// The engines that are known to differ.
pub(crate) const DIALECTS: [Dialect; 12] = [
    Dialect {
        name: "docker 20.10",
        version: "20.10.24",
        api: "1.41",
        podman: false,
        overlap: (403, "Pool overlaps with other one on this address space"),
        in_use: IN_USE,
        unique_names: false,
    },
    Dialect {
        name: "docker 20.10, bridge driver",
        version: "20.10.24",
        api: "1.41",
        podman: false,
        overlap: (
            403,
            "cannot create network 1f (br-1f): conflicts with network 2e (br-2e): networks have overlapping IPv4",
        ),
        in_use: IN_USE,
        unique_names: false,
    },
    Dialect {
        name: "docker 24",
        version: "24.0.9",
        api: "1.43",
        podman: false,
        overlap: (409, "conflicts with network 2e (br-2e): networks have overlapping IPv4"),
        in_use: IN_USE,
        unique_names: false,
    },
    Dialect {
        name: "docker 26",
        version: "26.1.4",
        api: "1.45",
        podman: false,
        overlap: (403, "Pool overlaps with other one on this address space"),
        in_use: IN_USE,
        unique_names: true,
    },
    Dialect {
        name: "docker 27",
        version: "27.5.1",
        api: "1.47",
        podman: false,
        overlap: (403, "invalid pool request: Pool overlaps with other one on this address space"),
        in_use: IN_USE,
        unique_names: true,
    },
    Dialect {
        name: "docker 29",
        version: "29.0.0",
        api: "1.52",
        podman: false,
        overlap: (403, "invalid pool request: Pool overlaps with other one on this address space"),
        in_use: (403, "error while removing network: network has active endpoints (name:\"b\" id:\"1\")"),
        unique_names: true,
    },
    Dialect {
        name: "podman 4.3",
        version: "4.3.1",
        api: "1.41",
        podman: true,
        overlap: (500, "subnet {subnet} is already used on the host or by another config"),
        in_use: (
            500,
            "\"n\" has associated containers with it. Use -f to forcibly delete containers and pods: network is being used",
        ),
        unique_names: true,
    },
    Dialect {
        name: "docker 23",
        version: "23.0.6",
        api: "1.42",
        podman: false,
        overlap: (403, "Pool overlaps with other one on this address space"),
        in_use: IN_USE,
        unique_names: false,
    },
    Dialect {
        name: "docker 25",
        version: "25.0.5",
        api: "1.44",
        podman: false,
        overlap: (403, "Pool overlaps with other one on this address space"),
        in_use: IN_USE,
        unique_names: true,
    },
    Dialect {
        name: "docker 28",
        version: "28.5.2",
        api: "1.51",
        podman: false,
        overlap: (403, "invalid pool request: Pool overlaps with other one on this address space"),
        in_use: IN_USE,
        unique_names: true,
    },
    Dialect {
        name: "podman 5, interface",
        version: "5.4.2",
        api: "1.41",
        podman: true,
        overlap: (500, "subnet {subnet} is being used by a network interface"),
        in_use: (500, "network is being used by container 1f"),
        unique_names: true,
    },
    Dialect {
        name: "podman with CNI",
        version: "3.4.4",
        api: "1.40",
        podman: true,
        overlap: (500, "network {subnet} is already being used by a cni configuration"),
        in_use: (500, "\"n\" has associated containers with it: network has associated containers"),
        unique_names: true,
    },
];

/// What happens to the next creation of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trick {
    /// Kill this process before anything is done.
    KillBefore(u32),
    /// Kill it when the network is made and the answer is not sent.
    KillAfter(u32),
    /// Make the network and break the connection.
    LoseAnswer,
    /// Do nothing and answer 500 in words nobody knows.
    Strange,
    /// A foreign network takes this subnet first.
    Intrude(Ipv4Net),
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) networks: Vec<Value>,
    pub(crate) containers: Vec<Value>,
    pub(crate) tricks: Vec<Trick>,
    /// Every changing request, in order.
    pub(crate) log: Vec<String>,
    /// The bodies of the requests for networks.
    pub(crate) creations: Vec<Value>,
    /// How long the inspection of a container takes that does not run: its start holds the lock.
    pub(crate) inspection: Duration,
    /// How long it takes to stop a container.
    pub(crate) stopping: Duration,
    /// Endpoints of containers that are gone: network and name. Nobody of the name can be attached there, and the network stays.
    pub(crate) stale: Vec<(String, String)>,
    /// It accepts and answers nothing.
    pub(crate) hangs: bool,
    /// Lists answered with 500 from now on.
    pub(crate) broken_lists: usize,
    watchers: Vec<UnixStream>,
    made: u32,
}

/// The engine.
#[derive(Clone)]
pub(crate) struct Engine {
    state: Arc<Mutex<State>>,
    dialect: Dialect,
    path: PathBuf,
}

struct Request {
    method: String,
    path: String,
    body: Value,
}

impl Engine {
    /// Starts one at `path`.
    pub(crate) fn start(path: &Path, dialect: Dialect) -> Self {
        let listener = UnixListener::bind(path).expect("the socket is free");
        let engine = Self { state: Arc::default(), dialect, path: path.to_owned() };
        let serving = engine.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let engine = serving.clone();
                std::thread::spawn(move || engine.serve(stream));
            }
        });
        engine
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells watchers that something happened to a network or container.
    pub(crate) fn event(&self, kind: &str, action: &str, id: &str) {
        let actor = json!({"ID": id, "Attributes": self.attributes(kind, id)});
        let event = json!({"Type": kind, "Action": action, "Actor": actor, "time": 1, "timeNano": 1})
            .to_string()
            + "\n";
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        self.state().watchers.retain_mut(|stream| stream.write_all(chunk.as_bytes()).is_ok());
    }

    /// What an event says of its subject: of a container its name and labels, of a network nothing that counts.
    fn attributes(&self, kind: &str, id: &str) -> Value {
        let state = self.state();
        let Some(one) = state.containers.iter().find(|one| kind == "container" && one["Id"] == id) else {
            return json!({});
        };
        let mut attributes = one["Labels"].clone();
        attributes["name"] = one["Names"][0].as_str().unwrap_or_default().trim_start_matches('/').into();
        attributes
    }

    /// Ends every stream of events, as an engine that is killed does.
    pub(crate) fn break_streams(&self) {
        for stream in self.state().watchers.drain(..) {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    }

    /// Goes away: the socket's file is removed.
    pub(crate) fn vanish(&self) {
        drop(std::fs::remove_file(&self.path));
        self.break_streams();
    }

    pub(crate) fn networks_of_leases(&self) -> Vec<Value> {
        let leased = |one: &&Value| one["Labels"]["decant.lease"].is_string();
        self.state().networks.iter().filter(leased).cloned().collect()
    }

    fn serve(&self, stream: UnixStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a stream can be shared"));
        let Some(request) = read_request(&mut reader) else { return };
        while self.state().hangs {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut stream = stream;
        if request.path == "/events" {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
            drop(stream.write_all(head.as_bytes()));
            self.state().watchers.push(stream);
            return;
        }
        if let Some((status, body)) = self.answer(&request) {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            drop(stream.write_all(format!("{head}{body}").as_bytes()));
        }
    }

    fn answer(&self, request: &Request) -> Option<(u16, Value)> {
        let path: Vec<&str> = request.path.split('/').skip(1).collect();
        if request.method != "GET" {
            self.state().log.push(format!("{} {}", request.method, request.path));
        }
        Some(match (request.method.as_str(), &path[..]) {
            ("GET", ["_ping"]) => (200, json!("OK")),
            ("GET", ["version"]) => (200, self.version()),
            ("GET", ["info"]) => (
                200,
                json!({"OperatingSystem": "Debian", "SecurityOptions": ["name=seccomp,profile=default"]}),
            ),
            ("GET", ["networks" | "containers", ..]) if self.breaks() => (500, json!({"message": "told to"})),
            ("GET", ["networks"]) => (200, Value::from(self.state().networks.clone())),
            ("GET", ["containers", "json"]) => (200, Value::from(self.state().containers.clone())),
            ("GET", ["containers", id, "json"]) => self.inspect(id),
            ("POST", ["networks", "create"]) => return self.create(&request.body),
            ("GET", ["networks", id]) => self.inspect_network(id),
            ("DELETE", ["networks", id]) => self.remove(id),
            ("POST", ["networks", id, "connect"]) => self.connect(id, &request.body),
            ("POST", ["networks", id, "disconnect"]) => self.disconnect(id, &request.body),
            ("POST", ["containers", id, "stop"]) => self.stop(id),
            _ => (404, json!({"message": "page not found"})),
        })
    }

    fn breaks(&self) -> bool {
        let mut state = self.state();
        let breaks = state.broken_lists > 0;
        state.broken_lists = state.broken_lists.saturating_sub(1);
        breaks
    }

    fn version(&self) -> Value {
        json!({"Version": self.dialect.version, "ApiVersion": self.dialect.api, "MinAPIVersion": "1.12", "Components": [{"Name": if self.dialect.podman { "Podman Engine" } else { "Engine" }, "Version": self.dialect.version}]})
    }

    fn inspect(&self, id: &str) -> (u16, Value) {
        let inspection = self.state().inspection;
        std::thread::sleep(inspection);
        match self.state().containers.iter().find(|one| one["Id"] == id) {
            Some(one) => (200, json!({"Id": id, "HostConfig": one["HostConfig"].clone()})),
            None => (404, json!({"message": format!("No such container: {id}")})),
        }
    }

    fn create(&self, body: &Value) -> Option<(u16, Value)> {
        let trick = {
            let mut state = self.state();
            state.creations.push(body.clone());
            if state.tricks.is_empty() { None } else { Some(state.tricks.remove(0)) }
        };
        match &trick {
            Some(Trick::KillBefore(pid)) => {
                kill(*pid);
                return None;
            }
            Some(Trick::Strange) => return Some((500, json!({"message": "the moon is in the wrong house"}))),
            Some(Trick::Intrude(net)) => drop(self.add("foreign", *net, &json!({}))),
            _ => {}
        }
        let pool = &body["IPAM"]["Config"][0];
        let subnet: Ipv4Net = pool["Subnet"].as_str()?.parse().ok()?;
        let name = body["Name"].as_str()?;
        if self.overlaps(subnet) {
            let (status, words) = self.dialect.overlap;
            return Some((status, json!({"message": words.replace("{subnet}", &subnet.to_string())})));
        }
        let taken = self.state().networks.iter().any(|network| network["Name"] == name);
        if self.dialect.unique_names && taken {
            return Some((409, json!({"message": format!("network with name {name} already exists")})));
        }
        let id = self.add(name, subnet, &body["Labels"]);
        self.event("network", "create", &id);
        match trick {
            Some(Trick::KillAfter(pid)) => {
                kill(pid);
                None
            }
            Some(Trick::LoseAnswer) => None,
            _ => Some((201, json!({"Id": id, "Warning": ""}))),
        }
    }

    /// Adds a network.
    pub(crate) fn add(&self, name: &str, subnet: Ipv4Net, labels: &Value) -> String {
        let mut state = self.state();
        state.made += 1;
        let id = format!("{:064x}", state.made);
        let config = json!([{"Subnet": subnet.to_string(), "Gateway": ""}]);
        let network = json!({"Id": id, "Name": name, "Driver": "bridge", "Scope": "local", "Labels": labels, "IPAM": {"Driver": "default", "Config": config}});
        state.networks.push(network);
        id
    }

    fn overlaps(&self, subnet: Ipv4Net) -> bool {
        let state = self.state();
        let mut nets = state
            .networks
            .iter()
            .filter_map(|network| network["IPAM"]["Config"][0]["Subnet"].as_str()?.parse::<Ipv4Net>().ok());
        nets.any(|net| net.contains(&subnet.network()) || subnet.contains(&net.network()))
    }

    fn remove(&self, id: &str) -> (u16, Value) {
        let mut state = self.state();
        let attached = state.containers.iter().any(|one| {
            one["State"] == "running" && networks_of(one).values().any(|network| network["NetworkID"] == id)
        });
        if attached || state.stale.iter().any(|(network, _)| network == id) {
            let (status, words) = self.dialect.in_use;
            return (status, json!({"message": words}));
        }
        let before = state.networks.len();
        state.networks.retain(|network| network["Id"] != id);
        if state.networks.len() == before {
            return (404, json!({"message": format!("network {id} not found")}));
        }
        (204, Value::Null)
    }

    fn connect(&self, id: &str, body: &Value) -> (u16, Value) {
        let mut state = self.state();
        let address = body["EndpointConfig"]["IPAMConfig"]["IPv4Address"].clone();
        let named = state.containers.iter().find(|one| one["Id"] == body["Container"]);
        let name = named
            .and_then(|one| one["Names"][0].as_str())
            .unwrap_or_default()
            .trim_start_matches('/')
            .to_owned();
        if state.stale.contains(&(id.to_owned(), name.clone())) {
            let message = format!("endpoint with name {name} already exists in network decant-x");
            return (403, json!({"message": message}));
        }
        let Some(one) = state.containers.iter_mut().find(|one| one["Id"] == body["Container"]) else {
            return (404, json!({"message": "No such container"}));
        };
        one["NetworkSettings"]["Networks"][id] = json!({"NetworkID": id, "IPAddress": address});
        (200, Value::Null)
    }

    fn disconnect(&self, id: &str, body: &Value) -> (u16, Value) {
        let mut state = self.state();
        let bears = |one: &Value, name: &Value| {
            one["Id"] == *name || one["Names"][0] == format!("/{}", name.as_str().unwrap_or_default())
        };
        if !state.containers.iter().any(|one| bears(one, &body["Container"])) {
            state.stale.retain(|(network, name)| network != id || body["Container"] != *name);
        }
        for one in state.containers.iter_mut().filter(|one| one["Id"] == body["Container"]) {
            if let Some(networks) = one["NetworkSettings"]["Networks"].as_object_mut() {
                networks.remove(id);
            }
        }
        (200, Value::Null)
    }

    fn inspect_network(&self, id: &str) -> (u16, Value) {
        let state = self.state();
        let left = state.stale.iter().filter(|(network, _)| network == id);
        let left: serde_json::Map<String, Value> =
            left.map(|(_, name)| (format!("ep-{name}"), json!({"Name": name}))).collect();
        (200, json!({"Id": id, "Containers": left}))
    }

    fn stop(&self, id: &str) -> (u16, Value) {
        let stopping = self.state().stopping;
        std::thread::sleep(stopping);
        for one in self.state().containers.iter_mut().filter(|one| one["Id"] == id) {
            one["State"] = "exited".into();
            one["Ports"] = json!([]);
        }
        (204, Value::Null)
    }
}

fn networks_of(container: &Value) -> BTreeMap<String, Value> {
    let networks = container["NetworkSettings"]["Networks"].as_object();
    networks.into_iter().flatten().map(|(name, network)| (name.clone(), network.clone())).collect()
}

/// A container as listed.
pub(crate) fn container(id: &str, state: &str, labels: &Value) -> Value {
    json!({"Id": id, "Names": [format!("/{id}")], "State": state, "Created": 1, "Labels": labels, "Ports": [], "NetworkSettings": {"Networks": {}}, "HostConfig": {"PortBindings": {}}})
}

fn kill(pid: u32) {
    drop(std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status());
}

fn read_request(reader: &mut BufReader<UnixStream>) -> Option<Request> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|length| *length > 0)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = target.split('?').next()?.to_owned();
    // A client may put the version before the path.
    let versioned = path.strip_prefix("/v1.").and_then(|rest| rest.find('/').map(|at| rest[at..].to_owned()));
    Some(Request {
        method,
        path: versioned.unwrap_or(path),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}
