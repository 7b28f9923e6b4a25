//! Content folders through a real server, in both eras.

mod documentation;
mod escapes;
mod harness;
mod loading;
mod prompts;
mod resources;
mod skills_and_apps;
mod watching;
