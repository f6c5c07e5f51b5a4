//! Hyperscan's streaming mode through its C interface, as far as a comparison needs it.
//!
//! Invariant: a database outlives its streams, and its scratch space is used by one thread.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

const DOTALL: c_uint = 2;
const ALLOW_EMPTY: c_uint = 16;
const MODE_STREAM: c_uint = 2;

type Callback = extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

#[repr(C)]
struct CompileError {
    message: *const c_char,
    expression: c_int,
}

unsafe extern "C" {
    fn hs_compile_multi(
        expressions: *const *const c_char,
        flags: *const c_uint,
        ids: *const c_uint,
        elements: c_uint,
        mode: c_uint,
        platform: *const c_void,
        database: *mut *mut c_void,
        error: *mut *mut CompileError,
    ) -> c_int;
    fn hs_free_compile_error(error: *mut CompileError) -> c_int;
    fn hs_free_database(database: *mut c_void) -> c_int;
    fn hs_free_scratch(scratch: *mut c_void) -> c_int;
    fn hs_alloc_scratch(database: *const c_void, scratch: *mut *mut c_void) -> c_int;
    fn hs_stream_size(database: *const c_void, size: *mut usize) -> c_int;
    fn hs_open_stream(database: *const c_void, flags: c_uint, stream: *mut *mut c_void) -> c_int;
    fn hs_scan_stream(
        stream: *mut c_void,
        data: *const c_char,
        length: c_uint,
        flags: c_uint,
        scratch: *mut c_void,
        found: Callback,
        context: *mut c_void,
    ) -> c_int;
    fn hs_close_stream(
        stream: *mut c_void,
        scratch: *mut c_void,
        found: Callback,
        context: *mut c_void,
    ) -> c_int;
    fn hs_version() -> *const c_char;
}

/// The library's version.
pub fn version() -> String {
    // SAFETY: the library hands out a string of its own.
    unsafe { CStr::from_ptr(hs_version()) }.to_string_lossy().into_owned()
}

/// Patterns made ready for streams.
pub struct Database {
    database: *mut c_void,
    scratch: *mut c_void,
}

impl Database {
    /// Compiles `patterns` together. Fails with the library's words.
    pub fn new(patterns: &[&str]) -> Result<Self, String> {
        let texts: Result<Vec<CString>, _> = patterns.iter().map(|pattern| CString::new(*pattern)).collect();
        let texts = texts.map_err(|error| error.to_string())?;
        let expressions: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let flags = vec![DOTALL | ALLOW_EMPTY; texts.len()];
        let count = c_uint::try_from(texts.len()).map_err(|error| error.to_string())?;
        let ids: Vec<c_uint> = (0..count).collect();
        let (mut database, mut scratch, mut error) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the lists are as long as said, and live on for the call; the error is freed once, if there is one.
        unsafe {
            let status = hs_compile_multi(
                expressions.as_ptr(),
                flags.as_ptr(),
                ids.as_ptr(),
                count,
                MODE_STREAM,
                ptr::null(),
                &raw mut database,
                &raw mut error,
            );
            if status != 0 {
                let known: &CompileError = &*error;
                let words = CStr::from_ptr(known.message).to_string_lossy().into_owned();
                let words = format!("pattern {}: {words}", known.expression);
                hs_free_compile_error(error);
                return Err(words);
            }
            if hs_alloc_scratch(database, &raw mut scratch) != 0 {
                hs_free_database(database);
                return Err("no scratch space".to_owned());
            }
        }
        Ok(Self { database, scratch })
    }

    /// Bytes of memory of a stream.
    pub fn stream_bytes(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is open.
        let status = unsafe { hs_stream_size(self.database, &raw mut size) };
        assert_eq!(status, 0, "a database for streams knows their size");
        size
    }

    /// Scans `body` as a stream in chunks of `chunk` bytes; returns how many ends of matches were reported.
    pub fn scan(&self, body: &[u8], chunk: usize) -> usize {
        extern "C" fn count(
            _: c_uint,
            _: c_ulonglong,
            _: c_ulonglong,
            _: c_uint,
            context: *mut c_void,
        ) -> c_int {
            // SAFETY: `scan` hands its own counter over, for the length of a call.
            unsafe { *context.cast::<usize>() += 1 };
            0
        }
        let (mut stream, mut found) = (ptr::null_mut(), 0usize);
        let context: *mut c_void = (&raw mut found).cast();
        // SAFETY: database and scratch are open and belong together; the stream is closed once, at the end; each chunk is
        // readable for its length.
        unsafe {
            assert_eq!(hs_open_stream(self.database, 0, &raw mut stream), 0, "a stream opens");
            for chunk in body.chunks(chunk) {
                let length = c_uint::try_from(chunk.len()).expect("a chunk is short");
                let data = chunk.as_ptr().cast();
                let status = hs_scan_stream(stream, data, length, 0, self.scratch, count, context);
                assert_eq!(status, 0, "a chunk is scanned");
            }
            assert_eq!(hs_close_stream(stream, self.scratch, count, context), 0, "the stream closes");
        }
        found
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: both are open, and nothing uses them any more.
        unsafe {
            hs_free_scratch(self.scratch);
            hs_free_database(self.database);
        }
    }
}
