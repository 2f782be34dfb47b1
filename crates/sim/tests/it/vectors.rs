//! The golden vectors are what core says.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use tollgate_core::Kind;
use tollgate_sim::vectors::{self, Vector, What};

fn kept(kind: Kind) -> Vec<Vector> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors");
    let file = File::open(folder.join(format!("{kind}.jsonl"))).expect("cargo xtask vectors makes them");
    vectors::read(BufReader::new(file)).expect("stories, one to a line")
}

#[test]
fn core_tells_every_story_as_it_is_kept() {
    for kind in Kind::ALL {
        for (number, story) in kept(kind).iter().enumerate() {
            assert_eq!(*story, story.told_by_core(), "{kind}, line {}", number + 1);
        }
    }
}

#[test]
fn the_files_are_what_the_command_makes() {
    for kind in Kind::ALL {
        assert!(kept(kind) == Vector::all(kind), "{kind}: run cargo xtask vectors, and look at what changed");
    }
}

#[test]
fn every_kind_of_answer_and_of_question_occurs() {
    for kind in Kind::ALL {
        let steps: Vec<_> = kept(kind).into_iter().flat_map(|story| story.steps).collect();
        let said = |verdict: &str| steps.iter().filter(|step| step.answer.verdict == verdict).count();
        assert!(said("allow") > 100 && said("deny") > 50, "{kind}: {} and {}", said("allow"), said("deny"));
        assert_eq!(said("delay") > 0, kind == Kind::LeakyQueue, "{kind}");
        let back = steps.iter().filter(|step| matches!(step.what, What::GiveBack(_))).count();
        assert!(back > 10, "{kind}: {back} returns");
        assert!(
            steps.windows(2).any(|pair| pair[1].at_us < pair[0].at_us),
            "{kind}: a clock that steps back"
        );
    }
}
