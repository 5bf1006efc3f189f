//! Files imported again, after a complete import and after one that ended early.

use std::path::{Path, PathBuf};

use super::*;

fn args(file: &Path, run: &str, folder: &Path) -> ImportArgs {
    let config = folder.join("import.toml");
    let text = "[[source]]\nname = 'fti'\nkind = 'inetx'\nlisten = '127.0.0.1:0'\nptp_scale = 'utc'\n\
                clock = 'receive'\n\
                [[source.stream]]\nid = 0xCA\ntable = 'fti'\n\
                [[source.stream.channel]]\nname = 'word'\noffset = 0\ntype = 'u16'\n";
    std::fs::write(&config, text).unwrap();
    ImportArgs {
        file: file.to_owned(),
        config: Some(config),
        run: run.to_owned(),
        data: Some(folder.join("store")),
        json: false,
    }
}

/// Returns a capture with ten packets of a stream.
fn capture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sources/tests/data/inetx/inetx_test.pcap")
}

/// Writes a recording with three messages of a topic, which have no sequence.
fn recording(folder: &Path) -> PathBuf {
    let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let record = |opcode: u8, body: &[u8]| [&[opcode][..], &(body.len() as u64).to_le_bytes(), body].concat();
    let channel = [&[1, 0, 0, 0][..], &text("/tank"), &text("json"), &[0; 4]].concat();
    let mut file = [&mcap::MAGIC[..], &record(4, &channel)].concat();
    for time in 1..=3_u64 {
        let message = [&[1, 0, 0, 0, 0, 0][..], &time.to_le_bytes(), &time.to_le_bytes(), b"{\"p\":1.5}"].concat();
        file.extend(record(5, &message));
    }
    file.extend(record(2, &[0; 20]));
    file.extend(mcap::MAGIC);
    let path = folder.join("tank.mcap");
    std::fs::write(&path, file).unwrap();
    path
}

/// Runs `work` on the store of a folder, which is committed meanwhile and closed afterwards.
fn in_store<T>(folder: &Path, work: impl FnOnce(&Ingest) -> T) -> T {
    let config = Config::default();
    let live = Arc::new(Live::default());
    let ingest = Ingest::open(folder.join("store"), config.store_options(), Vec::new(), live).unwrap();
    let ingest = Arc::new(ingest);
    let commits = ingest.clone();
    let thread = std::thread::spawn(move || commits.run_commits(Duration::from_millis(1)));
    let done = work(&ingest);
    ingest.stop();
    thread.join().unwrap();
    ingest.store().close(now_ns()).unwrap();
    done
}

/// Begins an import as [`import_once`] does, and stops before the first frame, or after all but the final row.
fn end_early(args: &ImportArgs, folder: &Path, is_stored: bool) {
    in_store(folder, |ingest| {
        let hash = import::file_sha256(&args.file).unwrap();
        let protected = ingest.store().protect_run(&args.run, now_ns()).unwrap();
        ingest.wait_durable(protected).unwrap();
        let rows = Some(rows_of(&ingest.store(), &args.run));
        write_down(ingest, args, &hash, ImportStep::Begun { rows }).unwrap();
        let run = args.run.clone();
        match form_of(args, &Config::read(args.config.as_ref().unwrap()).unwrap(), args.config.as_deref()).unwrap() {
            _ if !is_stored => {}
            FileKind::Capture(sources) => {
                let config = ImportConfig { run, sources };
                import::run(&args.file, &config, ingest, |_| ControlFlow::Continue(())).unwrap();
            }
            FileKind::Mcap => {
                mcap::run(&args.file, &McapConfig { run }, ingest, |_| ControlFlow::Continue(())).unwrap();
            }
        }
    });
}

/// Returns the number of frames stored in a run, and the recorded progress of the file.
fn found(folder: &Path, args: &ImportArgs) -> (u64, Option<ImportStep>) {
    in_store(folder, |ingest| {
        let (store, hash) = (ingest.store(), import::file_sha256(&args.file).unwrap());
        (rows_of(&store, &args.run), written_of(&store, &args.run, &hash).unwrap().step)
    })
}

/// Returns the progress of a file whose import was begun when its run had `rows` rows.
fn begun_at(rows: u64) -> Option<ImportStep> {
    Some(ImportStep::Begun { rows: Some(rows) })
}

#[test]
fn a_file_of_which_nothing_was_stored_is_imported_again() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(recording(folder.path())).unwrap();
    let file = folder.path().join("cut.mcap");
    std::fs::write(&file, &whole[..60]).unwrap();
    let args = args(&file, "cut", folder.path());
    for _ in 0..2 {
        assert_eq!(run(&args).unwrap(), Outcome::DataLost);
        assert_eq!(found(folder.path(), &args), (0, begun_at(0)));
    }
}

#[test]
fn a_file_goes_into_a_run_once() {
    let folder = tempfile::tempdir().unwrap();
    for (file, frames) in [(capture(), 10), (recording(folder.path()), 3)] {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let args = args(&file, &name, folder.path());
        assert_eq!(run(&args).unwrap(), Outcome::Done);
        assert_eq!(found(folder.path(), &args), (frames, Some(ImportStep::Done)));
        let error = run(&args).unwrap_err().to_string();
        assert!(error.ends_with("already: the same file is not imported twice"), "{error}");
        assert_eq!(found(folder.path(), &args).0, frames);
    }
}

