//! Whatever is received, and in whatever pieces: the same commands are found, within bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_server::resp::{
    MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_COMMAND_BYTES, Parsed, Parser, ProtocolError,
};

type Commands = Vec<Vec<Vec<u8>>>;

/// All commands in it, and how it ended.
fn commands(mut received: &[u8]) -> (Commands, Result<usize, ProtocolError>) {
    let (mut parser, mut commands) = (Parser::default(), Commands::new());
    loop {
        let used = match parser.parse(received) {
            Ok(Parsed::Command(used)) => {
                let arguments = parser.arguments(received);
                assert!((1..=MAX_ARGUMENTS).contains(&arguments.len()));
                assert!(arguments.iter().all(|argument| argument.len() <= MAX_ARGUMENT_BYTES));
                commands.push(arguments.iter().map(<[u8]>::to_vec).collect());
                used
            }
            Ok(Parsed::Nothing(used)) => used,
            Ok(Parsed::Incomplete) => return (commands, Ok(received.len())),
            Err(error) => return (commands, Err(error)),
        };
        assert!((1..=received.len().min(MAX_COMMAND_BYTES + 2)).contains(&used));
        received = &received[used..];
    }
}

fuzz_target!(|input: &[u8]| {
    let (whole, end) = commands(input);
    if let Err(error) = end {
        let told = error.to_string();
        assert!(told.starts_with("Protocol error: ") && !told.contains(['\r', '\n']));
    }
    // What is found in a part is found in the whole, and a part is only wrong if the whole is.
    let cut = input.first().map_or(0, |byte| usize::from(*byte) * input.len() / 256);
    let (part, part_end) = commands(&input[..cut]);
    assert!(whole.starts_with(&part));
    if part_end.is_err() {
        assert_eq!((part, part_end), (whole.clone(), end));
    }
    // Written as clients write them, the same commands are found again.
    let mut written = Vec::new();
    for command in &whole {
        written.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for argument in command {
            written.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            written.extend_from_slice(argument);
            written.extend_from_slice(b"\r\n");
        }
    }
    assert_eq!(commands(&written), (whole, Ok(0)));
});
