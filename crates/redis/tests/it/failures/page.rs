//! Writes one row of `docs/redis-failures.md` for each fault. `cargo xtask failures` combines the rows.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::load::{End, Outcome};

/// All faults, in the order of the page.
pub(crate) const FAULTS: [&str; 9] = [
    "killed",
    "paused (SIGSTOP)",
    "killed and restarted empty",
    "slowed by repeated pauses of 60 ms",
    "replica promoted under load",
    "script cache flushed",
    "memory full",
    "cluster of three loses a primary",
    "hash slot moved under load",
];

/// The time of a fault. `end` is `None` if the fault lasted until the end of the test.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) begin: Instant,
    pub(crate) end: Option<Instant>,
}

impl Fault {
    /// Checks the guarantees that hold for every fault, and writes its row. `most` is the maximum number of requests over the limit, and
    /// `why` its reason. `more` is added to the number of calls without a decision.
    pub(crate) fn report(&self, outcome: &Outcome, most: u64, why: &str, more: &str) {
        let (over, longest) = (outcome.over(), outcome.longest());
        assert!(over <= most, "{}: {over} requests over the limit, at most {most} are allowed", self.name);
        // The guarantee is the timeout plus 5 ms. A busy machine gets more time here; the page shows the actual value.
        assert!(longest < Duration::from_secs(2), "{}: a call took {longest:?}", self.name);
        let again = self.end.map(|end| outcome.exact_after(end));
        assert!(
            again.is_none_or(|again| again < Duration::from_secs(5)),
            "{}: exact after {again:?}",
            self.name
        );
        let over = if why.is_empty() { over.to_string() } else { format!("{over} (at most {most}: {why})") };
        let again = again.map_or("fault lasted".to_owned(), |again| format!("{} ms", again.as_millis()));
        let row = format!(
            "| {} | {}{more} | {} | {over} | {:.1} ms | {again} |\n",
            self.name,
            self.calls(outcome),
            unanswered(outcome),
            millis(longest)
        );
        self.write(&row);
    }

    /// The numbers of calls with and without a decision during the fault, as two cells.
    fn calls(&self, outcome: &Outcome) -> String {
        let to = self.end.unwrap_or_else(Instant::now);
        let count = |end| outcome.between(self.begin, to, end);
        format!("{} | {}", count(End::Admitted) + count(End::Refused), count(End::Unanswered))
    }

    fn write(&self, row: &str) {
        let number = FAULTS.iter().position(|fault| *fault == self.name).expect("one of them");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redis-failures");
        fs::create_dir_all(&folder).expect("a folder for rows");
        fs::write(folder.join(format!("{number}.md")), row).expect("a row");
    }
}

/// The reasons why calls were not decided, for the whole test.
fn unanswered(outcome: &Outcome) -> String {
    outcome.unanswered().map(|count| count.to_string()).join(" / ")
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
    assert_eq!(named, FAULTS, "the page is outdated: run `cargo xtask failures`");
}