#[test]
fn a_file_whose_import_ended_early_is_not_stored_twice() {
    let folder = tempfile::tempdir().unwrap();
    for (file, frames) in [(capture(), 10), (recording(folder.path()), 3)] {
        let run_of = |run: &str| format!("{run} of {frames}");
        let first = args(&file, &run_of("first"), folder.path());
        end_early(&first, folder.path(), true);
        assert_eq!(found(folder.path(), &first), (frames, begun_at(0)));
        let error = run(&first).unwrap_err().to_string();
        assert!(error.contains("ended early") && error.contains("name another run with --run"), "{error}");
        assert!(error.contains("strongback run release"), "{error}");
        assert_eq!(found(folder.path(), &first), (frames, begun_at(0)));
        let second = ImportArgs { run: run_of("second"), ..first };
        assert_eq!(run(&second).unwrap(), Outcome::Done);
        assert_eq!(found(folder.path(), &second), (frames, Some(ImportStep::Done)));
        // Nothing of the file was stored, so the import is tried again.
        let third = ImportArgs { run: run_of("third"), ..second };
        end_early(&third, folder.path(), false);
        assert_eq!(run(&third).unwrap(), Outcome::Done);
        assert_eq!(found(folder.path(), &third), (frames, Some(ImportStep::Done)));
    }
}

#[test]
fn other_files_of_a_run_are_not_taken_for_the_one_that_ended_early() {
    let folder = tempfile::tempdir().unwrap();
    let other = args(&recording(folder.path()), "r", folder.path());
    assert_eq!(run(&other).unwrap(), Outcome::Done);
    let args = ImportArgs { file: capture(), ..other.clone() };
    end_early(&args, folder.path(), false);
    assert_eq!(found(folder.path(), &args), (3, begun_at(3)));
    assert_eq!(run(&args).unwrap(), Outcome::Done);
    assert_eq!(found(folder.path(), &args), (13, Some(ImportStep::Done)));
    // Part of the file was stored; the run is not to be released for it, because it has all of another file.
    let other = ImportArgs { run: "s".to_owned(), ..other };
    assert_eq!(run(&other).unwrap(), Outcome::Done);
    let args = ImportArgs { run: "s".to_owned(), ..args };
    end_early(&args, folder.path(), true);
    let error = run(&args).unwrap_err().to_string();
    assert!(error.contains("ended early") && !error.contains("release"), "{error}");
    assert_eq!(found(folder.path(), &args), (13, begun_at(3)));
}

/// Rows of stores from before the number of rows was recorded: any row of the run may be of the file.
#[test]
fn a_file_that_was_begun_by_an_earlier_version_is_refused_where_its_run_has_frames() {
    let folder = tempfile::tempdir().unwrap();
    let other = args(&recording(folder.path()), "r", folder.path());
    let begin = |args: &ImportArgs| {
        let hash = import::file_sha256(&args.file).unwrap();
        in_store(folder.path(), |ingest| write_down(ingest, args, &hash, ImportStep::Begun { rows: None }).unwrap());
    };
    let args = ImportArgs { file: capture(), ..other.clone() };
    begin(&args);
    assert_eq!(run(&other).unwrap(), Outcome::Done);
    assert!(run(&args).is_err());
    assert_eq!(found(folder.path(), &args), (3, Some(ImportStep::Begun { rows: None })));
    let empty = ImportArgs { run: "empty".to_owned(), ..args };
    begin(&empty);
    assert_eq!(run(&empty).unwrap(), Outcome::Done);
}

#[test]
fn a_file_that_changes_while_it_is_imported_is_not_said_to_be_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for (file, run) in [(capture(), "capture"), (recording(folder.path()), "recording")] {
        let args = args(&file, run, folder.path());
        in_store(folder.path(), |ingest| {
            let form =
                form_of(&args, &Config::read(args.config.as_ref().unwrap()).unwrap(), args.config.as_deref()).unwrap();
            let hash_before = "0".repeat(64);
            let error = import_hashed(&args, ingest, form, &hash_before).err().unwrap().to_string();
            assert!(error.contains("the file changed"), "{error}");
            let written = written_of(&ingest.store(), run, &hash_before).unwrap();
            assert!(matches!(written.step, Some(ImportStep::Begun { .. })), "{written:?}");
        });
    }
}

/// Rows of stores from before the begin of imports was recorded: the channel `state` is missing.
#[test]
fn a_row_without_a_state_is_of_an_import_that_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let args = args(&recording(folder.path()), "old", folder.path());
    let hash = import::file_sha256(&args.file).unwrap();
    in_store(folder.path(), |ingest| {
        let spec = StreamSpec {
            key: StreamKey::new(IMPORTS, []),
            source: "internal".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: ["run", "sha256", "file"].map(|name| ChannelSpec::new(name, ChannelType::String)).into(),
        };
        let (stream, channels) = ingest.resolve_own(&spec).unwrap();
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: stream.id, receive_time: now_ns(), source_time: None, sequence: None });
        for (channel, text) in channels.iter().zip(["old", &hash, "tank.mcap"]) {
            batch.push(*channel, Value::String(text));
        }
        batch.end();
        ingest.wait_durable(ingest.accept_waiting(&batch).commit).unwrap();
    });
    assert_eq!(found(folder.path(), &args), (0, Some(ImportStep::Done)));
    assert!(run(&args).is_err());
    // The channel appears with the next file and does not change the rows before it.
    let new = ImportArgs { run: "new".to_owned(), ..args.clone() };
    assert_eq!(run(&new).unwrap(), Outcome::Done);
    assert_eq!(found(folder.path(), &args), (0, Some(ImportStep::Done)));
    assert_eq!(found(folder.path(), &new), (3, Some(ImportStep::Done)));
}
