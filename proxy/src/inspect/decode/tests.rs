use super::*;
use crate::inspect::testing::{
    aws_chunked, brotli, cut, gzip, gzip_flushed, limits, raw_deflate, supply, zlib, zstd as zstd_body,
    zstd_flushed,
};
use crate::inspect::verdict::Step;

/// Decodes all of `wire` in these pieces; returns the output and whether the body may end there.
fn decode(coding: Coding, wire: &[u8], sizes: &[usize]) -> Result<(Vec<u8>, bool), TroubleKind> {
    let mut decoder = decoder(coding, &limits(), &supply());
    let mut output = [0; 512];
    let mut decoded = Vec::new();
    for mut piece in cut(wire, sizes) {
        loop {
            let done = decoder.decode(piece, &mut output)?;
            assert!(done.read + done.written > 0 || piece.is_empty(), "it goes on");
            piece = &piece[done.read..];
            decoded.extend_from_slice(&output[..done.written]);
            if piece.is_empty() && done.written < output.len() {
                break;
            }
        }
    }
    Ok((decoded, decoder.may_end()))
}

/// Pieces that every case is fed in.
const SIZES: [&[usize]; 6] = [&[1], &[2], &[3], &[7], &[usize::MAX], &[5, 1, 900]];

/// Checks what a whole body decodes to.
fn check(what: &str, coding: Coding, wire: &[u8], expected: &[u8]) {
    for sizes in SIZES {
        let (output, may_end) = decode(coding, wire, sizes).unwrap_or_else(|kind| panic!("{what}: {kind}"));
        assert!(output == expected && may_end, "{what} in pieces of {sizes:?}");
    }
}

/// Checks why a body is refused.
fn refuse(what: &str, coding: Coding, wire: &[u8], expected: &TroubleKind) {
    for sizes in SIZES {
        assert_eq!(decode(coding, wire, sizes).as_ref(), Err(expected), "{what} in pieces of {sizes:?}");
    }
}

/// Checks that a body may end at none of its true prefixes.
fn check_prefixes(coding: Coding, wire: &[u8]) {
    for length in 1..wire.len() {
        let (_, may_end) = decode(coding, &wire[..length], &[usize::MAX]).expect("a prefix is no trouble");
        assert!(!may_end, "{coding:?} may not end after {length} of {} bytes", wire.len());
    }
}

fn text() -> Vec<u8> {
    (0u32..800).flat_map(|n| format!("line {n} of a body\n").into_bytes()).collect()
}

/// A gzip header with these flags and fields, and the rest of a member that holds `body`.
fn member(flags: u8, fields: &[u8], body: &[u8]) -> Vec<u8> {
    [&[0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 255], fields, &gzip(body)[10..]].concat()
}

fn header_crc(flags: u8, fields: &[u8]) -> [u8; 2] {
    let mut crc = flate2::Crc::new();
    crc.update(&[0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 255]);
    crc.update(fields);
    let [low, high, ..] = crc.sum().to_le_bytes();
    [low, high]
}

#[test]
fn every_coding_decodes_and_knows_its_end() {
    let text = text();
    let bodies = [
        (Coding::Gzip, gzip(&text)),
        (Coding::Deflate, zlib(&text)),
        (Coding::Deflate, raw_deflate(&text)),
        (Coding::Brotli, brotli(&text)),
        (Coding::Zstd, zstd_body(&text)),
    ];
    for (coding, wire) in bodies {
        check("text", coding, &wire, &text);
        check("nothing", coding, b"", b"");
        check_prefixes(coding, &wire);
    }
}

#[test]
fn gzip_takes_many_members_and_what_follows_them() {
    let (a, b) = (gzip(b"one "), gzip(b"two"));
    let cases: &[(&str, Vec<u8>, &[u8])] = &[
        ("two members", [&a[..], &b].concat(), b"one two"),
        ("an empty one between", [&a[..], &gzip(b""), &b].concat(), b"one two"),
        ("padding between", [&a[..], &[0; 512], &b].concat(), b"one two"),
        ("zeros behind", [&a[..], &[0; 8]].concat(), b"one "),
        ("a line end behind", [&a[..], b"\r\n"].concat(), b"one "),
        ("half a magic behind", [&a[..], b"\x1f"].concat(), b"one "),
        ("text behind", [&a[..], b"ghp_ and text", &b].concat(), b"one "),
        ("something like a magic behind", [&a[..], b"\x1f\x8c\x08", &b].concat(), b"one "),
    ];
    for (what, wire, expected) in cases {
        check(what, Coding::Gzip, wire, expected);
    }
}

