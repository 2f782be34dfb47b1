//! The one flag that the longer commands take: how much of it.

/// The number after `flag`, or `default` if there are no arguments.
pub(crate) fn number(command: &str, flag: &str, default: u64, args: &[&str]) -> Result<u64, String> {
    match args {
        [] => Ok(default),
        [first, number] if *first == flag => match number.replace('_', "").parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{flag} needs a whole number above zero, but got {number:?}")),
        },
        [first] if *first == flag => Err(format!("{flag} needs a number")),
        [other, ..] => Err(format!("`{command}` takes {flag} N, but got {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_and_anything_else_is_named() {
        let read = |args: &[&str]| number("soak", "--decisions", 7, args);
        assert_eq!(read(&[]), Ok(7));
        assert_eq!(read(&["--decisions", "1_000"]), Ok(1_000));
        assert_eq!(read(&["--decisions"]).unwrap_err(), "--decisions needs a number");
        assert_eq!(
            read(&["--decisions", "0"]).unwrap_err(),
            "--decisions needs a whole number above zero, but got \"0\""
        );
        assert_eq!(read(&["--fast"]).unwrap_err(), "`soak` takes --decisions N, but got \"--fast\"");
    }
}
