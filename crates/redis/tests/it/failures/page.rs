//! A row of `docs/redis-failures.md` for each fault, from what was seen. `cargo xtask failures` puts them together.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::load::{End, Outcome};

/// Every fault, in the order of the page.
pub(crate) const FAULTS: [&str; 9] = [
    "killed",
    "paused (SIGSTOP)",
    "killed, and started again empty",
    "slowed: asleep for 60 ms again and again",
    "replica promoted under load",
    "script cache flushed",
    "memory full",
    "a cluster of three loses a primary",
    "a slot moves under load",
];

/// When a fault was there; without an end if it stayed.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) begin: Instant,
    pub(crate) end: Option<Instant>,
}

impl Fault {
    /// Checks what must hold of every fault, and writes its row. `most` is how many may be over the bound, and why.
    pub(crate) fn report(&self, outcome: &Outcome, most: u64, why: &str, more: &str) {
        let (over, longest) = (outcome.over(), outcome.longest());
        assert!(over <= most, "{}: {over} over the bound, at most {most} may be", self.name);
        // Time-out and 5 ms are promised; a machine with other things to do is given some more here, and the page tells.
        assert!(longest < Duration::from_secs(2), "{}: a call took {longest:?}", self.name);
        let again = self.end.map(|end| outcome.exact_after(end));
        assert!(
            again.is_none_or(|again| again < Duration::from_secs(5)),
            "{}: exact after {again:?}",
            self.name
        );
        let over = if why.is_empty() { over.to_string() } else { format!("{over}; at most {most}, {why}") };
        let again = again.map_or("it stayed".to_owned(), |again| format!("{} ms", again.as_millis()));
        let row = format!(
            "| {} | {}{more} | {over} | {:.1} ms | {again} |\n",
            self.name,
            self.saw(outcome),
            millis(longest)
        );
        self.write(&row);
    }

    fn saw(&self, outcome: &Outcome) -> String {
        let to = self.end.unwrap_or_else(Instant::now);
        let count = |end| outcome.between(self.begin, to, end);
        let (answered, unanswered) = (count(End::Admitted) + count(End::Refused), count(End::Unanswered));
        let [late, failed, untried] = outcome.unanswered();
        format!(
            "{answered} answers meanwhile; {unanswered} not decided ({late} late, {failed} failed, {untried} not tried in all)"
        )
    }

    fn write(&self, row: &str) {
        let number = FAULTS.iter().position(|fault| *fault == self.name).expect("one of them");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redis-failures");
        fs::create_dir_all(&folder).expect("a folder for rows");
        fs::write(folder.join(format!("{number}.md")), row).expect("a row");
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[test]
fn the_page_has_a_row_for_every_fault() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis-failures.md");
    let page = fs::read_to_string(page).unwrap_or_default();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.ends_with(" |"));
    let named: Vec<&str> =
        rows.filter_map(|row| row.split(" | ").next()?.strip_prefix("| ")).skip(2).collect();
    assert_eq!(named, FAULTS, "it is old: cargo xtask failures");
}
