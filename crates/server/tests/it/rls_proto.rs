//! Generated files are those that `proto/` makes. `cargo xtask proto` makes them again.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

fn proto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("proto")
}

/// Compares a checked-in file with what was generated, or writes it if that is asked for.
fn check(path: &Path, generated: &[u8]) {
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        fs::write(path, generated).unwrap();
    }
    assert!(
        fs::read(path).unwrap() == generated,
        "{} is out of date: run `cargo xtask proto`",
        path.display()
    );
}

#[test]
fn reflection_serves_the_descriptions_of_envoys_and_limitadors_services() {
    let files = ["envoy/service/ratelimit/v3/rls.proto", "kuadrant/service/ratelimit/v1/kuadrantrls.proto"];
    let mut made = protox::compile(files, [&proto()]).unwrap();
    for file in &mut made.file {
        file.source_code_info = None;
    }
    check(&proto().join("rls.bin"), &made.encode_to_vec());
}

#[test]
fn the_messages_are_generated_from_their_description() {
    let description = protox::compile(["tollgate/rls.proto"], [&proto()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .bytes(".")
        .codec_path("crate::rls::codec::Codec")
        .out_dir(folder.path())
        .compile_fds(description)
        .unwrap();
    let generated = fs::read(folder.path().join("envoy.service.ratelimit.v3.rs")).unwrap();
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rls/proto.rs"), &generated);
}

#[test]
fn limitadors_service_is_generated_from_its_description() {
    let description =
        protox::compile(["kuadrant/service/ratelimit/v1/kuadrantrls.proto"], [&proto()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".envoy.service.ratelimit.v3", "crate::rls::proto")
        .codec_path("crate::rls::codec::Codec")
        .out_dir(folder.path())
        .compile_fds(description)
        .unwrap();
    let generated = fs::read(folder.path().join("kuadrant.service.ratelimit.v1.rs")).unwrap();
    check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rls/kuadrant_proto.rs"), &generated);
}