#[test]
fn gzip_headers_are_read_to_their_last_field() {
    let fields = [&b"\x04\0BC\x02\0"[..], b"name\0", b"a comment\0"].concat();
    let crc = header_crc(0x1e, &fields);
    let good: &[(&str, Vec<u8>)] = &[
        ("extra", member(0x04, b"\x03\0abc", b"x")),
        ("an empty extra", member(0x04, b"\0\0", b"x")),
        ("a name", member(0x08, b"file.txt\0", b"x")),
        ("a comment", member(0x10, b"\0", b"x")),
        ("all of them and a checksum", member(0x1e, &[&fields[..], &crc].concat(), b"x")),
        ("a header checksum alone", member(0x02, &header_crc(0x02, b""), b"x")),
        ("the text flag", member(0x01, b"", b"x")),
    ];
    for (what, wire) in good {
        check(what, Coding::Gzip, wire, b"x");
    }
    let broken = |what| TroubleKind::Broken(what);
    let mut wrong_crc = gzip(b"x");
    let mut wrong_size = wrong_crc.clone();
    let at = wrong_crc.len() - 8;
    wrong_crc[at] ^= 1;
    wrong_size[at + 4] ^= 1;
    let bad: &[(&str, Vec<u8>, TroubleKind)] = &[
        ("no gzip", b"plain text".to_vec(), broken("not a gzip header")),
        ("another method", b"\x1f\x8b\x07".to_vec(), broken("unknown method in a gzip header")),
        ("reserved flags", member(0x20, b"", b"x"), broken("reserved flags in a gzip header")),
        ("a wrong header checksum", member(0x02, b"\0\0", b"x"), broken("wrong checksum of a gzip header")),
        ("a wrong checksum", wrong_crc, broken("wrong checksum of a gzip member")),
        ("a wrong length", wrong_size, broken("wrong length of a gzip member")),
        (
            "a broken stream",
            member(0, b"", b"")[..10].iter().chain(&[0xff; 9]).copied().collect(),
            broken("not a deflate stream"),
        ),
    ];
    for (what, wire, expected) in bad {
        refuse(what, Coding::Gzip, wire, expected);
    }
}

#[test]
fn gzip_has_little_hidden_room() {
    let name = |length: usize| member(0x08, &[&vec![b'n'; length - 1][..], &[0]].concat(), b"x");
    let extra =
        |length: u16| member(0x04, &[&length.to_le_bytes()[..], &vec![7; length.into()]].concat(), b"x");
    check("a name of the limit", Coding::Gzip, &name(256), b"x");
    check("an extra field of the limit", Coding::Gzip, &extra(256), b"x");
    let hidden = |what| TroubleKind::HiddenRoom(what);
    refuse("a longer name", Coding::Gzip, &name(257), &hidden("file name in a gzip header"));
    refuse("a longer extra field", Coding::Gzip, &extra(257), &hidden("extra field of a gzip header"));
    let split = [extra(200), name(100)].concat();
    refuse("two headers", Coding::Gzip, &split, &hidden("file name in a gzip header"));
    let block = vec![b'z'; 60_000];
    let seekable: Vec<u8> = (0..100).flat_map(|_| member(0x04, b"\x06\0BC\x02\0\0\0", &block)).collect();
    let (output, may_end) = decode(Coding::Gzip, &seekable, &[usize::MAX]).expect("seekable files pass");
    assert!(may_end && output.len() == 100 * block.len());
}

