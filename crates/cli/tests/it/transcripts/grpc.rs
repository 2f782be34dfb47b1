//! Calls over HTTP/2, frame by frame as far as gRPC is concerned.
//!
//! A request is kept as if it were one of HTTP/1.1: `POST path`, fields, an empty line, and the bytes of its data. An answer is its status and fields, its
//! data, and its trailers (`<-`). The messages of a decision are written field by field: no byte of theirs can change without a change there.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tonic::codegen::Bytes;
use tonic::codegen::http::{HeaderMap, Request, Version};

use super::mask::span;
use super::record::{escape, lines};

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub(super) struct Grpc {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
    pub(super) is_over: bool,
}

impl Grpc {
    pub(super) fn open(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("it listens");
            stream.set_nodelay(true).unwrap();
            let (sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
            tokio::spawn(connection);
            sender
        });
        Self { runtime, sender, is_over: false }
    }

    pub(super) fn ask(&mut self, request: &[u8]) -> Vec<String> {
        let sender = self.sender.clone();
        let mut answer = Vec::new();
        let asked = async { tokio::time::timeout(PATIENCE, exchange(sender, request, &mut answer)).await };
        let end = match self.runtime.block_on(asked) {
            Ok(Ok(())) => return answer,
            Ok(Err(error)) => {
                self.is_over = error.is_io() || error.is_go_away();
                format!("! {error}")
            }
            Err(_) => {
                self.is_over = true;
                "! silent".to_owned()
            }
        };
        answer.push(end);
        answer
    }
}

async fn exchange(
    sender: SendRequest<Bytes>,
    request: &[u8],
    answer: &mut Vec<String>,
) -> Result<(), h2::Error> {
    let end =
        request.windows(4).position(|four| four == b"\r\n\r\n").expect("an empty line behind the fields");
    let head = String::from_utf8(request[..end].to_vec()).expect("fields are text");
    let mut fields = head.split("\r\n");
    let (method, path) = fields.next().and_then(|line| line.split_once(' ')).expect("a method and a path");
    let mut asked =
        Request::builder().method(method).uri(format!("http://test{path}")).version(Version::HTTP_2);
    for field in fields {
        let (name, value) = field.split_once(": ").expect("a name and a value");
        asked = asked.header(name, value);
    }
    let mut sender = sender.ready().await?;
    let (answered, mut data) = sender.send_request(asked.body(()).expect("a request"), false)?;
    data.send_data(Bytes::copy_from_slice(&request[end + 4..]), true)?;
    let (head, mut data) = answered.await?.into_parts();
    answer.push(format!("< {}", head.status.as_u16()));
    push_fields(answer, "<", &head.headers);
    let mut body = Vec::new();
    while let Some(part) = data.data().await {
        let part = part?;
        data.flow_control().release_capacity(part.len())?;
        body.extend_from_slice(&part);
    }
    match path.ends_with("/ShouldRateLimit").then(|| message(&body)).flatten() {
        Some((fields, is_masked)) => {
            if let Some(length) =
                answer.iter_mut().find(|line| is_masked && line.starts_with("< content-length: "))
            {
                *length = "< content-length: #".into();
            }
            answer.extend(fields);
        }
        None => answer.extend(lines('<', &body)),
    }
    if let Some(trailers) = data.trailers().await? {
        push_fields(answer, "<-", &trailers);
    }
    Ok(())
}

fn push_fields(answer: &mut Vec<String>, sign: &str, fields: &HeaderMap) {
    let mut all: Vec<String> =
        fields.iter().map(|(name, value)| format!("{sign} {name}: {}", escape(value.as_bytes()))).collect();
    all.sort_unstable();
    answer.extend(
        all.into_iter().map(|line| if line.starts_with("< date: ") { "< date: #".to_owned() } else { line }),
    );
}

/// The kinds of messages, the numbers of their fields, what these are called, and what they hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Response,
    Status,
    Limit,
    Span,
    Header,
    Struct,
    Entry,
    Value,
    List,
    Text,
    Number,
}

