//! HTTP/2 frames by hand (RFC 9113 §4), for what an HTTP library would not send.
//!
//! Invariant: what is asked for is what goes onto the wire, right or wrong.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::origin::Stream;

/// What a client says first (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// DATA.
pub const DATA: u8 = 0;
/// HEADERS.
pub const HEADERS: u8 = 1;
/// RST_STREAM.
pub const RST_STREAM: u8 = 3;
/// SETTINGS.
pub const SETTINGS: u8 = 4;
/// PING.
pub const PING: u8 = 6;
/// GOAWAY.
pub const GOAWAY: u8 = 7;
/// WINDOW_UPDATE.
pub const WINDOW_UPDATE: u8 = 8;
/// CONTINUATION.
pub const CONTINUATION: u8 = 9;

/// The flag of a frame that ends its stream.
pub const END_STREAM: u8 = 1;
/// The flag of a header block that is complete.
pub const END_HEADERS: u8 = 4;
/// The flag of an acknowledgement.
pub const ACK: u8 = 1;

/// `:status: 200` in HPACK: entry 8 of the static table.
pub const STATUS_200: &[u8] = &[0x88];

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// The stream it belongs to.
    pub stream: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// The wire form of one frame.
#[must_use]
pub fn encode(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame's payload");
    let mut wire = length.to_be_bytes()[1..].to_vec();
    wire.extend_from_slice(&[kind, flags]);
    wire.extend_from_slice(&stream.to_be_bytes());
    wire.extend_from_slice(payload);
    wire
}

/// Reads one frame; none when the peer has closed.
pub async fn read(stream: &mut dyn Stream) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).ok()?];
    stream.read_exact(&mut payload).await.ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some(Frame { kind: head[3], flags: head[4], stream, payload })
}

/// Plays the server's opening and answers the client's settings; returns the stream id of the first request.
pub async fn serve_opening(stream: &mut dyn Stream) -> Option<u32> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await.ok()?;
    stream.write_all(&encode(SETTINGS, 0, 0, &[])).await.ok()?;
    next_request(stream).await
}

/// Reads to the next request and returns its stream id; settings are acknowledged on the way.
pub async fn next_request(stream: &mut dyn Stream) -> Option<u32> {
    loop {
        let frame = read(stream).await?;
        match (frame.kind, frame.flags & ACK) {
            (SETTINGS, 0) => stream.write_all(&encode(SETTINGS, ACK, 0, &[])).await.ok()?,
            (HEADERS, _) => return Some(frame.stream),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_reads_back_as_it_was_written() {
        let (mut near, mut far) = tokio::io::duplex(64);
        near.write_all(&encode(DATA, END_STREAM, 7, b"abc")).await.expect("room");
        let frame = read(&mut far).await.expect("one frame");
        assert_eq!(frame, Frame { kind: DATA, flags: END_STREAM, stream: 7, payload: b"abc".to_vec() });
    }
}
