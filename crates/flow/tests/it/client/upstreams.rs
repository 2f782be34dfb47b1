//! One state for each upstream, shared by all who call it.

use http::Method;
use tollgate_flow::Polite;
use tower_layer::Layer;
use tower_service::Service;

use super::mock::{Server, silence, status};
use super::{client, effort, get, manners, slowly, to};

async fn visit(polite: &Polite, server: &Server, uri: &str) -> u128 {
    let response = polite.layer(server.clone()).call(to(&Method::GET, uri)).await.unwrap();
    effort(&response).waited.as_millis()
}

fn names(polite: &Polite) -> Vec<String> {
    polite.upstreams().into_iter().map(|upstream| upstream.name).collect()
}

#[tokio::test(start_paused = true)]
async fn hosts_do_not_slow_each_other_down() {
    let server = Server::new(|request, n| {
        let is_strict = request.uri().host() == Some("strict.example.org");
        if is_strict && n == 0 { status(429).with("retry-after", "60") } else { status(200) }
    });
    let polite = manners().deadline(super::SECOND).build();
    let mut client = polite.layer(server.clone());
    let response = client.call(to(&Method::GET, "http://strict.example.org/")).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(visit(&polite, &server, "http://example.org/").await, 0);
    assert_eq!(visit(&polite, &server, "http://strict.example.org:81/").await, 0);
    assert!(client.call(to(&Method::GET, "http://STRICT.example.org/other")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn all_as_one_share_their_turns() {
    let (polite, server) = (manners().rate(slowly()).as_one().build(), Server::of(&[200]));
    let mut waits = Vec::new();
    for host in ["a", "b", "c"] {
        waits.push(visit(&polite, &server, &format!("http://{host}.example.org/")).await);
    }
    assert_eq!((waits, names(&polite)), (vec![0, 0, 1_000], vec![String::new()]));
}

#[tokio::test(start_paused = true)]
async fn the_host_called_longest_ago_is_forgotten_first() {
    let (polite, server) = (manners().rate(slowly()).most_upstreams(2).build(), Server::of(&[200]));
    for host in ["a", "a", "b", "b", "a", "c"] {
        visit(&polite, &server, &format!("http://{host}/")).await;
    }
    assert_eq!(names(&polite), ["a:80", "c:80"]);
    // What is known goes on waiting, and what was forgotten begins anew.
    assert_eq!(visit(&polite, &server, "http://a/").await, 1_000);
    assert_eq!(visit(&polite, &server, "http://b/").await, 0);
    assert_eq!(names(&polite), ["a:80", "b:80"]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_being_called_is_not_forgotten() {
    let server =
        Server::new(|request, _| if request.uri().host() == Some("slow") { silence() } else { status(200) });
    let polite = manners().most_upstreams(1).build();
    let mut client = polite.layer(server.clone());
    let slow = tokio::spawn(client.call(to(&Method::GET, "http://slow/")));
    tokio::task::yield_now().await;
    visit(&polite, &server, "http://a/").await;
    visit(&polite, &server, "http://b/").await;
    assert_eq!(names(&polite), ["slow:80", "b:80"]);
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());
    visit(&polite, &server, "http://c/").await;
    assert_eq!(names(&polite), ["c:80"]);
}

#[tokio::test(start_paused = true)]
async fn clones_and_layers_of_one_client_share_its_state() {
    let server = Server::of(&[200]);
    let polite = manners().rate(slowly()).build();
    let (one, other) = (polite.layer(server.clone()), polite.clone().layer(server.clone()));
    for client in [one.clone(), one, other] {
        get(&client).await.unwrap();
    }
    assert_eq!(server.at_ms(), [0, 0, 1_000]);
    let apart = client(manners().rate(slowly()), &server);
    assert_eq!(effort(&get(&apart).await.unwrap()).waited.as_millis(), 0);
}
