"""`millrace dlq`: `commands` reads and sends, `plan` decides, `shown` prints, `inboxes` knows the records that are passed over."""
