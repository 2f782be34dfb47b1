//! A file is written whole or not at all.

use super::*;

fn limiter() -> Buckets {
    let limiter = buckets(Quota::per_hour(3), some_clock()).build();
    assert!(limiter.allow_n(&1, 3));
    limiter
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = Folder::new();
    let missing = folder.0.join("no-such-folder").join("limits");
    let error = limiter().save(&missing).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let start = format!("cannot save a limiter as {}: ", missing.display());
    assert!(error.to_string().starts_with(&start), "{error}");

    let error = limiter().save("..").unwrap_err();
    let expected = "cannot save a limiter as ..: it is a folder; expected the name of a file";
    assert_eq!(error.to_string(), expected);

    fs::create_dir(folder.file()).unwrap();
    assert!(limiter().save(folder.file()).is_err());
    assert_eq!(folder.names(), ["limits.snapshot"], "nothing is left behind");
}

#[test]
fn the_old_file_stays_as_it_was_if_a_new_one_cannot_be_written() {
    let folder = Folder::new();
    let limiter = limiter();
    limiter.save(folder.file()).unwrap();
    let before = fs::read(folder.file()).unwrap();
    for number in 0..=100 {
        fs::write(folder.0.join(format!("limits.snapshot.{number}.tmp")), "of somebody else").unwrap();
    }
    assert!(limiter.allow_n(&2, 3));
    let error = limiter.save(folder.file()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(folder.file()).unwrap(), before);
    fs::remove_file(folder.0.join("limits.snapshot.7.tmp")).unwrap();
    assert_eq!(limiter.save(folder.file()).unwrap(), 2);
    assert_ne!(fs::read(folder.file()).unwrap(), before);
    assert_eq!(folder.names().len(), 101, "all but the seventh, and the snapshot");
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    limiter().save(folder.file()).unwrap();
    assert_eq!(fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777, 0o600);
}
