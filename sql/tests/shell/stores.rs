//! Object stores: a server on this machine that has the files of a folder.
//!
//! ```text
//!  horton-sql ─ HEAD, GET with a range ─▶ server ─▶ files
//!     http://127.0.0.1:PORT/trips.parquet            by their path
//!     s3://bucket/trips.parquet                      by bucket and path
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::run::{Place, device, ended};

/// Serves the files of `folder` until the test ends. Returns the port.
fn serve(folder: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let folder = folder.clone();
            std::thread::spawn(move || answer(&stream.unwrap(), &folder));
        }
    });
    port
}

/// Answers the requests of a connection. A client that leaves early is none of a test's business.
fn answer(stream: &TcpStream, folder: &Path) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let headers: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let range = headers.iter().find_map(|header| {
            let lower = header.to_lowercase();
            let (from, to) = lower.strip_prefix("range: bytes=")?.split_once('-')?;
            Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?))
        });
        let path = path.trim_start_matches('/');
        let path = path.strip_prefix("bucket/").unwrap_or(path);
        let (status, content, body) = match (std::fs::read(folder.join(path)), range) {
            (Err(_), _) => ("404 Not Found", String::new(), Vec::new()),
            (Ok(bytes), None) => ("200 OK", String::new(), bytes),
            (Ok(bytes), Some((from, to))) => {
                let to = to.min(bytes.len() - 1);
                let content = format!("Content-Range: bytes {from}-{to}/{}\r\n", bytes.len());
                ("206 Partial Content", content, bytes[from..=to].to_vec())
            }
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{content}ETag: \"1\"\r\n\
             Last-Modified: Wed, 01 Jan 2020 00:00:00 GMT\r\n\r\n",
            body.len()
        );
        let mut stream = stream;
        let mut answer = head.into_bytes();
        if method == "GET" {
            answer.extend(body);
        }
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

#[test]
fn files_of_servers_are_tables() {
    let place = Place::with_trips();
    let url = format!("http://127.0.0.1:{}", serve(place.work()));
    let join = |trips: &str, cities: &str| {
        format!("SELECT count(*) AS n FROM '{trips}' t JOIN '{cities}' c ON t.city = c.id")
    };
    let queries = [
        join(
            &format!("{url}/trips.parquet"),
            &format!("{url}/cities.csv"),
        ),
        join("s3://bucket/trips.parquet", "s3://bucket/cities.json"),
        join("s3://bucket/trips.parquet", "cities.csv"),
    ];
    for query in queries {
        let mut command = place.command(&[
            "--set",
            "horton.enabled=always",
            "--format",
            "csv",
            "-c",
            &query,
        ]);
        let command = command
            .env("AWS_ENDPOINT", &url)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "eu-west-1")
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "secret");
        let ended = ended(command.stdin(Stdio::null()).output().unwrap());
        assert_eq!(ended.out, "n\n2000\n", "{query}: {ended:?}");
        let joins = format!("1 join on {}", device());
        assert_eq!(ended.summary(), ["1 row", &joins], "{query}");
    }
}
