//! `grpc.reflection`: which services there are, for programs that have not been told.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic_reflection::server::Builder;

use super::connection::RequestBody;

/// `proto/` as protobuf's own description; a test makes it again and compares.
const DESCRIPTORS: &[u8] = include_bytes!("../../proto/rls.bin");

/// How many bytes a request may have, which is a name.
const LARGEST_REQUEST: usize = 4 * 1024;

/// Tells which services there are, in both versions of the protocol.
#[derive(Clone)]
pub(super) struct Reflection {
    current: Answers,
    alpha: Answers,
}

/// What answers a request. Its type has no name that could be written down.
type Answers = Arc<dyn Fn(Request<RequestBody>) -> Answered + Send + Sync>;
type Answered = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

const CURRENT: &str = "/grpc.reflection.v1.ServerReflection/";
const ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/";

impl Reflection {
    pub(super) fn new() -> Self {
        let builder = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let is_sound = "the descriptions are ours and sound";
        let (current, alpha) = (builder().build_v1(), builder().build_v1alpha());
        let (current, alpha) = (current.expect(is_sound), alpha.expect(is_sound));
        Self {
            current: answers(current.max_decoding_message_size(LARGEST_REQUEST)),
            alpha: answers(alpha.max_decoding_message_size(LARGEST_REQUEST)),
        }
    }

    /// Whether a path is one of its methods.
    pub(super) fn serves(path: &str) -> bool {
        path.starts_with(CURRENT) || path.starts_with(ALPHA)
    }

    pub(super) async fn answer(&self, request: Request<RequestBody>) -> Response<Body> {
        let answers = if request.uri().path().starts_with(CURRENT) { &self.current } else { &self.alpha };
        answers(request).await
    }
}

fn answers<T>(service: T) -> Answers
where
    T: Service<Request<RequestBody>, Response = Response<Body>, Error = std::convert::Infallible>,
    T: Clone + Send + Sync + 'static,
    T::Future: Send,
{
    Arc::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move { service.call(request).await.unwrap_or_else(|never| match never {}) })
    })
}

impl fmt::Debug for Reflection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflection").finish_non_exhaustive()
    }
}
