"""AppWrapper `workload.codeflare.dev/v1beta2`, accepted unmodified."""
