//! An answer as HTTP/1.1 writes it.

use bytes::Bytes;
use http::Response;

use super::json::push_number;

/// Adds an answer with the length of its body, and the date if there is one.
pub(super) fn push_answer(text: &mut Vec<u8>, answer: &Response<Bytes>, date: Option<&[u8]>) {
    let (status, body) = (answer.status(), answer.body());
    text.reserve(256 + body.len());
    text.extend_from_slice(b"HTTP/1.1 ");
    text.extend_from_slice(status.as_str().as_bytes());
    text.push(b' ');
    text.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    for (name, value) in answer.headers() {
        push_field(text, name.as_str(), value.as_bytes());
    }
    text.extend_from_slice(b"\r\ncontent-length: ");
    push_number(text, body.len() as u64);
    if let Some(date) = date {
        push_field(text, "date", date);
    }
    text.extend_from_slice(b"\r\n\r\n");
    text.extend_from_slice(body);
}

fn push_field(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
}
