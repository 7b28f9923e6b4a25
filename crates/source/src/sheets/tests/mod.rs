mod hostile;
mod kit;
mod reading;
mod references;
mod writing;
mod xls_ods;
