//! JSON Web Tokens (RFC 7519): two base64url parts that hold JSON objects, and a signature.

use super::{Outcome, base};

/// A header object that names its `alg` and an object for payload: valid. A payload of another
/// form (compressed, detached): unknown. No such header: some other text that begins like one.
///
/// What stands before the header (a provider's prefix) is skipped.
pub(super) fn check(matched: &[u8]) -> Outcome {
    let opens = |two: &[u8]| two == b"ey" || two == b"ew";
    let Some(start) = matched.windows(2).position(opens) else {
        return Outcome::Unrelated;
    };
    let mut parts = matched[start..].split(|&byte| byte == b'.');
    let header = parts.next().unwrap_or_default();
    if !is_object_with(base::base64_bytes(header), Some(b"alg")) {
        return Outcome::Unrelated;
    }
    match parts.next() {
        Some(payload) if is_object_with(base::base64_bytes(payload), None) => Outcome::Valid,
        _ => Outcome::Unknown,
    }
}

/// Whether `bytes` are one JSON object that, at its top level, has the member `key`.
///
/// Braces, brackets and strings must balance; numbers and literals are not looked at.
fn is_object_with(bytes: impl Iterator<Item = u8>, key: Option<&[u8]>) -> bool {
    let mut object = Object { key, ..Object::default() };
    for byte in bytes {
        if !object.step(byte) {
            return false;
        }
    }
    object.closed && (key.is_none() || object.found)
}

#[derive(Default)]
struct Object<'a> {
    key: Option<&'a [u8]>,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The last byte outside strings and spaces: a string after `{` or `,` is a member's name.
    last: u8,
    /// How much of `key` the string that is being read has matched; `None` once it differs.
    matching: Option<usize>,
    found: bool,
    closed: bool,
}

impl Object<'_> {
    /// Reads one byte; false when the text cannot be an object.
    fn step(&mut self, byte: u8) -> bool {
        if self.in_string {
            return self.step_string(byte);
        }
        if byte.is_ascii_whitespace() {
            return true;
        }
        let before = std::mem::replace(&mut self.last, byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                !self.closed && (self.depth > 1 || byte == b'{')
            }
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                self.closed = self.depth == 0;
                true
            }
            b'"' => {
                self.in_string = true;
                self.matching = (self.depth == 1 && matches!(before, b'{' | b',')).then_some(0);
                self.depth > 0
            }
            _ => self.depth > 0 && (byte.is_ascii_alphanumeric() || b",:.+-".contains(&byte)),
        }
    }

    fn step_string(&mut self, byte: u8) -> bool {
        if !self.escaped && byte == b'"' {
            self.in_string = false;
            let whole = self.key.map(<[u8]>::len);
            self.found |= self.matching.is_some() && self.matching == whole;
            return true;
        }
        let expected = self.matching.and_then(|at| self.key?.get(at));
        self.matching = self.matching.filter(|_| expected == Some(&byte)).map(|at| at + 1);
        self.escaped = !self.escaped && byte == b'\\';
        byte >= b' '
    }
}
