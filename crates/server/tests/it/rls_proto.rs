//! The description of the service that reflection hands out is that of the files in `proto/`.

use std::path::PathBuf;

use prost::Message;

/// To make it again after a change: `TOLLGATE_BLESS=1 cargo test -p tollgate-server --test it rls_proto`.
#[test]
fn the_description_is_made_of_the_files() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut made = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [&folder]).unwrap();
    for file in &mut made.file {
        file.source_code_info = None;
    }
    let (made, path) = (made.encode_to_vec(), folder.join("rls.bin"));
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(
        std::fs::read(path).unwrap() == made,
        "rls.bin is not what the files say: see how to make it again"
    );
}