#[test]
fn deflate_is_what_its_first_bytes_say() {
    let broken = || TroubleKind::Broken("not a deflate stream");
    let mut wrong_sum = zlib(b"text");
    *wrong_sum.last_mut().expect("it has bytes") ^= 1;
    check("zlib", Coding::Deflate, &zlib(b"text"), b"text");
    check("raw", Coding::Deflate, &raw_deflate(b"text"), b"text");
    check("junk behind", Coding::Deflate, &[zlib(b"text"), b"junk".to_vec()].concat(), b"text");
    refuse("a preset dictionary", Coding::Deflate, b"\x78\xbb\0\0\0\0", &TroubleKind::Dictionary);
    refuse("a wrong checksum", Coding::Deflate, &wrong_sum, &broken());
    refuse("gzip under a wrong name", Coding::Deflate, &gzip(b"text"), &broken());
    refuse("plain text", Coding::Deflate, b"plain text, no coding at all", &broken());
}

/// Writes brotli streams bit by bit: no encoder makes metadata blocks.
struct Bits {
    bytes: Vec<u8>,
    used: u32,
}

impl Bits {
    /// A stream with a window of 64 KiB.
    fn new() -> Self {
        let mut bits = Self { bytes: Vec::new(), used: 0 };
        bits.put(1, 0);
        bits
    }

    fn put(&mut self, count: u32, value: u32) {
        for at in 0..count {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let bit = u8::try_from(value >> at & 1).expect("it is a bit");
            *self.bytes.last_mut().expect("it has a byte") |= bit << (self.used % 8);
            self.used += 1;
        }
    }

    fn append(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.used = u32::try_from(self.bytes.len() * 8).expect("streams of tests are short");
        self
    }

    fn metadata(mut self, content: &[u8]) -> Self {
        self.put(1 + 2 + 1, 0b0110);
        let length = u32::try_from(content.len()).expect("it is short");
        match length {
            0 => self.put(2, 0),
            _ => {
                let bytes = if length <= 256 { 1 } else { 2 };
                self.put(2, bytes);
                self.put(8 * bytes, length - 1);
            }
        }
        self.append(content)
    }

    fn stored(mut self, content: &[u8]) -> Self {
        self.put(1 + 2, 0);
        self.put(16, u32::try_from(content.len()).expect("it is short") - 1);
        self.put(1, 1);
        self.append(content)
    }

    fn end(mut self) -> Vec<u8> {
        self.put(2, 0b11);
        self.bytes
    }
}

#[test]
fn brotli_windows_are_capped() {
    let refused = || TroubleKind::Window(Step::Brotli);
    refuse("a large window", Coding::Brotli, b"\x11\x3f\0\0\0", &refused());
    check("a window of 16 MiB", Coding::Brotli, &brotli_window(24), b"text");
    let small = InspectLimits { brotli_window_bytes: 1 << 20, ..limits() };
    for bits in 10..=24 {
        let mut decoder = decoder(Coding::Brotli, &small, &supply());
        let outcome = decoder.decode(&brotli_window(bits), &mut [0; 64]);
        assert_eq!(outcome.is_ok(), bits <= 20, "a window of {bits} bits");
    }
}

fn brotli_window(bits: u32) -> Vec<u8> {
    let params = brotli_encoder_params(bits);
    let mut wire = Vec::new();
    ::brotli::BrotliCompress(&mut &b"text"[..], &mut wire, &params).expect("it compresses");
    wire
}

fn brotli_encoder_params(bits: u32) -> ::brotli::enc::BrotliEncoderParams {
    let lgwin = i32::try_from(bits).expect("it is small");
    ::brotli::enc::BrotliEncoderParams { quality: 3, lgwin, ..Default::default() }
}

#[test]
fn brotli_has_little_hidden_room() {
    let hidden = || TroubleKind::HiddenRoom("metadata block of a brotli stream");
    let with = |size| Bits::new().stored(b"one ").metadata(&vec![7; size]).stored(b"two").end();
    check("empty metadata, as a flush makes it", Coding::Brotli, &with(0), b"one two");
    check("metadata of the limit", Coding::Brotli, &with(256), b"one two");
    refuse("twice the limit", Coding::Brotli, &with(513), &hidden());
    refuse("far more", Coding::Brotli, &with(60_000), &hidden());
    let many = (0..40).fold(Bits::new(), |bits, _| bits.metadata(&[7; 200])).stored(b"x").end();
    assert_eq!(
        decode(Coding::Brotli, &many, &[64]),
        Err(TroubleKind::HiddenRoom("metadata block of a brotli stream"))
    );
}

