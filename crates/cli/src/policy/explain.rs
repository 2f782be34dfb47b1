//! `tollgate policy explain`: the limits that apply to a request, why, and their decisions.

use std::time::Duration;

use clap::ArgMatches;
use serde::Serialize;
use tollgate::store::{MemoryStore, Mode};
use tollgate_policy::{DEFAULT_DOMAIN, Descriptor, DescriptorBuf, Explanation};
use tollgate_server::{Ask, Engine, Finding, Ruling};

use super::{as_asked, files, is_json, read};
use crate::failure::Failure;
use crate::output;

/// The output.
#[derive(Serialize)]
struct Told {
    /// Whether all limits allow the request.
    allowed: bool,
    /// The limit that decides.
    decided_by: Option<String>,
    #[serde(flatten)]
    explanation: Explanation,
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let text = |id: &str| matches.get_one::<String>(id).map(String::as_str);
    let typed: Vec<&str> =
        matches.get_many::<String>("descriptor").into_iter().flatten().map(String::as_str).collect();
    if typed.len() > 1 {
        let together = typed.join(",");
        return Err(Failure::Usage(format!(
            "--descriptor may be given once, found {}; join the fields: --descriptor {together}",
            typed.len()
        )));
    }
    let typed: DescriptorBuf = typed.concat().parse().map_err(|error| {
        Failure::Usage(format!("--descriptor: {error}; for example --descriptor ip=10.0.0.7,path=/orders"))
    })?;
    let descriptor = typed.in_domain(text("domain").unwrap_or(DEFAULT_DOMAIN));
    let cost = matches.get_one("cost").copied().unwrap_or(1);
    let path = files(matches).next().flatten().map(|path| as_asked(path, matches));
    let (policy, origin) = read(path).map_err(Failure::failed)?;
    let explanation = policy.explain(&descriptor);
    // The time of a fresh store is of no account.
    let engine = Engine::new(MemoryStore::new(), policy, origin);
    let told = answer(&engine, &descriptor, cost, explanation)?;
    if is_json(matches) { output::print_json(&told) } else { output::print(&told.text()) }
}

fn answer(
    engine: &Engine<MemoryStore>,
    descriptor: &Descriptor<'_>,
    cost: u64,
    mut explanation: Explanation,
) -> Result<Told, Failure> {
    let mut clerk = engine.clerk();
    let asks = [Ask::policy(descriptor).costing(cost)];
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(Failure::failed)?;
    let ruling = runtime.block_on(clerk.decide(Mode::Take, &asks)).map_err(Failure::failed)?;
    for limit in &mut explanation.limits {
        limit.answer = answer_of(&ruling, &limit.name);
    }
    let decided_by = ruling.decided_by().map(|finding| finding.limit.rule.name().to_owned());
    Ok(Told { allowed: ruling.is_allowed(), decided_by, explanation })
}

/// Returns the decision of a limit, or of each of its rates if it has several.
fn answer_of(ruling: &Ruling<'_>, name: &str) -> Option<String> {
    let of_limit: Vec<&Finding<'_>> =
        ruling.findings().iter().filter(|finding| finding.limit.rule.name() == name).collect();
    let said = |finding: &&Finding<'_>| match of_limit.len() {
        1 => words(finding),
        _ => format!("{}: {}", finding.limit.rule.quotas()[finding.quota], words(finding)),
    };
    let said: Vec<String> = of_limit.iter().map(said).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn words(finding: &Finding<'_>) -> String {
    let decision = &finding.decision;
    let left = match decision.limit() {
        u64::MAX => "unlimited".to_owned(),
        limit => format!("{} of {limit} left", decision.remaining()),
    };
    match (decision.is_admitted(), decision.retry_after()) {
        (true, _) if decision.delay() == Duration::ZERO => format!("allowed, {left}"),
        (true, _) => format!("allowed after {:?}, {left}", decision.delay()),
        (false, Some(wait)) => format!("denied, {left}, retry after {wait:?}"),
        (false, None) => {
            format!("never allowed: cost {} exceeds the limit of {}", finding.cost, decision.limit())
        }
    }
}

impl Told {
    fn text(&self) -> String {
        let word = if self.allowed { "allowed" } else { "denied" };
        let by = self.decided_by.as_ref().map(|name| format!(", decided by {name}"));
        let by = by.unwrap_or_else(|| ", no limit applies".to_owned());
        format!("{}\ntogether: {word}{by}\n", self.explanation)
    }
}
