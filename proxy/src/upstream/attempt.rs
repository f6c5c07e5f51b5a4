//! One attempt at an exchange, and whether another may follow it.
//!
//! A request is sent a second time, once, where that cannot do harm: hyper has given it back unsent (the connection
//! it was meant for had closed); the upstream said that it has not processed it (HTTP/2 GOAWAY and REFUSED_STREAM),
//! and it has no body; or its method is safe, it has no body, and the connection was an idle one that closed without
//! an answer. A POST whose first byte may have arrived is never repeated.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::timeout;

use super::error::{UpstreamError, UpstreamErrorKind};
use super::exchange::{Exchange, Held, Outgoing, RequestBody, UpstreamBody};
use super::head;
use super::pool::Lease;
use super::tls::alert_in;
use crate::target::Target;

/// Longest wait for a kept connection to take a request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// A request to be sent.
pub(super) struct Attempt<B> {
    parts: Parts,
    /// `None` for an empty body whose object is gone.
    body: Option<B>,
    second: bool,
}

/// An attempt that failed, with what is needed for another where one may follow.
pub(super) struct Failure<B> {
    error: hyper::Error,
    /// With what the request's own body failed, if that was the cause.
    body: Option<Arc<dyn Error + Send + Sync>>,
    next: Option<Box<Attempt<B>>>,
}

impl<B: RequestBody> Attempt<B> {
    pub(super) fn first(request: Request<B>) -> Self {
        let (parts, body) = request.into_parts();
        Self { parts, body: Some(body), second: false }
    }

    pub(super) fn is_second(&self) -> bool {
        self.second
    }

    /// Sends the request over the leased connection.
    pub(super) async fn send(self, lease: Lease<B>) -> Result<Response<UpstreamBody<B>>, Failure<B>> {
        match lease {
            Lease::Http1 { mut connection, visit, reused } => {
                if reused {
                    // An exchange that has just ended may leave its connection busy for a moment. One that has
                    // closed gives the request back.
                    let _ = timeout(READY_TIMEOUT, connection.sender.ready()).await;
                }
                let spare = self.spare(reused);
                let exchange = Exchange::new(None, Some(connection.queue.clone()));
                let request = self.request(exchange.clone(), |parts| head::for_http1(parts, visit.address()));
                let result = connection.sender.try_send_request(request).await;
                let held = Held::Http1 { connection, visit, exchange };
                finish(result, held, spare, reused)
            }
            Lease::Http2 { mut sender, unread, stream, reused } => {
                let spare = self.spare(true);
                let address = stream.address().clone();
                let exchange = Exchange::new(Some((stream, unread.body())), None);
                let request = self.request(exchange.clone(), |parts| head::for_http2(parts, &address));
                let result = sender.try_send_request(request).await;
                finish(result, Held::Http2 { exchange }, spare, reused)
            }
        }
    }

    /// A copy of the request, where one could be sent a second time.
    fn spare(&self, wanted: bool) -> Option<Parts> {
        let is_empty = self.body.as_ref().is_none_or(B::is_end_stream);
        (wanted && is_empty && !self.second).then(|| self.parts.clone())
    }

    fn request(mut self, exchange: Arc<Exchange<B>>, adapt: impl FnOnce(&mut Parts)) -> Request<Outgoing<B>> {
        adapt(&mut self.parts);
        Request::from_parts(self.parts, Outgoing::new(self.body, exchange))
    }
}

fn finish<B: RequestBody>(
    result: Result<Response<Incoming>, TrySendError<Request<Outgoing<B>>>>,
    held: Held<B>,
    spare: Option<Parts>,
    reused: bool,
) -> Result<Response<UpstreamBody<B>>, Failure<B>> {
    let mut error = match result {
        Ok(response) => return Ok(response.map(|incoming| UpstreamBody::new(incoming, held))),
        Err(error) => error,
    };
    let unsent = error.take_message().map(|request| {
        let (parts, body) = request.into_parts();
        (parts, body.into_inner())
    });
    let error = error.into_error();
    if unsent.is_some() || is_going_away(&error) {
        held.retire_connection();
    }
    let repeatable =
        spare.filter(|parts| was_refused(&error) || reused && parts.method.is_safe() && was_lost(&error));
    let next = unsent.or_else(|| repeatable.map(|parts| (parts, None)));
    let next = next.map(|(parts, body)| Box::new(Attempt { parts, body, second: true }));
    Err(Failure { error, body: held.failure(), next })
}

impl<B: RequestBody> Failure<B> {
    /// The second attempt, if there may be one.
    pub(super) fn next_attempt(self, target: &Target) -> Result<Attempt<B>, UpstreamError> {
        match (self.next, self.body) {
            (Some(next), _) => Ok(*next),
            (None, Some(body)) => {
                Err(UpstreamError::new(target, UpstreamErrorKind::RequestBody).because_of(body))
            }
            (None, None) => Err(failure(target, self.error)),
        }
    }
}

/// Whether an HTTP/2 upstream says that it has not processed the request (RFC 9113 §8.7).
fn was_refused(error: &hyper::Error) -> bool {
    is_going_away(error)
        || find::<h2::Error>(error)
            .is_some_and(|error| error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Whether an HTTP/2 upstream takes no more requests on the connection (RFC 9113 §6.8).
fn is_going_away(error: &hyper::Error) -> bool {
    find::<h2::Error>(error).is_some_and(|error| error.is_remote() && error.is_go_away())
}

/// Whether the connection ended without an answer.
fn was_lost(error: &hyper::Error) -> bool {
    let io_kind = find::<io::Error>(error).map(io::Error::kind);
    error.is_incomplete_message()
        || error.is_closed()
        || error.is_canceled()
        || matches!(
            io_kind,
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
        )
}

/// What an error of hyper says about the upstream.
pub(super) fn failure(target: &Target, error: hyper::Error) -> UpstreamError {
    let kind = if let Some(words) = alert_in(&error) {
        UpstreamErrorKind::TlsAlert(words)
    } else if error.is_parse_too_large() {
        UpstreamErrorKind::HeadTooLarge
    } else if was_lost(&error) || was_refused(&error) || error.is_timeout() {
        UpstreamErrorKind::Terminated
    } else {
        UpstreamErrorKind::Protocol
    };
    UpstreamError::new(target, kind).because(error)
}

/// The first error of a type among the causes of `error`.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
