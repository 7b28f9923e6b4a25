mod hostile;
mod kit;
mod reading;
mod writing;
mod xls_ods;
