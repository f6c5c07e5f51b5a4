//! The two processes of a gateway, and what is asked of the one that stays.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tokio::net::UnixStream;

use super::{Gateway, READY_WITHIN};
use crate::process::Observed;

impl Gateway {
    /// The process that was started, and stays.
    #[must_use]
    pub fn supervisor(&self) -> Observed {
        Observed::new(self.pid.unwrap_or_else(|| self.child.id()))
    }

    /// The process that carries the data: the worker, where there is one, else the program itself.
    #[must_use]
    pub fn worker(&self) -> Observed {
        let main = self.supervisor();
        main.children().first().copied().unwrap_or(main)
    }

    /// Waits for a worker other than `before` that serves, and returns it.
    ///
    /// # Panics
    /// When there is none within `limit`.
    pub async fn next_worker(&self, before: Observed, limit: Duration) -> Observed {
        let started = Instant::now();
        loop {
            let main = self.supervisor();
            let next = main.children().into_iter().find(|child| *child != before);
            if let Some(next) = next
                && self.admin("/readyz").await.is_ok_and(|(status, _)| status == 200)
            {
                return next;
            }
            assert!(started.elapsed() < limit, "no other worker within {limit:?}: {}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills its worker, and waits for the next one.
    pub async fn lose_worker(&self, signal: Signal) -> Observed {
        let worker = self.worker();
        worker.signal(signal);
        self.next_worker(worker, READY_WITHIN).await
    }

    /// One request on its control socket: status and body, `null` where there is none.
    pub async fn control(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let socket = UnixStream::connect(self.state_dir().join("control.sock")).await;
        let mut wire = crate::rawclient::Wire::new(Box::new(socket.expect("the control socket")));
        let body = body.map(ToString::to_string).unwrap_or_default();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: control\r\nconnection: close\r\n");
        let fields = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        let answer = wire.exchange(head + &fields + &body).await.expect("an answer");
        (answer.head.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }
}