#[test]
fn brotli_ends_where_it_ends() {
    check("junk behind", Coding::Brotli, &[brotli(b"text"), b"junk".to_vec()].concat(), b"text");
    let broken = TroubleKind::Broken("not a brotli stream");
    refuse("reserved bits", Coding::Brotli, &[0b0001_1110, 0xff, 0xff, 0xff], &broken);
}

/// A zstd frame header with this descriptor and these fields.
fn frame(descriptor: u8, fields: &[u8]) -> Vec<u8> {
    [&b"\x28\xb5\x2f\xfd"[..], &[descriptor], fields].concat()
}

fn skippable(size: u32) -> Vec<u8> {
    [&b"\x5f\x2a\x4d\x18"[..], &size.to_le_bytes(), &vec![7; size as usize]].concat()
}

/// A block header: last, kind, size.
fn block(last: bool, kind: u32, size: u32) -> Vec<u8> {
    (u32::from(last) | kind << 1 | size << 3).to_le_bytes()[..3].to_vec()
}

#[test]
fn zstd_frames_are_read_by_their_headers() {
    let good: &[(&str, Vec<u8>, &[u8])] = &[
        ("stored", [frame(0x00, &[0]), block(true, 0, 4), b"text".to_vec()].concat(), b"text"),
        ("repeated", [frame(0x00, &[0]), block(true, 1, 5), b"z".to_vec()].concat(), b"zzzzz"),
        (
            "empty last block",
            [frame(0x00, &[0]), block(false, 0, 1), b"x".to_vec(), block(true, 0, 0)].concat(),
            b"x",
        ),
        ("one segment", [frame(0x20, &[4]), block(true, 0, 4), b"text".to_vec()].concat(), b"text"),
        ("an empty frame", [frame(0x20, &[0]), block(true, 0, 0)].concat(), b""),
        ("dictionary 0", [frame(0x01, &[0, 0]), block(true, 0, 1), b"x".to_vec()].concat(), b"x"),
        (
            "skippable frames",
            [skippable(0), skippable(16), zstd_body(b"text"), skippable(3)].concat(),
            b"text",
        ),
        ("two frames", [zstd_body(b"one "), zstd_body(b"two")].concat(), b"one two"),
    ];
    for (what, wire, expected) in good {
        check(what, Coding::Zstd, wire, expected);
    }
    let broken = |what| TroubleKind::Broken(what);
    let window = || TroubleKind::Window(Step::Zstd);
    let bad: &[(&str, Vec<u8>, TroubleKind)] = &[
        ("plain text", b"plain text".to_vec(), broken("not a zstd frame")),
        ("text behind", [zstd_body(b"x"), b"text".to_vec()].concat(), broken("not a zstd frame")),
        ("a reserved bit", frame(0x08, &[0]), broken("reserved bit in a zstd frame header")),
        ("a reserved block", [frame(0x00, &[0]), block(true, 3, 4)].concat(), broken("not a zstd block")),
        ("a dictionary", frame(0x03, &[0, 1, 0, 0, 0]), TroubleKind::Dictionary),
        ("a window of 9 MiB", frame(0x00, &[13 << 3 | 1]), window()),
        ("a window of 128 MiB", frame(0x00, &[17 << 3]), window()),
        ("a window of 2 GiB", frame(0x00, &[21 << 3]), window()),
        ("one segment of 9 MiB", frame(0xa0, &(9u32 << 20).to_le_bytes()), window()),
        ("skippable content", skippable(257), TroubleKind::HiddenRoom("skippable frame of a zstd body")),
        ("much of it", skippable(200).repeat(2), TroubleKind::HiddenRoom("skippable frame of a zstd body")),
    ];
    for (what, wire, expected) in bad {
        refuse(what, Coding::Zstd, wire, expected);
    }
}

#[test]
fn zstd_checksums_are_checked() {
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 3).expect("zstd");
    encoder.include_checksum(true).expect("zstd");
    std::io::Write::write_all(&mut encoder, b"text").expect("zstd");
    let mut wire = encoder.finish().expect("zstd");
    check("a checksum", Coding::Zstd, &wire, b"text");
    check_prefixes(Coding::Zstd, &wire);
    *wire.last_mut().expect("it has bytes") ^= 1;
    refuse("a wrong checksum", Coding::Zstd, &wire, &TroubleKind::Broken("not a zstd block"));
}

