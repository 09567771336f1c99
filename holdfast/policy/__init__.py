"""Pure decisions: no clock, no I/O, no temporalio, no kubernetes."""
