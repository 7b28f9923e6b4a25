mod hostile;
mod kit;
mod others;
mod reading;
mod writing;