/// Wire offsets at which a decoder fed byte by byte is settled, and what has come out by then.
fn settled_at(coding: Coding, wire: &[u8]) -> Vec<(usize, usize)> {
    let mut decoder = decoder(coding, &limits(), &supply());
    let mut output = vec![0; 1 << 20];
    let (mut written, mut settled) = (0, Vec::new());
    for (at, byte) in wire.iter().enumerate() {
        written += decoder.decode(std::slice::from_ref(byte), &mut output).expect("it decodes").written;
        if decoder.settled() {
            settled.push((at + 1, written));
        }
    }
    settled
}

#[test]
fn zstd_is_settled_between_blocks_alone() {
    let parts: Vec<Vec<u8>> =
        (0u8..4).map(|n| format!("event {n} {}", "word ".repeat(60)).into_bytes()).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let settled = settled_at(Coding::Zstd, &zstd_flushed(&slices).concat());
    let outputs: Vec<usize> = settled.iter().map(|(_, written)| *written).collect();
    let ends: Vec<usize> = parts
        .iter()
        .scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        })
        .collect();
    assert!(outputs.iter().all(|written| *written == 0 || ends.contains(written)), "{outputs:?}");
    assert!(ends.iter().all(|end| outputs.contains(end)), "each flush can leave: {outputs:?}");
}

#[test]
fn a_flush_of_any_coding_is_out_with_its_last_byte() {
    let events: Vec<Vec<u8>> = (0..5).map(|n| format!("data: event {n}\n\n").into_bytes()).collect();
    let slices: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
    let mut decoder = decoder(Coding::Gzip, &limits(), &supply());
    for (piece, event) in gzip_flushed(&slices).iter().zip(&events) {
        let mut output = [0; 64];
        let done = decoder.decode(piece, &mut output).expect("it decodes");
        assert_eq!((done.read, &output[..done.written]), (piece.len(), &event[..]));
    }
}

#[test]
fn aws_chunked_framing_is_removed() {
    let text = text();
    check("signed", Coding::AwsChunked, &aws_chunked(&text, 1000), &text);
    let good: &[(&str, &[u8], &[u8])] = &[
        ("plain sizes", b"4\r\ntext\r\n0\r\n\r\n", b"text"),
        ("upper case", b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        ("no last empty line", b"4\r\ntext\r\n0\r\n", b"text"),
        ("trailing lines", b"4\r\ntext\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n", b"text"),
        ("bare line feeds in them", b"4\r\ntext\r\n0\r\nx-amz-checksum-crc32:AAAA\n\n", b"text"),
        ("nothing", b"0\r\n\r\n", b""),
        ("something behind", b"0\r\n\r\nmore", b""),
    ];
    for (what, wire, expected) in good {
        check(what, Coding::AwsChunked, wire, expected);
    }
    let broken = || TroubleKind::Broken("not an aws-chunked body");
    let long = [b"4;".to_vec(), vec![b'x'; 600]].concat();
    let trailing = [b"0\r\n".to_vec(), b"name:value\r\n".repeat(500)].concat();
    let bad: &[(&str, Vec<u8>, TroubleKind)] = &[
        ("plain text", b"text".to_vec(), broken()),
        ("no size", b"\r\n".to_vec(), broken()),
        ("a wrong size", b"3\r\ntext\r\n".to_vec(), broken()),
        (
            "a huge size",
            b"fffffffffff\r\n".to_vec(),
            TroubleKind::Broken("chunk size of an aws-chunked body is out of range"),
        ),
        ("a long line", long, TroubleKind::Broken("a line of an aws-chunked body is too long")),
        (
            "long trailing lines",
            trailing,
            TroubleKind::Broken("the trailing lines of an aws-chunked body are too long"),
        ),
    ];
    for (what, wire, expected) in bad {
        refuse(what, Coding::AwsChunked, wire, expected);
    }
    let (_, may_end) = decode(Coding::AwsChunked, b"4\r\ntext\r\n", &[1]).expect("a prefix is no trouble");
    assert!(!may_end, "without its last chunk it is cut short");
}
