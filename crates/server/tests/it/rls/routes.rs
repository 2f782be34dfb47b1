//! Where the JSON twin is served.

use bytes::Bytes;
use http::{Request, Response};
use tollgate_server::{Clerk, HttpApi, Metrics, RlsOptions};

use super::rig::rig;

const ONE: &str = "domain = \"web\"\n[limit.a]\nkey = \"ip\"\nrate = \"1/h\"\n";
const ASK: &str = r#"{"domain":"web","descriptors":[{"entries":[{"key":"ip","value":"1"}]}]}"#;

async fn post<S: tollgate::store::Store>(api: &HttpApi, clerk: &mut Clerk<S>) -> Response<Bytes> {
    // As curl sends it, if it is not told otherwise.
    let request = Request::post("/json").header("content-type", "application/x-www-form-urlencoded");
    api.answer(clerk, request.body(Bytes::from_static(ASK.as_bytes())).unwrap()).await
}

#[tokio::test]
async fn it_is_served_where_it_is_wanted() {
    let rig = rig(ONE);
    let mut clerk = rig.engine.clerk();
    let (with, without) =
        (HttpApi::new(Metrics::new()).rls(RlsOptions::default()), HttpApi::new(Metrics::new()));
    for status in [200, 429] {
        let answer = post(&with, &mut clerk).await;
        assert_eq!(answer.status().as_u16(), status);
        assert_eq!(answer.headers()["content-type"], "application/json");
    }
    assert_eq!(post(&without, &mut clerk).await.status(), 404);
    let health = || Request::get("/healthcheck").body(Bytes::new()).unwrap();
    let answer = with.answer(&mut clerk, health()).await;
    assert_eq!((answer.status().as_u16(), &answer.body()[..]), (200, &b"OK"[..]));
    assert_eq!(without.answer(&mut clerk, health()).await.status(), 404);
}

/// Item 26.4: any method is answered; without a body the request is malformed.
#[tokio::test]
async fn json_takes_get_and_answers_errors_as_text() {
    let rig = rig(ONE);
    let mut clerk = rig.engine.clerk();
    let api = HttpApi::new(Metrics::new()).rls(RlsOptions::default());
    let empty = api.answer(&mut clerk, Request::get("/json").body(Bytes::new()).unwrap()).await;
    assert_eq!((empty.status().as_u16(), &empty.body()[..]), (400, &b"Bad Request\n"[..]));
    assert_eq!(empty.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(empty.headers()["x-content-type-options"], "nosniff");
    let ask = Request::get("/json").body(Bytes::from_static(ASK.as_bytes())).unwrap();
    assert_eq!(api.answer(&mut clerk, ask).await.status(), 200);
}