const FIELDS: [(Of, u64, &str, Of); 24] = [
    (Of::Response, 1, "overall_code", Of::Number),
    (Of::Response, 2, "statuses", Of::Status),
    (Of::Response, 3, "response_headers_to_add", Of::Header),
    (Of::Response, 6, "dynamic_metadata", Of::Struct),
    (Of::Status, 1, "code", Of::Number),
    (Of::Status, 2, "current_limit", Of::Limit),
    (Of::Status, 3, "limit_remaining", Of::Number),
    (Of::Status, 4, "duration_until_reset", Of::Span),
    (Of::Limit, 1, "requests_per_unit", Of::Number),
    (Of::Limit, 2, "unit", Of::Number),
    (Of::Limit, 3, "name", Of::Text),
    (Of::Span, 1, "seconds", Of::Number),
    (Of::Span, 2, "nanos", Of::Number),
    (Of::Header, 1, "key", Of::Text),
    (Of::Header, 2, "value", Of::Text),
    (Of::Struct, 1, "fields", Of::Entry),
    (Of::Entry, 1, "key", Of::Text),
    (Of::Entry, 2, "value", Of::Value),
    (Of::Value, 1, "null", Of::Number),
    (Of::Value, 2, "number", Of::Number),
    (Of::Value, 3, "string", Of::Text),
    (Of::Value, 4, "bool", Of::Number),
    (Of::Value, 5, "struct", Of::Struct),
    (Of::Value, 6, "list", Of::List),
];

/// The one message of an answer, a line for each field, and whether something in it is masked; nothing if it is anything else.
fn message(body: &[u8]) -> Option<(Vec<String>, bool)> {
    let (head, message) = body.split_at_checked(5)?;
    let length = u32::try_from(message.len()).ok()?.to_be_bytes();
    if head[0] != 0 || head[1..] != length {
        return None;
    }
    let mut fields = fields(Of::Response, message)?;
    let told = fields.clone();
    // The span of the window that a caller brought along: such a limit has no name.
    let is_brought = |field: &str| field.contains("unit: ") && !field.contains("name: ");
    let any = fields.iter().any(|field| is_brought(field));
    for field in &mut fields {
        let mask =
            |number: &str, is_brought: bool| if is_brought { "#".to_owned() } else { span(number, 1.0) };
        for (mark, end, is_brought) in [
            ("duration_until_reset: {", "}", is_brought(field)),
            ("{key: \"RateLimit-Reset\", value: \"", "\"}", any),
        ] {
            if let Some((before, (number, rest))) =
                field.split_once(mark).and_then(|(before, rest)| Some((before, rest.split_once(end)?)))
            {
                *field = format!("{before}{mark}{}{end}{rest}", mask(number, is_brought));
            }
        }
    }
    let is_masked = fields != told;
    Some((fields.into_iter().map(|field| format!("<< {field}")).collect(), is_masked))
}

/// The fields of a message as text; nothing if they are not written in the one way that prost writes them.
fn fields(of: Of, message: &[u8]) -> Option<Vec<String>> {
    let mut rest: VecDeque<u8> = message.iter().copied().collect();
    let (mut all, mut seconds) = (Vec::new(), (0, 0));
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let number = tag >> 3;
        let (name, held) = match FIELDS.iter().find(|(known, field, ..)| *known == of && *field == number) {
            Some((_, _, name, held)) => ((*name).to_owned(), *held),
            None if (of, number) == (Of::List, 1) => ("values".to_owned(), Of::Value),
            None => return None,
        };
        let value = match (tag & 7, held) {
            (0, Of::Number) => varint(&mut rest)?.to_string(),
            (1, Of::Number) => {
                let bytes: Vec<u8> = take(&mut rest, 8)?;
                format!("{:?}", f64::from_le_bytes(bytes.try_into().ok()?))
            }
            (2, held) if held != Of::Number => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let bytes = take(&mut rest, length)?;
                match held {
                    Of::Text => format!("\"{}\"", escape(&bytes)),
                    _ => format!("{{{}}}", fields(held, &bytes)?.join(", ")),
                }
            }
            _ => return None,
        };
        match (of, number) {
            (Of::Span, _) if value == "0" => return None,
            (Of::Span, 1) if seconds == (0, 0) => seconds.0 = value.parse().ok()?,
            (Of::Span, 2) if seconds.1 == 0 => seconds.1 = value.parse().ok()?,
            (Of::Span, _) => return None,
            _ => all.push(format!("{name}: {value}")),
        }
    }
    if of == Of::Span {
        let (whole, nanos): (u64, u32) = seconds;
        all.push(if nanos == 0 { whole.to_string() } else { format!("{whole}.{nanos:09}") });
    }
    Some(all)
}

fn take(rest: &mut VecDeque<u8>, length: usize) -> Option<Vec<u8>> {
    (length <= rest.len()).then(|| rest.drain(..length).collect())
}

/// A number in as few bytes as it needs.
fn varint(rest: &mut VecDeque<u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.pop_front()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (byte > 0 || shift == 0).then_some(number);
        }
    }
    None
}
