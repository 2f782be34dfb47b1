//! What is asked: tables of cases, and random combinations of features over few keys, so that state evolves. The same in every run.

mod calls;
mod grpc;
mod http;
mod resp;

use super::record::{Exchange, Listener, Scene, Wait, unescape};

/// The files of a protocol.
pub(super) fn scenes(protocol: &str) -> Vec<(&'static str, Scene)> {
    match protocol {
        "http" => http::scenes(),
        "grpc" => grpc::scenes(),
        _ => resp::scenes(),
    }
}

/// Cases chosen by hand.
fn cases(table: &str) -> Vec<Vec<u8>> {
    let all = include_str!("generate/cases.txt");
    let (_, rest) = all.split_once(&format!("## {table}\n")).expect("such a table");
    let lines = rest.lines().take_while(|line| !line.starts_with("## ")).filter(|line| !line.is_empty());
    lines.map(unescape).collect()
}

fn texts(table: &str) -> Vec<String> {
    cases(table).into_iter().map(|case| String::from_utf8(case).expect("a text")).collect()
}

/// A scene that is being written.
struct Script {
    scene: Scene,
    listener: Listener,
    dice: Dice,
}

impl Script {
    fn new(flags: &str, listener: Listener, seed: u64) -> Self {
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        Self { scene: Scene { flags, exchanges: Vec::new() }, listener, dice: Dice(seed) }
    }

    /// Asks, and waits for one answer.
    fn ask(&mut self, label: &str, request: impl Into<Vec<u8>>) {
        self.wait(label, Wait::Answers(1), request);
    }

    fn wait(&mut self, label: &str, wait: Wait, request: impl Into<Vec<u8>>) {
        let name = format!("{label}-{}", self.scene.exchanges.len() + 1);
        let (listener, request) = (self.listener, request.into());
        self.scene.exchanges.push(Exchange {
            name,
            listener,
            wait,
            is_fresh: false,
            request,
            answer: Vec::new(),
        });
    }

    /// The last request goes over a new connection.
    fn fresh(&mut self) {
        self.scene.exchanges.last_mut().unwrap().is_fresh = true;
    }

    /// Something like it that is probably wrong: a byte is lost, changed or put in at up to `most` places.
    fn spoil(&mut self, bytes: &[u8], most: u64, with: &[u8]) -> Vec<u8> {
        let mut spoilt = bytes.to_vec();
        for _ in 0..=self.dice.roll(most) {
            let at = self.dice.roll(spoilt.len() as u64) as usize;
            match self.dice.roll(3) {
                0 => _ = spoilt.remove(at),
                1 => spoilt[at] = *self.dice.pick(with),
                _ => spoilt.insert(at, *self.dice.pick(with)),
            }
        }
        spoilt
    }
}

/// Numbers that look random: `SplitMix64`.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn pick<'a, T: ?Sized + 'a>(&mut self, of: &'a [impl std::borrow::Borrow<T>]) -> &'a T {
        of[self.roll(of.len() as u64) as usize].borrow()
    }

    /// In so many of a hundred cases.
    fn percent(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}
